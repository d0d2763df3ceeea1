//! The bodies of clients' requests: bounded in size, time and memory.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bowline_egress::{ReadError, read_limited};
use bytes::Bytes;
use http::HeaderMap;
use http::header::EXPECT;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use crate::caller::Caller;
use crate::fault::Fault;
use crate::hub::Hub;
use crate::listener::bodies::{BodyReadError, Held};

/// How long a request's body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How much of a body that is not wanted is read on and thrown away, and for how long. Clients that
/// write all of it before they read would otherwise see the connection reset instead of the answer.
const MAX_DISCARDED: u64 = 64 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// Bodies up to this are copied rather than held where they were read to.
const SMALL_BODY: usize = 4 * 1024;

/// A body of at most `limit` bytes, if it comes in time.
pub(super) async fn whole_body(mut body: Incoming, limit: usize) -> Result<Bytes, Fault> {
    let read = {
        let mut reading = std::pin::pin!(read_limited(&mut body, limit));
        match poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
            // Most bodies arrive with their head, and need no timer.
            Poll::Ready(read) => read,
            Poll::Pending => Box::pin(tokio::time::timeout(BODY_TIMEOUT, reading))
                .await
                .map_err(|_| Fault::BodyTimeout)?,
        }
    };
    let body = match read {
        Ok(body) => body,
        Err(ReadError::TooLarge(limit)) => {
            Box::pin(discard(body)).await;
            return Err(Fault::BodyTooLarge { limit });
        }
        Err(ReadError::Broken(_)) => return Err(Fault::BodyBroken),
    };
    Ok(match body.len() {
        // It is a part of the connection's read buffer, whose 8 KiB it would keep for as long as
        // the answer takes.
        0..=SMALL_BODY => Bytes::copy_from_slice(&body),
        _ => body,
    })
}

/// A body of at most `limit` bytes, held in the caller's share of the memory for long bodies until it is gone.
pub(super) async fn long_body(
    hub: &Hub,
    caller: &Caller,
    headers: &HeaderMap,
    mut body: Incoming,
    limit: usize,
) -> Result<Bytes, Fault> {
    // The client waits for `100 Continue`, which reading would send.
    if body.size_hint().lower() > limit as u64 && headers.contains_key(EXPECT) {
        return Err(Fault::BodyTooLarge { limit });
    }
    let reading = hub.bodies.read(caller, &mut body, limit);
    let read = tokio::time::timeout(BODY_TIMEOUT, reading).await;
    let fault = match read.map_err(|_| Fault::BodyTimeout)? {
        Ok(Held { bytes, room }) => return Ok(room.until_gone(bytes)),
        Err(BodyReadError::Broken) => return Err(Fault::BodyBroken),
        Err(BodyReadError::TooLarge) => Fault::BodyTooLarge { limit },
        Err(BodyReadError::NoRoom) => Fault::TooManyBodies,
    };
    discard(body).await;
    Err(fault)
}

/// Reads what is left of a body, up to a bound and for a time, and throws it away.
async fn discard(mut body: Incoming) {
    let discarding = async {
        let mut discarded = 0;
        while discarded <= MAX_DISCARDED
            && let Some(Ok(frame)) = body.frame().await
        {
            discarded += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
    };
    drop(tokio::time::timeout(DISCARD_TIMEOUT, discarding).await);
}
