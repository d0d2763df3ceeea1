//! Notifications and responses of the client: delivered one after the other, in the order in which they came.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::requests::Cancel;
use super::{Client, Incoming, listening};
use crate::exchange::Reply;

/// How many wait to be delivered before the next message is taken.
const MAX_WAITING: usize = 256;

const INITIALIZED: &str = "notifications/initialized";

/// The queue of notifications and responses.
#[derive(Debug)]
pub(in crate::front) struct Notices {
    queue: mpsc::Sender<(Incoming, Vec<Cancel>)>,
    read: u64,
    delivered: watch::Receiver<u64>,
    /// The number of the last `notifications/initialized`, which no request overtakes.
    initialized: u64,
}

/// When a request may be sent.
#[derive(Debug)]
pub(super) struct Turn {
    delivered: watch::Receiver<u64>,
    after: u64,
}

// === impl Notices ===

impl Notices {
    /// Delivers what is added, for as long as the client is there.
    pub(in crate::front) fn start(client: &Arc<Client>) -> Self {
        let (queue, waiting) = mpsc::channel(MAX_WAITING);
        let (sender, delivered) = watch::channel(0);
        let own = Arc::clone(client);
        client.delivering.spawn(async move {
            let left = own.left.clone();
            left.run_until_cancelled(deliver(own, waiting, sender))
                .await
        });
        Self {
            queue,
            read: 0,
            delivered,
            initialized: 0,
        }
    }

    /// Adds one, with the requests that it cancels.
    pub(super) async fn add(&mut self, incoming: Incoming, cancels: Vec<Cancel>) {
        self.read += 1;
        if incoming.message.method() == Some(INITIALIZED) {
            self.initialized = self.read;
        }
        // If the client has left, nobody delivers it.
        drop(self.queue.send((incoming, cancels)).await);
    }

    /// The turn of a request that came now.
    pub(super) fn turn(&self) -> Turn {
        Turn {
            delivered: self.delivered.clone(),
            after: self.initialized,
        }
    }
}

// === impl Turn ===

impl Turn {
    pub(super) async fn wait(mut self) {
        let after = self.after;
        // An error means that the client has left.
        drop(
            self.delivered
                .wait_for(|delivered| *delivered >= after)
                .await,
        );
    }
}

async fn deliver(
    client: Arc<Client>,
    mut waiting: mpsc::Receiver<(Incoming, Vec<Cancel>)>,
    delivered: watch::Sender<u64>,
) {
    while let Some((incoming, cancels)) = waiting.recv().await {
        client.deliver(incoming).await;
        cancels.iter().for_each(Cancel::delivered);
        delivered.send_modify(|delivered| *delivered += 1);
    }
}

impl Client {
    /// Delivers one. A fault is logged, because there is no request to answer.
    async fn deliver(self: &Arc<Self>, incoming: Incoming) {
        let Incoming {
            message,
            carried,
            place: _place,
        } = incoming;
        let is_initialized = message.method() == Some(INITIALIZED);
        let delivered = async {
            let admitted = self.admitted(&carried).await?;
            match admitted.clone().handle(message).await? {
                Reply::Message { sent_as, .. } if !sent_as.is_good() => {
                    Err(admitted.failed(sent_as.not_mcp()))
                }
                _ => Ok(admitted),
            }
        };
        match delivered.await {
            Ok(admitted) if is_initialized => {
                listening::start(self, admitted.dialog(), carried);
            }
            Ok(_) => {}
            Err(fault) => {
                self.log(&fault);
                // The server may not care; the session works without it.
                if is_initialized && let Ok(admitted) = self.admitted(&carried).await {
                    listening::start(self, admitted.dialog(), carried);
                }
            }
        }
    }
}
