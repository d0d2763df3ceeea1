//! From names to addresses, for URLs from an untrusted source.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use super::Origin;

type Looking = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Resolves names: the system, or a test that answers differently every time.
#[derive(Clone)]
pub(super) struct Names(Arc<dyn Fn(Origin) -> Looking + Send + Sync>);

// === impl Names ===

impl Names {
    pub(super) fn system() -> Self {
        Self(Arc::new(|origin| {
            Box::pin(async move { origin.resolve().await })
        }))
    }

    /// Every address that the origin's name has now.
    pub(super) async fn resolve(&self, origin: &Origin) -> io::Result<Vec<SocketAddr>> {
        (self.0)(origin.clone()).await
    }

    /// Lets a test choose the addresses of a name.
    #[cfg(test)]
    pub(super) fn scripted(
        answer: impl Fn(&str) -> Vec<std::net::IpAddr> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |origin| {
            let port = origin.port();
            let answered = answer(origin.host()).into_iter();
            let addresses = answered
                .map(|address| SocketAddr::new(address, port))
                .collect();
            Box::pin(async move { Ok(addresses) })
        }))
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}
