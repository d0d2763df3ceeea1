//! What the server sends on its own: the front opens that stream, and opens it again whenever it ends.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{AfterEnd, Client};
use crate::exchange::answer::Messages;
use crate::exchange::outlet::Outlet;
use crate::fault::Fault;
use crate::union::dialog::Dialog;
use crate::upstream::Carried;

/// The pause before the stream is opened again, which doubles while it fails.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Passes on what the server sends, until the session ends or the client leaves.
pub(super) fn start(client: &Arc<Client>, dialog: Dialog, carried: Carried) {
    let client = Arc::clone(client);
    let tracker = client.hub.tracker.clone();
    tracker.spawn(async move {
        let left = client.left.clone();
        left.run_until_cancelled(listen(client, dialog, carried))
            .await
    });
}

async fn listen(client: Arc<Client>, dialog: Dialog, carried: Carried) {
    let (mut pause, mut last) = (PAUSE, None);
    while client.may_listen(&dialog) {
        match client.listen(&dialog, &carried, last.take()).await {
            Ok(outlet) => {
                pause = PAUSE;
                let mut messages = Messages::of_stream(outlet);
                let reading = client.unasked.open();
                loop {
                    let mut next = pin!(messages.next());
                    let next = poll_fn(|cx| reading.poll(cx, next.as_mut()));
                    match client.outgoing.paced(next).await {
                        Ok(Some(message)) => client.outgoing.send(message.raw().clone()).await,
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
        if client.may_listen(&dialog) {
            tokio::time::sleep(pause).await;
        }
    }
    client.stopped_listening(&dialog);
}

// === impl Client ===

impl Client {
    /// Opens the stream of what the server says on its own, after the event `last` if there is one.
    async fn listen(
        &self,
        dialog: &Dialog,
        carried: &Carried,
        last: Option<Bytes>,
    ) -> Result<Outlet, Fault> {
        let admitted = self.admit(dialog.clone(), carried)?;
        admitted.listen(last.as_deref()).await
    }

    /// Whether the server may still say something to this client in this session.
    fn may_listen(&self, dialog: &Dialog) -> bool {
        let is_permitted = self.admit(dialog.clone(), &Carried::default()).is_ok();
        is_permitted && self.hub.unions.is_alive(dialog) && !self.hub.drain.has_begun()
    }

    /// The session is over, unless the gateway stops: then requests are still answered.
    fn stopped_listening(&self, dialog: &Dialog) {
        let is_over = self.after_end == AfterEnd::Over && self.conversation.is_in(dialog);
        if is_over && !self.hub.drain.has_begun() {
            self.over.cancel();
        }
    }
}
