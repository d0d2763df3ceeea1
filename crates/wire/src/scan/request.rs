//! The id of a request that is too large to be held in memory.

use super::{IdScan, Stop};
use crate::message::{RawId, RawIdBuf};

/// The longest id of a request that is found.
const MAX_ID: usize = 1024;

/// Finds the id of a request.
#[derive(Debug)]
pub struct RequestScan {
    scan: IdScan,
    id: FoundId,
}

#[derive(Debug)]
enum FoundId {
    None,
    /// What has arrived of it.
    Begun(Vec<u8>),
    Whole(Vec<u8>),
    /// It is too long, or there are two.
    Unusable,
}

// === impl RequestScan ===

impl Default for RequestScan {
    fn default() -> Self {
        let scan = IdScan {
            is_of_request: true,
            ..IdScan::default()
        };
        Self {
            scan,
            id: FoundId::None,
        }
    }
}

impl RequestScan {
    /// Reads more of the message.
    pub fn read(&mut self, mut bytes: &[u8]) {
        loop {
            let (read, stop) = self.scan.read(bytes);
            self.id.add(&bytes[..read]);
            bytes = &bytes[read..];
            match stop {
                Stop::IdBegins => self.id.begin(),
                Stop::IdEnds => self.id.end(),
                Stop::AnswerBegins => {}
                Stop::More | Stop::End | Stop::NotAnAnswer => return,
            }
        }
    }

    /// The id of what was read, if that is a request as far as was read.
    pub fn id(&self) -> Option<RawIdBuf> {
        let FoundId::Whole(id) = &self.id else {
            return None;
        };
        if !self.scan.has_method || self.scan.has_answer {
            return None;
        }
        let id = std::str::from_utf8(id).ok()?;
        let value: serde_json::Value = serde_json::from_str(id).ok()?;
        (value.is_string() || value.is_number()).then(|| RawId::new(id).to_buf())
    }
}

// === impl FoundId ===

impl FoundId {
    fn begin(&mut self) {
        *self = match self {
            Self::None => Self::Begun(Vec::new()),
            Self::Begun(_) | Self::Whole(_) | Self::Unusable => Self::Unusable,
        };
    }

    fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Begun(id) if id.len() + bytes.len() <= MAX_ID => id.extend_from_slice(bytes),
            Self::Begun(_) => *self = Self::Unusable,
            Self::None | Self::Whole(_) | Self::Unusable => {}
        }
    }

    fn end(&mut self) {
        if let Self::Begun(id) = self {
            *self = Self::Whole(std::mem::take(id));
        }
    }
}
