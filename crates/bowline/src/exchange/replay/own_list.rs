//! Bowline's own list of a server's tools: in each generation, once, so that a call is protected at every loss of
//! its server and not only until the client lists again.
//!
//! It is asked for when a tool is called on a leg whose tools are not known: a client that lists spares it. The first
//! such call waits for it, for a moment; other calls do not. It is sent once and recovers nothing, asks nobody to sign
//! in, and is no use of the session by its client. Of one caller, one list is under way at a server at a time, and it
//! counts for all legs there that waited for it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bowline_egress::Sent;
use bowline_wire::compose;
use bowline_wire::message::Message;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::exchange::replay::{Safety, safety_of};
use crate::exchange::reply::{Arriving, Reply};
use crate::exchange::send::{Request, request_once};
use crate::exchange::stream::relay::Relay;
use crate::leg::{Leg, repeat_id};
use crate::session::{Call, Session};
use crate::upstream::budget::{errand, moment};
use crate::upstream::{Carried, LastList, OWN_LIST, UpstreamError, WantedList};

/// The most pages of one list.
const MAX_PAGES: usize = 32;

/// The time between two lists. Sessions that recover meanwhile share the second.
const PAUSE: Duration = Duration::from_millis(250);

/// A list that is under way; `None` if nobody waits for it.
pub(crate) struct Listing(Option<oneshot::Receiver<Infallible>>);

/// A leg that asks, until it is dropped.
struct AskingLeg(Arc<Leg>);

/// A request is about to be sent on this leg: lists the tools if it calls one and they are not known.
pub(crate) fn before_call(request: &Request<'_>, leg: &Arc<Leg>) -> Option<Listing> {
    let session = request.session;
    if request.message.method() != Some("tools/call") || session.knows_tools(leg) {
        return None;
    }
    let has_tools = session.client_state.capabilities.may_have("tools")
        && leg.missing_lists.empty_list(Some("tools/list")).is_none();
    let wanted = has_tools.then(|| session.wants_tools(leg)).flatten()?;
    let policy = &session.upstream.config().recovery.replay;
    match safety_of(&request.message, policy) {
        Safety::IfShown(_) => Some(begin(session, leg, request.carried, wanted)),
        // Whatever the list says.
        Safety::Safe | Safety::Unsafe => {
            leg.tool_hints.end_asking();
            None
        }
    }
}

fn begin(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    carried: &Carried,
    WantedList { turn, is_first }: WantedList,
) -> Listing {
    let (over, waiting) = oneshot::channel();
    let (session, asking) = (Arc::clone(session), AskingLeg(Arc::clone(leg)));
    let (carried, wanted) = (session.carried(carried), session.upstream.tool_hints.now());
    let tracker = session.upstream.tracker().clone();
    tracker.spawn(async move {
        let leg = &asking.0;
        if leg.shared_endpoint().is_none() {
            Box::pin(list(&session, leg, &carried)).await;
            return;
        }
        // In a crowd, no call waits for its turn.
        let is_free = |last: &Option<LastList>| last.is_none_or(|last| last.at.elapsed() > PAUSE);
        let is_free = turn.try_lock().is_ok_and(|last| is_free(&last));
        let over = Some(over).filter(|_| is_free);
        let mut last = turn.lock().await;
        if let Some(last) = *last {
            // It counts for this leg as well, or the server did not answer it.
            if last.asked > wanted {
                session.got_tools(leg);
                return;
            }
            tokio::time::sleep_until(last.at + PAUSE).await;
        }
        if !leg.is_lost() && !session.has_ended() {
            *last = Some(Box::pin(list(&session, leg, &carried)).await);
        }
        drop(over);
    });
    Listing(is_first.then_some(waiting))
}

impl Listing {
    /// Waits for a moment, unless the client cancels its call or leaves.
    pub(crate) async fn wait(self, request: &Request<'_>) -> Result<(), UpstreamError> {
        let Some(over) = self.0 else { return Ok(()) };
        let limit = moment(&request.session.upstream.config());
        tokio::select! {
            biased;
            () = request.call.cancelled() => Err(UpstreamError::Cancelled),
            () = request.sent.left() => Err(UpstreamError::Cancelled),
            _ = tokio::time::timeout(limit, over) => Ok(()),
        }
    }
}

/// Lists the tools. What the answers say is learnt where every answer is read.
async fn list(session: &Arc<Session>, leg: &Arc<Leg>, carried: &Carried) -> LastList {
    let tools = &session.upstream.tool_hints;
    let (since, asked) = (tools.since(&session.audience()), tools.next());
    let limit = errand(&session.upstream.config().recovery);
    let listed = tokio::time::timeout(limit, all_pages(session, leg, carried)).await;
    match listed {
        Ok(Ok(())) => session.listed_tools(leg, (since, asked)),
        Ok(Err(error)) => tracing::debug!(session = %session.hash, %error, "tools not listed"),
        Err(_) => tracing::debug!(session = %session.hash, "tools not listed in time"),
    }
    LastList {
        asked,
        at: Instant::now(),
    }
}

async fn all_pages(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    carried: &Carried,
) -> Result<(), UpstreamError> {
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let answer = page(session, leg, carried, cursor.as_deref()).await?;
        let answer = answer.as_ref();
        let next = answer.and_then(|answer| Some(answer.text(answer.result_member("nextCursor")?)));
        match next.filter(|next| *next != "null") {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    // Until the store knows of them, no tool is safe.
    if let Some(written) = session.tools_written() {
        _ = written.await;
    }
    Ok(())
}

/// Asks for the page at this cursor (JSON text). `None`: what answered cannot be read.
async fn page(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    carried: &Carried,
    cursor: Option<&str>,
) -> Result<Option<Message>, UpstreamError> {
    let id = repeat_id::own_id(OWN_LIST);
    let message = match cursor {
        None => compose::bare_request(&id, "tools/list"),
        Some(cursor) => compose::request(&id, "tools/list", format!(r#"{{"cursor":{cursor}}}"#)),
    };
    let Ok(message) = Message::parse(message.into()) else {
        return Ok(None);
    };
    let request = Request {
        session,
        call: Call::begin(session, id.as_id()),
        message,
        carried,
        sent: Sent::default(),
    };
    Ok(match request_once(&request, leg).await? {
        Reply::Message { body, .. } => Message::from_server(body).ok(),
        Reply::Stream(Arriving {
            relay: Relay::Events(mut events),
            ..
        }) => Some(events.until_answer(id.as_id()).await?),
        _ => None,
    })
}

impl Drop for AskingLeg {
    fn drop(&mut self) {
        self.0.tool_hints.end_asking();
    }
}
