//! A request of a batch: its reply is read to the end, message by message, as a client would read it.

use bowline_wire::message::{Message, RawId};

use crate::exchange::Reply;
use crate::exchange::answer::{Answer, LargeAnswers};
use crate::exchange::batch::{Note, Parts, TakesMessages};
use crate::upstream::UpstreamError;

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
        let relayed = relay(id.as_id(), reply, &parts, &large).await;
        relayed.map_err(|error| taker.failed(error))
    };
    let result = tokio::select! {
        result = relaying => result,
        () = parts.left() => return,
    };
    if let Err(fault) = result {
        taker.registry().metrics.refused(fault.row().name);
        parts.say(fault.body(Some(id.as_id()))).await;
    }
}

/// Passes on all messages of a reply. Event ids and retry times are dropped: the client cannot resume one
/// member of a batch.
async fn relay(
    id: RawId<'_>,
    reply: Reply,
    parts: &Parts,
    large: &LargeAnswers,
) -> Result<(), UpstreamError> {
    let mut answer = Answer::of(id, reply, large);
    if answer.is_stream() {
        parts.note(Note::Streams);
    }
    loop {
        match answer.next().await {
            Ok(Some(message)) => parts.say(message.raw().clone()).await,
            Ok(None) => return Ok(()),
            // A second response to one request would be worse than an unreported fault.
            Err(_) if answer.is_answered() => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
