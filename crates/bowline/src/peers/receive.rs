//! The receiver's side: a forward is opened, and the records of its answer are sealed.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::Peers;
use super::label::{Forward, Label};
use super::record::Record;
use super::secret::PeerSecret;

/// A forward that is genuine, and new.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) forward: Forward,
    /// The gateway that sent it.
    pub(crate) from: Box<str>,
    pub(crate) sealer: Sealer,
}

/// Seals the records of one answer, in their order.
#[derive(Debug)]
pub(crate) struct Sealer {
    secret: Arc<PeerSecret>,
    label: Bytes,
    place: u64,
}

/// Why something is not taken for a forward. Nothing that is sealed answers it: an answer to a copy would be one
/// to the original.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intruder {
    /// It has no label.
    Malformed,
    /// It is for another gateway, or for an earlier one at this address.
    Misdirected,
    /// It was not sealed with this secret, or was changed.
    Unauthenticated,
    /// It was received before, or may have been.
    Replayed,
}

impl Intruder {
    /// Its name among the metrics and in the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Misdirected => "misdirected",
            Self::Unauthenticated => "unauthenticated",
            Self::Replayed => "replayed",
        }
    }
}

impl Peers {
    /// Opens a forward.
    pub(crate) fn receive(&self, body: Bytes) -> Result<Received, Intruder> {
        let (label, clear, sealed) = Label::take(body).ok_or(Intruder::Malformed)?;
        if label.to != self.me {
            return Err(Intruder::Misdirected);
        }
        let plain = self.secret.open_forward(&clear, &sealed);
        let plain = plain.ok_or(Intruder::Unauthenticated)?;
        let forward = Forward::from_bytes(plain).ok_or(Intruder::Malformed)?;
        // Last, because only a genuine number counts.
        if !self.taken.take(&label.from, label.number) {
            return Err(Intruder::Replayed);
        }
        Ok(Received {
            forward,
            from: label.from,
            sealer: Sealer {
                secret: Arc::clone(&self.secret),
                label: clear,
                place: 0,
            },
        })
    }

    /// This gateway's name.
    pub(crate) fn me(&self) -> &str {
        &self.me
    }
}

impl Sealer {
    /// The next record, as it is sent.
    pub(crate) fn seal(&mut self, record: &Record) -> Option<Bytes> {
        let sealed = self
            .secret
            .seal_record(&self.label, self.place, &record.to_bytes())?;
        self.place += 1;
        let mut framed = BytesMut::with_capacity(4 + sealed.len());
        framed.put_u32(u32::try_from(sealed.len()).ok()?);
        framed.extend_from_slice(&sealed);
        Some(framed.freeze())
    }
}
