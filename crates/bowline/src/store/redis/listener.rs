//! Announcements, on a connection of their own.
//!
//! Redis forgets a message as soon as it was sent to those who listen, so what matters is to know
//! when one may have been missed. The connection is asked now and then whether it still answers: a
//! Redis that hangs, or whose machine vanished, says nothing by itself.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, RedisError, Value, cmd};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::store::{Announcement, Heard, LARGEST_ANNOUNCEMENT};
use crate::upstream::jittered;

/// How long to wait before the next attempt to connect: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Listens to what is announced over a Redis.
pub(crate) struct RedisListener {
    client: Client,
    channel: String,
    timeout: Duration,
    open: Option<Open>,
    /// Whether the last thing heard of the channel was that it broke, or nothing yet.
    broken: bool,
    pause: Duration,
}

/// An open channel.
struct Open {
    connection: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
    next_check: Instant,
}

// === impl RedisListener ===

impl RedisListener {
    pub(super) fn new(client: Client, channel: String, timeout: Duration) -> Self {
        Self {
            client,
            channel,
            timeout,
            open: None,
            broken: true,
            pause: Duration::ZERO,
        }
    }

    pub(in crate::store) async fn next(&mut self) -> Heard {
        loop {
            let Some(open) = &mut self.open else {
                if !std::mem::replace(&mut self.broken, true) {
                    return Heard::Broken;
                }
                sleep(jittered(self.pause)).await;
                match timeout(self.timeout, Open::new(&self.client, &self.channel)).await {
                    Ok(Ok(open)) => {
                        self.open = Some(open.checked_after(self.timeout));
                        self.broken = false;
                        self.pause = FIRST_PAUSE;
                        return Heard::Whole;
                    }
                    failed => {
                        let error = failed.err().map_or("refused", |_| "no answer in time");
                        tracing::debug!(error, "cannot listen to announcements");
                        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                        continue;
                    }
                }
            };
            if let Some(heard) = open.next(self.timeout).await {
                return heard;
            }
            self.open = None;
        }
    }
}

impl fmt::Debug for RedisListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisListener")
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

// === impl Open ===

impl Open {
    async fn new(client: &Client, channel: &str) -> Result<Self, RedisError> {
        let (push, pushes) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(push);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        // The library's future is large, and this is rare.
        let mut connection = Box::pin(connecting).await?;
        connection.subscribe(channel).await?;
        Ok(Self {
            connection,
            pushes,
            next_check: Instant::now(),
        })
    }

    fn checked_after(mut self, wait: Duration) -> Self {
        self.next_check = Instant::now() + wait;
        self
    }

    /// The next announcement; `None` when the channel is not whole any more.
    async fn next(&mut self, wait: Duration) -> Option<Heard> {
        loop {
            tokio::select! {
                push = self.pushes.recv() => match read(push?) {
                    Pushed::Announcement(announcement) => {
                        return Some(Heard::Announcement(announcement));
                    }
                    Pushed::Broken => return None,
                    Pushed::Nothing => {}
                },
                () = sleep_until(self.next_check) => {
                    self.next_check = Instant::now() + wait;
                    let ping = cmd("PING");
                    let answer = ping.query_async::<()>(&mut self.connection);
                    if !matches!(timeout(wait, answer).await, Ok(Ok(()))) {
                        return None;
                    }
                }
            }
        }
    }
}

enum Pushed {
    Announcement(Announcement),
    /// The connection ended.
    Broken,
    Nothing,
}

fn read(push: PushInfo) -> Pushed {
    match push.kind {
        PushKind::Message => {}
        PushKind::Disconnection => return Pushed::Broken,
        _ => return Pushed::Nothing,
    }
    let Some(Value::BulkString(mut message)) = push.data.into_iter().nth(1) else {
        return Pushed::Broken;
    };
    if message.is_empty() || message.len() > LARGEST_ANNOUNCEMENT + 1 {
        return Pushed::Nothing;
    }
    let body = Bytes::from(message.split_off(1));
    let kind = message[0];
    Pushed::Announcement(Announcement { kind, body })
}
