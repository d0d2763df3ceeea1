//! Telling a client that there is no room for its connection.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::crowd::Crowded;

/// How many are told at the same time; who comes then is turned away without a word.
const AT_ONCE: usize = 16;

/// How long a client has to hear it, and how much of its request is read meanwhile: a connection
/// that closes on unread bytes takes its answer with it.
const TIME: Duration = Duration::from_secs(1);
const READ: u64 = 256 * 1024;

/// The clients that are being told.
#[derive(Debug)]
pub(super) struct Refusals(Arc<Semaphore>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Refusals {
    /// Tells this client; `None` if too many are told already.
    pub(super) fn of(
        &self,
        mut stream: TcpStream,
        why: Crowded,
    ) -> Option<impl Future<Output = ()> + use<>> {
        let turn = Arc::clone(&self.0).try_acquire_owned().ok()?;
        let telling = async move {
            stream.write_all(response(why).as_bytes()).await?;
            stream.shutdown().await?;
            let mut rest = stream.take(READ);
            tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
        };
        Some(async move {
            // Whoever does not listen is not told.
            drop(tokio::time::timeout(TIME, telling).await);
            drop(turn);
        })
    }
}

fn response(why: Crowded) -> String {
    let fault = why.fault();
    let (telling, body) = (fault.telling(), fault.body(None));
    format!(
        "HTTP/1.1 {}\r\ncontent-type: application/json\r\nretry-after: {}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        telling.status,
        telling.retry_after.unwrap_or_default(),
        body.len(),
    )
}
