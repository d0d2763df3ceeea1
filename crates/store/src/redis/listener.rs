//! Announcements, on a connection of their own.
//!
//! Redis does not keep a message after it was sent to the listeners, so a listener must know when it may
//! have missed one. The connection is pinged regularly: a Redis that hangs, or whose machine is gone, does
//! not close it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, RedisError, Value, cmd};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{LARGEST_ANNOUNCEMENT, ListenerEvent, SealedAnnouncement};
use bowline_system::jitter::jittered;

/// How long to wait before the next attempt to connect: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Listens to what is announced over a Redis.
pub struct RedisListener {
    client: Client,
    channel: String,
    timeout: Duration,
    open: Option<Channel>,
    /// Whether the channel was last reported as broken, or not reported yet.
    broken: bool,
    pause: Duration,
}

/// An open channel.
struct Channel {
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

    pub async fn next(&mut self) -> ListenerEvent {
        loop {
            let Some(open) = &mut self.open else {
                if !std::mem::replace(&mut self.broken, true) {
                    return ListenerEvent::Broken;
                }
                sleep(jittered(self.pause)).await;
                match timeout(self.timeout, Channel::new(&self.client, &self.channel)).await {
                    Ok(Ok(open)) => {
                        self.open = Some(open.checked_after(self.timeout));
                        self.broken = false;
                        self.pause = FIRST_PAUSE;
                        return ListenerEvent::Whole;
                    }
                    failed => {
                        let error = failed.err().map_or("refused", |_| "no answer in time");
                        tracing::debug!(error, "announcement channel unavailable");
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

// === impl Channel ===

impl Channel {
    async fn new(client: &Client, channel: &str) -> Result<Self, RedisError> {
        let (push, pushes) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(push);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        // Boxed, because the library's future is large, and this is rare.
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
    async fn next(&mut self, wait: Duration) -> Option<ListenerEvent> {
        loop {
            tokio::select! {
                push = self.pushes.recv() => match read(push?) {
                    Push::Announcement(announcement) => {
                        return Some(ListenerEvent::Announcement(announcement));
                    }
                    Push::Broken => return None,
                    Push::Nothing => {}
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

enum Push {
    Announcement(SealedAnnouncement),
    /// The connection ended.
    Broken,
    Nothing,
}

fn read(push: PushInfo) -> Push {
    match push.kind {
        PushKind::Message => {}
        PushKind::Disconnection => return Push::Broken,
        _ => return Push::Nothing,
    }
    let Some(Value::BulkString(mut message)) = push.data.into_iter().nth(1) else {
        return Push::Broken;
    };
    if message.is_empty() || message.len() > LARGEST_ANNOUNCEMENT + 1 {
        return Push::Nothing;
    }
    let body = Bytes::from(message.split_off(1));
    let kind = message[0];
    Push::Announcement(SealedAnnouncement { kind, body })
}
