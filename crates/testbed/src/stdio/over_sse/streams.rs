//! Streams of the server over HTTP+SSE, for a test that writes to them itself.

use std::io;

use bytes::Bytes;
use tokio::sync::mpsc;

pub(super) type Parts = mpsc::UnboundedSender<io::Result<Bytes>>;

/// Streams of one moment.
#[derive(Debug)]
pub struct Streams(Vec<Parts>);

impl Streams {
    pub(super) fn new(streams: impl Iterator<Item = Parts>) -> Self {
        Self(streams.collect())
    }

    /// Writes bytes to all of them. Whether any is still read.
    pub fn write(&self, bytes: &[u8]) -> bool {
        let bytes = Bytes::copy_from_slice(bytes);
        let written = self
            .0
            .iter()
            .map(|parts| parts.send(Ok(bytes.clone())).is_ok());
        written.fold(false, |any, written| any | written)
    }
}
