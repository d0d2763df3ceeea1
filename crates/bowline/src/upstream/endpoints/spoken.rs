//! Which transport an endpoint spoke. That is remembered for a while, because servers are upgraded, and rolled back.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long the transport that an endpoint spoke is tried first.
const HOLDS: Duration = Duration::from_secs(10 * 60);

/// Which transport an endpoint spoke, and until when that holds.
#[derive(Debug, Default)]
pub(in crate::upstream) struct LastSpoken(Mutex<Option<(Spoken, Instant)>>);

/// A transport that a server spoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Spoken {
    StreamableHttp,
    Sse,
}

// === impl LastSpoken ===

impl LastSpoken {
    pub(in crate::upstream) fn get(&self) -> Option<Spoken> {
        let last = *self.0.lock();
        let (spoken, _) = last.filter(|(_, until)| Instant::now() < *until)?;
        Some(spoken)
    }

    pub(in crate::upstream) fn note(&self, spoken: Spoken) {
        *self.0.lock() = Some((spoken, Instant::now() + HOLDS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_transport_is_remembered_for_a_while() {
        let last = LastSpoken::default();
        assert_eq!(last.get(), None);
        last.note(Spoken::Sse);
        tokio::time::advance(HOLDS - Duration::from_secs(1)).await;
        assert_eq!(last.get(), Some(Spoken::Sse));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(last.get(), None);
        last.note(Spoken::StreamableHttp);
        assert_eq!(last.get(), Some(Spoken::StreamableHttp));
    }
}
