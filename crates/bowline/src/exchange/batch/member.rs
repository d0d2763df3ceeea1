//! A request of a batch: its reply is read to the end, message by message, as a client would read it.

use bowline_wire::message::{Message, RawId};

use crate::exchange::answer::{Answer, LargeAnswers};
use crate::exchange::batch::{Part, Parts, TakesMessages};
use crate::exchange::reply::Reply;
use crate::upstream::UpstreamError;

/// Why a reply was not passed on to its end.
enum Stopped {
    /// The client left.
    Left,
    Failed(UpstreamError),
}

/// Sends a request and passes its reply on to the batch. If the client leaves, the reply is dropped, as in
/// any other exchange.
pub(crate) async fn ask<T: TakesMessages>(
    taker: T,
    request: Message,
    parts: Parts,
    large: LargeAnswers,
) {
    let id = request.id().unwrap_or_default().to_buf();
    let relaying = async {
        let reply = taker.clone().take(request).await?;
        match relay(id.as_id(), reply, &parts, &large).await {
            Err(Stopped::Failed(error)) => Err(taker.failed(error)),
            _ => Ok(()),
        }
    };
    let result = tokio::select! {
        result = relaying => result,
        () = parts.closed() => return,
    };
    if let Err(fault) = result {
        taker.registry().metrics.refused(fault.row().name);
        let body = fault.body(Some(id.as_id()));
        // If the client has left, the error is dropped.
        drop(parts.send(Part::Message(body.into())).await);
    }
}

/// Passes on all messages of a reply. Event ids and retry times are dropped: the client cannot resume one
/// member of a batch.
async fn relay(
    id: RawId<'_>,
    reply: Reply,
    parts: &Parts,
    large: &LargeAnswers,
) -> Result<(), Stopped> {
    let send = async |part| parts.send(part).await.map_err(|_| Stopped::Left);
    let mut answer = Answer::of(id, reply, large);
    if answer.is_stream() {
        send(Part::Streams).await?;
    }
    loop {
        match answer.next().await {
            Ok(Some(message)) => send(Part::Message(message.raw().clone())).await?,
            Ok(None) => return Ok(()),
            // A second response to one request would be worse than an unreported fault.
            Err(_) if answer.is_answered() => return Ok(()),
            Err(error) => return Err(Stopped::Failed(error)),
        }
    }
}
