//! How much a client that answers no request at once may have under way at the same time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Limits;
use crate::fault::Fault;
use crate::share::ShareOwner;

/// Requests under way, if `[limits] streams` is not smaller.
pub(super) const MAX_REQUESTS: usize = 1024;
/// How many of the largest messages fit into memory.
const LARGEST_MESSAGES: usize = 4;
const KIB: usize = 1024;

/// The places of requests, and the memory of their bodies.
#[derive(Debug)]
pub(crate) struct Room {
    requests: Arc<Semaphore>,
    kib: Arc<Semaphore>,
}

/// The place of a request. Dropping it returns it.
#[derive(Debug)]
pub(crate) struct RoomPermit {
    _request: OwnedSemaphorePermit,
    _memory: OwnedSemaphorePermit,
}

impl Room {
    pub(crate) fn new(limits: &Limits) -> Self {
        let requests = limits.streams.min(MAX_REQUESTS);
        let kib = MAX_REQUESTS + LARGEST_MESSAGES * limits.body_bytes.div_ceil(KIB);
        Self {
            requests: Arc::new(Semaphore::new(requests)),
            kib: Arc::new(Semaphore::new(kib.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Takes a place for a request of this many bytes. It never waits: the client may have to answer
    /// something before a place becomes free.
    pub(crate) fn take(&self, bytes: usize) -> Result<RoomPermit, Fault> {
        let kib = u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX);
        let request = Arc::clone(&self.requests).try_acquire_owned();
        let request = request.map_err(|_| Fault::TooManyStreams(ShareOwner::Gateway))?;
        let memory = Arc::clone(&self.kib).try_acquire_many_owned(kib);
        let memory = memory.map_err(|_| Fault::TooManyBodies)?;
        Ok(RoomPermit {
            _request: request,
            _memory: memory,
        })
    }
}
