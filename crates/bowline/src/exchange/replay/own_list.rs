//! Bowline's own list of a server's tools: in each generation, once, so that a call is protected at every loss of
//! its server and not only until the client lists again.
//!
//! It is asked for when a tool is called on a leg whose tools are not known: a client that lists spares it. That call
//! and those that come meanwhile wait for it, for a moment; if there is no list by then, no other call does. It is sent once and recovers nothing, asks nobody to sign
//! in, and is no use of the session by its client. Of one caller, one list is under way at a server at a time, and it
//! counts for all legs there that waited for it.
//!
//! A call that may have run is not repeated before the tools were listed once more ([`confirms`]). Hints may be old: the
//! server may be another release by now, and nobody may have heard that its tools changed.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bowline_egress::Sent;
use bowline_wire::compose;
use bowline_wire::message::Message;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::exchange::replay::{Safety, safety_of};
use crate::exchange::reply::Reply;
use crate::exchange::send::{self, Request, SentRequest};
use crate::exchange::stream::events::EventRelay;
use crate::exchange::stream::relay::Relay;
use crate::leg::{Leg, repeat_id};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::session::{Call, Session};
use crate::upstream::budget::{Budget, errand, moment};
use crate::upstream::{
    Carried, LastList, ListOver, ListTurn, ListedAgain, OWN_LIST, Pages, Repeat, UpstreamError,
    WantedList,
};

/// The most pages of one list.
const MAX_PAGES: usize = 32;

/// The time between two lists. Sessions that recover meanwhile share the second.
const PAUSE: Duration = Duration::from_millis(250);

/// A list that is under way.
pub(crate) struct Listing(ListOver);

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
        Safety::IfShown(_) => match wanted {
            WantedList::New { turn, is_first } => {
                let over = begin(session, leg, request.carried, turn);
                if is_first {
                    leg.tool_hints.begin_waiting(&over);
                }
                is_first.then_some(Listing(over))
            }
            WantedList::UnderWay(over) => Some(Listing(over)),
        },
        // Whatever the list says.
        Safety::Safe | Safety::Unsafe => {
            if let WantedList::New { .. } = wanted {
                leg.tool_hints.end_asking();
            }
            None
        }
    }
}

fn begin(session: &Arc<Session>, leg: &Arc<Leg>, carried: &Carried, turn: ListTurn) -> ListOver {
    let (over, waiting) = watch::channel(());
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
    waiting
}

impl Listing {
    /// Waits for a moment, unless the client cancels its call or leaves. Where that was in vain, nobody else waits.
    pub(crate) async fn wait(
        mut self,
        request: &Request<'_>,
        leg: &Leg,
    ) -> Result<(), UpstreamError> {
        let limit = moment(&request.session.upstream.config());
        tokio::select! {
            biased;
            () = request.call.cancelled() => Err(UpstreamError::Cancelled),
            () = request.sent.left() => Err(UpstreamError::Cancelled),
            // The other end is dropped when the list is over.
            waited = tokio::time::timeout(limit, self.0.changed()) => {
                if waited.is_err() {
                    leg.tool_hints.end_waiting();
                }
                Ok(())
            }
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
        Ok(Ok(_)) => session.listed_tools(leg, (since, asked)),
        Ok(Err(error)) => tracing::debug!(session = %session.hash, %error, "tools not listed"),
        Err(_) => tracing::debug!(session = %session.hash, "tools not listed in time"),
    }
    LastList {
        asked,
        at: Instant::now(),
    }
}

/// Whether a list that is requested now, with what this request carries, says that its tool is safe to repeat. `true` if
/// that does not depend on lists. Calls that ask at the same time share a list.
pub(crate) async fn confirms(request: &Request<'_>, leg: &Arc<Leg>) -> Result<bool, UpstreamError> {
    let (session, carried) = (request.session, request.carried);
    let policy = &session.upstream.config().recovery.replay;
    let Safety::IfShown(tool) = safety_of(&request.message, policy) else {
        return Ok(true);
    };
    #[cfg(feature = "planted")]
    if planted::has(Bug::HintsKept) {
        return Ok(true);
    }
    let (tools, again) = (&session.upstream.tool_hints, leg.tool_hints.again());
    let failed = tools.next();
    let listing = async {
        let mut last = again.lock().await;
        if let Some(list) = &*last
            && list.asked > failed
            && list.carried.says_as(carried)
        {
            return Ok(list.pages.say_safe(&tool));
        }
        let asked = tools.next();
        let pages = all_pages(session, leg, carried).await?;
        let is_safe = pages.say_safe(&tool);
        *last = Some(ListedAgain {
            asked,
            carried: carried.clone(),
            pages,
        });
        Ok(is_safe)
    };
    let left = request.call.time_left(|| Budget::of(&session.upstream));
    tokio::select! {
        biased;
        () = request.call.cancelled() => Err(UpstreamError::Cancelled),
        () = request.sent.left() => Err(UpstreamError::Cancelled),
        listed = tokio::time::timeout(left, listing) => {
            listed.unwrap_or(Err(UpstreamError::CallTimeout(left)))
        }
    }
}

async fn all_pages(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    carried: &Carried,
) -> Result<Pages, UpstreamError> {
    let (mut pages, mut cursor) = (Pages::default(), None);
    for _ in 0..MAX_PAGES {
        let answer = page(session, leg, carried, cursor.as_deref()).await?;
        let answer = answer.as_ref();
        pages.add_result(answer.and_then(Message::result));
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
    Ok(pages)
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
    // Lists are safe to repeat.
    let mut sent_request = SentRequest::first(&request);
    let answered = send::once(&request, leg, &mut sent_request, Repeat::Safe).await?;
    Ok(match answered.reply {
        Reply::Message { body, .. } => Message::from_server(body).ok(),
        Reply::Stream(Relay::Events(mut events)) => {
            let answer = events.until_answer(id.as_id()).await?;
            read_out(session, events);
            Some(answer)
        }
        _ => None,
    })
}

/// Reads a stream behind the answer, for what changes what is known.
fn read_out(session: &Session, mut events: Box<EventRelay>) {
    let limit = errand(&session.upstream.config().recovery);
    session.upstream.tracker().spawn(async move {
        let reading = async { while poll_fn(|cx| events.poll_next(cx)).await.is_some() {} };
        tokio::time::timeout(limit, reading).await.is_ok()
    });
}

impl Drop for AskingLeg {
    fn drop(&mut self) {
        self.0.tool_hints.end_asking();
    }
}
