//! What the server sends on its own: the front opens that stream, and opens it again whenever it ends.

use std::sync::Arc;
use std::time::Duration;

use super::Client;
use crate::exchange::Exchange;
use crate::exchange::answer::Messages;

/// The pause before the stream is opened again, which doubles while it fails.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Passes on what the server sends, until the session ends or the client leaves.
pub(super) fn start(client: &Arc<Client>, exchange: Exchange) {
    let client = Arc::clone(client);
    let tracker = client.hub.tracker.clone();
    tracker.spawn(async move {
        let left = client.left.clone();
        left.run_until_cancelled(listen(client, exchange)).await
    });
}

async fn listen(client: Arc<Client>, exchange: Exchange) {
    let (mut pause, mut last) = (PAUSE, None);
    while client.is_alive(&exchange) {
        match exchange.clone().listen(last.take().as_deref()).await {
            Ok(outlet) => {
                pause = PAUSE;
                let mut messages = Messages::of_stream(outlet);
                loop {
                    match messages.next().await {
                        Ok(Some(message)) => client.writer.send(message.raw().clone()).await,
                        Ok(None) => break,
                        Err(error) => {
                            tracing::debug!(%error, "the server's stream broke");
                            break;
                        }
                    }
                }
                last = messages.position().last_event_id.clone();
            }
            Err(fault) => {
                tracing::debug!(%fault, "the server's stream could not be opened");
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        tokio::time::sleep(pause).await;
    }
}
