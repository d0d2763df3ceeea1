//! Opening a leg: the client's `initialize`, sent as it came, without any session id.

use std::sync::{Arc, OnceLock};

use bowline_wire::id::UpstreamSessionId;
use bowline_wire::message::Message;
use bowline_wire::version::Agreed;
use bowline_wire::{header, media};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::relay::EventRelay;
use super::rewrite::Rewrite;
use super::send::{MAX_HELD_ANSWER, Reply};
use super::{Leg, LegRef};
use crate::body::{Sent, read_limited};
use crate::egress::Jar;
use crate::oauth::Account;
use crate::session::{Born, Lacks, Offered, Seal};
use crate::upstream::{Answer, Carried, Link, Upstream, UpstreamError};

/// What came of `initialize`.
#[derive(Debug)]
pub(crate) struct First {
    /// The leg, unless the server declined.
    pub(crate) leg: Option<Leg>,
    /// What the server offers.
    pub(crate) offered: Offered,
    /// The server's answer, for the client.
    pub(crate) reply: Reply,
}

/// Sends `initialize` to a healthy endpoint and waits until the server's answer to it is known.
pub(crate) async fn open(
    (upstream, account): (Arc<Upstream>, Option<Arc<Account>>),
    message: Message,
    carried: &Carried,
    seal: &Seal,
    sent: Sent,
) -> Result<First, UpstreamError> {
    let jar = Mutex::new(Jar::default());
    let (endpoint, answer) = loop {
        let endpoint = upstream.pick().await?;
        let link = Link {
            endpoint: &endpoint,
            session_id: None,
            version: None,
            jar: &jar,
            carried,
            account: account.as_deref(),
        };
        match upstream
            .post(link, message.raw().clone(), sent.clone())
            .await
        {
            // Nothing was sent, and the endpoint takes no sessions for now: another may.
            Err(UpstreamError::NoAnswer(error))
                if error.nobody_there() && upstream.has_well_endpoint() => {}
            answered => break (endpoint, answered?),
        }
    };
    if answer.status != StatusCode::OK {
        let status = answer.status;
        let reply = Reply::whole(answer).await;
        let reply = reply.map_err(|_| UpstreamError::NotOpened(status))?;
        return Ok(First::declined(reply));
    }
    let issued = issued_id(&answer.headers);
    let (answer, reply) = read_result(answer, &message, seal).await?;
    let Some(result) = answer.initialized() else {
        return Ok(First::declined(reply.into_held()));
    };
    let version = Agreed::on(&result.version).ok_or(UpstreamError::BadInitialize)?;
    if let (Some(account), Some(result)) = (&account, answer.result()) {
        account.remember_initialized(result);
    }
    let leg = Leg {
        session_id: issued?,
        upstream,
        endpoint,
        at: LegRef::FIRST,
        version,
        jar,
        sign_in: account.as_ref().map_or(0, |account| account.sent()),
        account,
        lacks: Lacks::default(),
        lost: false.into(),
        farewell: OnceLock::new(),
    };
    Ok(First {
        leg: Some(leg),
        offered: Offered::of(result.capabilities()),
        reply,
    })
}

impl First {
    fn declined(reply: Reply) -> Self {
        Self {
            leg: None,
            offered: Offered::default(),
            reply,
        }
    }
}

/// The id that the server issued, if it did; two of them would be two servers' word for one thing.
pub(super) fn issued_id(headers: &HeaderMap) -> Result<Option<UpstreamSessionId>, UpstreamError> {
    let mut ids = headers.get_all(header::SESSION_ID).iter();
    match (ids.next(), ids.next()) {
        (None, _) => Ok(None),
        (Some(id), None) => Ok(Some(UpstreamSessionId::issued(id)?)),
        (Some(_), Some(_)) => Err(UpstreamError::SeveralSessionIds),
    }
}

/// The answer to an `initialize` of our own.
pub(super) async fn initialized(answer: Answer, id: &str) -> Result<Message, UpstreamError> {
    let seal = Seal::generate().map_err(|_| UpstreamError::BadInitialize)?;
    let (message, _) = read_answer(answer, id, &seal).await?;
    Ok(message)
}

/// Reads up to the answer, which may come as one message or among events.
async fn read_result(
    answer: Answer,
    request: &Message,
    seal: &Seal,
) -> Result<(Message, Reply), UpstreamError> {
    read_answer(answer, request.id().unwrap_or_default(), seal).await
}

async fn read_answer(
    answer: Answer,
    id: &str,
    seal: &Seal,
) -> Result<(Message, Reply), UpstreamError> {
    if answer.is(media::EVENT_STREAM) {
        let born = Born::Request(id.into());
        let rewrite = Rewrite::new(seal.clone(), LegRef::FIRST, born);
        let mut events = Box::new(EventRelay::new(answer.body, rewrite));
        let message = events.until_answer(id).await?;
        return Ok((message, Reply::events(events, || None).await));
    }
    let content_type = answer.content_type().cloned();
    let whole: Bytes = read_limited(answer.body, MAX_HELD_ANSWER).await?;
    let message = Message::parse(whole.clone()).map_err(|_| UpstreamError::BadInitialize)?;
    if message.id() != Some(id) {
        return Err(UpstreamError::BadInitialize);
    }
    let reply = Reply::Whole {
        status: StatusCode::OK,
        content_type,
        body: whole,
    };
    Ok((message, reply))
}
