//! An operation on the leg of a session that lives here, for another gateway.

use std::future::poll_fn;

use bowline_egress::Sent;
use bowline_wire::message::Message;

use super::body::Out;
use crate::hub::Hub;
use crate::leg::Leg;
use crate::peers::{Ending, Failure, Forward, Record};
use crate::proof::{Proof, Ran, SessionState};
use crate::session::InUse;
use crate::upstream::{
    EventSource, LegForward, LegOperation, Listening, LiveError, MAX_HELD_ANSWER, NotSaid, Outcome,
    Pulse, Reading, StreamError, UpstreamError,
};

/// Serves an operation on a leg.
pub(super) async fn serve(hub: &Hub, forward: &Forward, from: &str, out: &Out) -> Ending {
    let Some(asked) = forward.head::<LegForward>() else {
        return Ending::Refused("it names no leg".into());
    };
    let (in_use, leg) = match find(hub, &asked, from).await {
        Ok(found) => found,
        Err(ending) => return ending,
    };
    if hub.drain.has_begun()
        && let Some(ending) = hand_over(&in_use, &leg, &asked).await
    {
        return ending;
    }
    out.put(Record::Accepted).await;
    hub.metrics.forward_received("accepted");
    let doing = async {
        let mut ending = run(&asked, forward, &leg, out).await;
        if let Ending::Failed(failure) = &mut ending {
            let session = in_use.session();
            // The other gateway judges by the store what may run twice.
            if let Some(written) = session.tools_written() {
                _ = written.await;
            }
            failure.tools_changed = session.owes_tools();
        }
        ending
    };
    match asked.operation {
        // Its client opens another, at a gateway that stays.
        LegOperation::Listen => tokio::select! {
            ending = doing => ending,
            () = hub.drain.begun() => Ending::Unsure("its gateway stops".into()),
        },
        _ => doing.await,
    }
}

/// The session that lives here and its leg, or why not. Everything that the other gateway says is checked again.
async fn find(
    hub: &Hub,
    asked: &LegForward,
    from: &str,
) -> Result<(InUse, std::sync::Arc<Leg>), Ending> {
    let table = &hub.registry.table;
    let id = asked
        .session()
        .ok_or_else(|| Ending::Refused("it names no session".into()))?;
    // A session that lives here is never out of the cache.
    let in_use = table
        .cached(&id)
        .ok_or_else(|| not_mine("the session is not here"))?;
    let session = in_use.session();
    let caller = asked.whose.caller();
    let is_its = caller.is_some_and(|caller| session.is_for(&caller))
        && asked.whose.server() == session.upstream.name.as_ref();
    if !is_its {
        tracing::warn!(
            session = %session.hash, gateway = from,
            "a forward was refused: the session is another caller's or another server's, or its caller is not configured here"
        );
        return Err(Ending::Refused("the session is not this caller's".into()));
    }
    // The other gateway says that it has ended the session; the record says whether that is so.
    let found = match asked.operation {
        LegOperation::End => session.refresh().await,
        _ => table
            .find(&id, &session.upstream)
            .await
            .map(|found| found.is_some()),
    };
    match found {
        Ok(true) => {}
        Ok(false) => {
            drop(table.end(&id));
            session.leg().end(&asked.carried).await;
            return Err(not_mine("the session has ended"));
        }
        Err(error) => return Err(Ending::Unsure(error.to_string().into())),
    }
    let leg = session.leg();
    let (has, wants) = (leg.generation.number, asked.generation);
    if has < wants {
        // It was published, and this gateway has not come that far.
        return Err(Ending::Unsure(
            "its generation is not known here yet".into(),
        ));
    }
    if has > wants {
        return Err(not_mine("there is a newer generation"));
    }
    if !leg.is_live() || leg.is_lost() {
        return Err(not_mine("the server's side of the session is lost"));
    }
    Ok((in_use, leg))
}

fn not_mine(why: &str) -> Ending {
    Ending::NotMine(why.into())
}

/// This gateway stops: a session that nothing else uses is given up to the gateway that asks for it, which recovers
/// it. One that is in use stays until that is done.
async fn hand_over(in_use: &InUse, leg: &Leg, asked: &LegForward) -> Option<Ending> {
    if in_use.is_only_use() {
        leg.lose();
        leg.end(&asked.carried).await;
        return Some(not_mine("its gateway stops, and has ended it"));
    }
    let stays = "its gateway stops, and finishes a request of it first";
    (asked.operation == LegOperation::Listen).then(|| Ending::Unsure(stays.into()))
}

