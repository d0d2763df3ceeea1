//! A client's request until it is answered or its outcome is known: sent over its session's leg; if that fails, the
//! session is recovered, and the request is sent again if that is safe.

use std::sync::Arc;

use crate::exchange::call_timeout::CallTimeout;
use crate::exchange::memory::{Memory, is_result};
use crate::exchange::recovery::{self, Cause, recover_in_background};
use crate::exchange::replay::own_list;
use crate::exchange::replay::retry::{self, is_safe, recovered};
use crate::exchange::reply::Reply;
use crate::exchange::send::{self, Attempt, Request, SentRequest};
use crate::exchange::stream::relay::Relay;
use crate::exchange::tool_filter;
use crate::leg::Leg;
use crate::upstream::{LiveError, Repeat, UpstreamError};

/// Sends a request over its session's leg until it is answered.
pub(crate) fn answer(
    request: Request<'_>,
) -> impl Future<Output = Result<Reply<Relay>, UpstreamError>> {
    let session = request.session;
    session.note_request(&request.message);
    let leg = session.leg();
    let timeout = CallTimeout::of(session, &request.call);
    let sent_request = SentRequest::first(&request);
    send_until_answered(request, leg, sent_request, timeout)
}

/// Sends a request again whose response broke on the leg `old`.
pub(crate) async fn answer_again(
    request: Request<'_>,
    old: &Arc<Leg>,
    leg: Arc<Leg>,
    timeout: Option<CallTimeout>,
) -> Result<Reply<Relay>, UpstreamError> {
    // It is not running in a new generation.
    let is_running = old.generation == leg.generation;
    if !is_running {
        request.call.forget_ids();
    }
    let mut sent_request = SentRequest {
        continues_stream: true,
        ..SentRequest::first(&request)
    };
    if is_running {
        sent_request = sent_request.again(&request);
    }
    send_until_answered(request, leg, sent_request, timeout).await
}

async fn send_until_answered(
    request: Request<'_>,
    mut leg: Arc<Leg>,
    mut sent_request: SentRequest,
    mut timeout: Option<CallTimeout>,
) -> Result<Reply<Relay>, UpstreamError> {
    let Request {
        session, message, ..
    } = &request;
    if sent_request.is_restorable
        && let Err(full) = session.client_state.has_room_for(message)
    {
        return Ok(Reply::refusal(session, message, &full.into()));
    }
    if leg.is_lost() {
        if let Err(refused) = tool_filter::check_call(&leg, message) {
            return Ok(Reply::refusal(session, message, &refused));
        }
        let recovering = recovered(&request, &leg, Cause::Lost);
        let recovering = recovery::within(&mut timeout, session, &leg, request.carried, recovering);
        leg = Box::pin(recovering).await?;
    }
    let reply = loop {
        if !leg.missing_lists.is_nothing()
            && let Some(result) = leg.missing_lists.empty_list(message.method())
        {
            return Ok(Reply::result(message, result));
        }
        // For each attempt, because the operator may change the filter in between.
        if let Err(refused) = tool_filter::check_call(&leg, message) {
            return Ok(Reply::refusal(session, message, &refused));
        }
        if let Some(listing) = own_list::before_call(&request, &leg) {
            Box::pin(listing.wait(&request, &leg)).await?;
        }
        request.call.mark_sent(session.upstream.tool_hints.now());
        let response = attempt(&request, &leg, &mut sent_request);
        // Wrapping copies the future, and most calls have no timeout.
        let answered = match timeout {
            None => response.await,
            Some(_) => Box::pin(CallTimeout::within(&mut timeout, response)).await,
        };
        let error = match answered {
            Ok(reply) => break reply.with_timeout(timeout.take()),
            Err(error) => error,
        };
        if matches!(error, UpstreamError::Live(LiveError::IdTaken)) && sent_request.own_id.is_none()
        {
            // By a call at another gateway, or by one that was cancelled and may still be answered.
            sent_request = sent_request.again(&request);
            if sent_request.own_id.is_some() {
                continue;
            }
        }
        // Boxed, like all rare paths: a request's future is as large as its largest part.
        let after = retry::after(&request, &leg, error);
        let after = recovery::within(&mut timeout, session, &leg, request.carried, after);
        let next = Box::pin(after).await?;
        if next.generation == leg.generation {
            // The upstream may still run the first request, so the second needs another id.
            sent_request = sent_request.again(&request);
        }
        leg = next;
    };
    Ok(finish(&request, &leg, &sent_request, reply).await)
}

/// Completes the bookkeeping before the client sees the response.
async fn finish(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    sent_request: &SentRequest,
    reply: Reply<Relay>,
) -> Reply<Relay> {
    let reply = match sent_request.is_restorable {
        true => Box::pin(remember(request, leg, reply)).await,
        false => reply,
    };
    if sent_request.lesson.is_listing()
        && let Some(written) = request.session.tools_written()
    {
        // Invalidated tool hints are stored before the client gets the list, because the gateway may be
        // killed in between.
        _ = written.await;
    }
    match reply {
        Reply::Stream(Relay::Events(events)) if !sent_request.continues_stream => {
            Reply::events(events).await
        }
        reply => reply,
    }
}

/// Sends the request once, and once more where it is redirected to, if it may run twice.
async fn attempt(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    sent_request: &mut SentRequest,
) -> Result<Reply<Relay>, UpstreamError> {
    let answered = match send::once(request, leg, sent_request, Repeat::Unsafe).await {
        Err(error @ UpstreamError::RedirectedAfter(_)) => {
            match Box::pin(may_run_again(request, leg)).await? {
                true => Box::pin(send::once(request, leg, sent_request, Repeat::Safe)).await?,
                false => return Err(error),
            }
        }
        answered => answered?,
    };
    let Attempt {
        reply,
        may_deny_session,
    } = answered;
    if may_deny_session {
        recover_in_background(request.session, leg, Cause::Unproven, request.carried);
    }
    Ok(reply)
}

/// Whether a request may be sent where it was redirected to, although it may have run here.
async fn may_run_again(request: &Request<'_>, leg: &Arc<Leg>) -> Result<bool, UpstreamError> {
    let is_safe = || {
        let sent = request.call.sent_in();
        is_safe(request.session, &request.message, leg, sent)
    };
    Ok(is_safe().await && own_list::confirms(request, leg).await? && is_safe().await)
}

/// Remembers what the server has accepted: now, or when the response arrives on the stream.
async fn remember(request: &Request<'_>, leg: &Arc<Leg>, mut reply: Reply<Relay>) -> Reply<Relay> {
    let Some(memory) = Memory::of(&request.message, request.carried) else {
        return reply;
    };
    match &mut reply {
        Reply::Message { body, .. } if is_result(body) => {
            memory.remember(request.session, leg).await;
        }
        Reply::Stream(Relay::Events(events)) => events.remembers(memory),
        _ => {}
    }
    reply
}