async fn run(asked: &LegForward, forward: &Forward, leg: &Leg, out: &Out) -> Ending {
    let (upstream, link) = (&leg.upstream, leg.link(&asked.carried));
    let (body, sent) = (forward.body.clone(), Sent::default());
    let message = || Message::parse(body.clone()).map_err(|_| UpstreamError::AnotherId);
    let done = match asked.operation {
        LegOperation::Request => {
            async {
                let reading = Reading {
                    limit: MAX_HELD_ANSWER,
                    own: None,
                };
                let outcome = upstream.request(link, &message()?, reading, sent).await?;
                pass(outcome, out).await
            }
            .await
        }
        LegOperation::Notify => match upstream.notify(link, body, sent).await {
            Ok(Some(refusal)) => {
                out.put_whole(refusal.body).await;
                Ok(())
            }
            told => told.map(drop),
        },
        LegOperation::Say => match upstream.say(link, body).await {
            Ok(Err(NotSaid { why, .. })) => return failed_to_say(why),
            said => said.map(drop),
        },
        LegOperation::Ping => match message() {
            Ok(ping) => return of_pulse(upstream.ping(link, &ping).await),
            Err(error) => Err(error),
        },
        LegOperation::Doubt => match message() {
            Ok(ping) => {
                upstream.doubt(link, &ping).await;
                Ok(())
            }
            Err(error) => Err(error),
        },
        LegOperation::Listen => {
            let last = (!body.is_empty()).then_some(&body);
            match upstream.listen(link, last).await {
                Ok(Listening::Events(source)) => pass_events(source, out).await,
                Ok(Listening::Refused { why, .. }) => Err(UpstreamError::NotListened(why)),
                Err(error) => Err(error),
            }
        }
        // It has not ended, or it would not have been found.
        LegOperation::End => Ok(()),
    };
    match done {
        Ok(()) => Ending::Done,
        Err(error) => Ending::Failed(failure(&error)),
    }
}

/// Passes an answer on.
async fn pass(outcome: Outcome, out: &Out) -> Result<(), UpstreamError> {
    match outcome {
        Outcome::Message(whole) => {
            out.put_whole(whole.body).await;
            Ok(())
        }
        Outcome::Events(source) => pass_events(source, out).await,
        // What lives in a gateway is answered by whole messages.
        Outcome::Frames(_) => Err(UpstreamError::AnotherId),
    }
}

async fn pass_events(mut source: EventSource, out: &Out) -> Result<(), UpstreamError> {
    out.put(Record::Stream).await;
    while let Some(event) = poll_fn(|cx| source.poll_event(cx)).await {
        let event = event.map_err(StreamError::from)?;
        out.put_parts(event.encoded()).await;
    }
    Ok(())
}

fn of_pulse(pulse: Pulse) -> Ending {
    match pulse {
        Pulse::Alive => Ending::Done,
        Pulse::Lost | Pulse::Refused => not_mine("the server's side of the session is lost"),
        Pulse::Elsewhere(_) => Ending::Unsure("it is elsewhere".into()),
        Pulse::Unproven(why, _) | Pulse::OwnerUnreachable(why) => Ending::Unsure((&*why).into()),
    }
}

fn failed_to_say(why: String) -> Ending {
    Ending::Failed(Failure {
        proof: Proof {
            ran: Ran::No,
            session: SessionState::Alive,
        },
        is_cancelled: false,
        is_id_taken: false,
        is_too_large: false,
        tools_changed: false,
        sign_in: None,
        what: why.into(),
    })
}

fn failure(error: &UpstreamError) -> Failure {
    Failure {
        proof: error.proof(),
        is_cancelled: matches!(
            error,
            UpstreamError::Cancelled | UpstreamError::Stream(StreamError::Cancelled)
        ),
        is_id_taken: matches!(error, UpstreamError::Live(LiveError::IdTaken)),
        is_too_large: matches!(error, UpstreamError::Stream(StreamError::TooLarge)),
        tools_changed: false,
        sign_in: match error {
            UpstreamError::SignIn(reason) => serde_json::to_string(&**reason).ok().map(Into::into),
            _ => None,
        },
        what: error.to_string().into(),
    }
}
