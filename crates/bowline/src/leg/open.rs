//! Opening a leg: the client's `initialize`, sent as it came, without any session id.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_wire::id::UpstreamSessionId;
use bowline_wire::message::Message;
use bowline_wire::version::Agreed;
use bowline_wire::{header, media};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::budget::{Budget, errand, moment};
use super::relay::EventRelay;
use super::reserved::Reserved;
use super::restore::retry_after;
use super::rewrite::Rewrite;
use super::send::{MAX_HELD_ANSWER, Reply};
use super::{Leg, LegRef, StreamError};
use crate::body::{ReadError, Sent, read_limited};
use crate::egress::{EgressError, Jar, WireError};
use crate::oauth::Account;
use crate::session::{Born, Lacks, Offered, Seal};
use crate::upstream::{Answer, Carried, Link, Pin, Repeat, Upstream, UpstreamError};

/// How much of the budget an endpoint may be silent for before it is looked into.
const SILENCE: u32 = 6;

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

/// What is sent, for whom, and where to.
struct Opening<'a> {
    upstream: Arc<Upstream>,
    account: Option<Arc<Account>>,
    message: Message,
    carried: &'a Carried,
    seal: &'a Seal,
    sent: Sent,
}

/// Why an attempt failed.
enum Failed {
    /// Another may do better, after a time that the server may have asked for.
    ForNow(UpstreamError, Option<Duration>),
    /// No other will.
    ForGood(UpstreamError),
}

/// Sends `initialize` to a healthy endpoint and waits until the server's answer to it is known. Where
/// its connection breaks, or somebody on the way answers in the server's place, it goes elsewhere, or
/// there again: at worst a session is left at a server that nobody will use.
pub(crate) async fn open(
    (upstream, account): (Arc<Upstream>, Option<Arc<Account>>),
    message: Message,
    carried: &Carried,
    seal: &Seal,
    sent: Sent,
) -> Result<First, UpstreamError> {
    let server = upstream.server();
    let total = server.recovery.budget;
    let mut budget = Budget::new(total, total);
    let a_moment = Instant::now() + moment(&server);
    let opening = Opening {
        upstream,
        account,
        message,
        carried,
        seal,
        sent,
    };
    let mut failed: Option<(Pin, UpstreamError)> = None;
    let mut asked_for = None;
    while budget.next_attempt(asked_for.take()).await {
        let upstream = &opening.upstream;
        let before = failed.as_ref().map(|(endpoint, _)| &**endpoint);
        let endpoint = match upstream.pick_but(before).await {
            Ok(endpoint) => endpoint,
            // Where somebody is there, a rest is short for those who need it.
            Err(UpstreamError::Unavailable(ailment))
                if failed.is_some() || (ailment.is_passing() && Instant::now() < a_moment) =>
            {
                upstream.endpoints.are_needed();
                continue;
            }
            Err(error) => return Err(error),
        };
        let error = match opening.attempt_within(&endpoint, total / SILENCE).await {
            Ok(first) => return Ok(first),
            Err(Failed::ForGood(error)) => return Err(error),
            Err(Failed::ForNow(error, after)) => {
                asked_for = after;
                error
            }
        };
        if opening.sent.client_left() {
            return Err(error);
        }
        // Where nobody was there from the beginning, and nobody is elsewhere, that is the answer.
        let is_absent = match &error {
            UpstreamError::NoAnswer(error) => error.nobody_there(),
            UpstreamError::Unavailable(_) => true,
            _ => false,
        };
        if is_absent && failed.is_none() && !upstream.has_well_endpoint() {
            return Err(error);
        }
        tracing::debug!(server = %upstream.name, endpoint = %endpoint.origin, %error, "`initialize` failed");
        failed = Some((endpoint, error));
    }
    Err(match failed {
        Some((_, error)) => UpstreamError::NotOpenedInTime(error.to_string().into()),
        None => UpstreamError::NotOpenedInTime("there was no time for it".into()),
    })
}

// === impl Opening ===

impl Opening<'_> {
    /// One attempt. An endpoint that is silent for long is looked into, and is not waited for where
    /// another could do it.
    async fn attempt_within(&self, endpoint: &Pin, silence: Duration) -> Result<First, Failed> {
        let answers = endpoint.health.answers();
        let mut attempt = Box::pin(self.attempt(endpoint));
        tokio::select! {
            biased;
            opened = &mut attempt => return opened,
            () = tokio::time::sleep(silence) => {}
        }
        let upstream = &self.upstream;
        if endpoint.health.answers() == answers {
            let (looking, endpoint) = (Arc::clone(upstream), endpoint.again());
            upstream.tracker().spawn(async move {
                looking.look_into_silence(&endpoint, silence).await;
            });
        }
        if upstream.has_well_endpoint_but(endpoint) {
            upstream.note_silence(endpoint, "it did not answer `initialize` in time");
            let error = UpstreamError::InitializeTimeout(silence);
            return Err(Failed::ForNow(error, None));
        }
        attempt.await
    }

    async fn attempt(&self, endpoint: &Pin) -> Result<First, Failed> {
        let (upstream, account) = (&self.upstream, &self.account);
        let jar = Mutex::new(Jar::default());
        let link = Link {
            endpoint,
            session_id: None,
            version: None,
            jar: &jar,
            carried: self.carried,
            account: account.as_deref(),
            sign_in: None,
            repeat: Repeat::Safe,
        };
        let posted = upstream
            .post(link, self.message.raw().clone(), self.sent.clone())
            .await;
        let answer = posted.map_err(Failed::of)?;
        if answer.status != StatusCode::OK {
            return self.declined(answer).await;
        }
        let issued = issued_id(&answer.headers);
        let orphan = issued
            .as_ref()
            .ok()
            .and_then(Option::as_ref)
            .map(|id| Orphan {
                upstream: Arc::clone(upstream),
                endpoint: endpoint.again(),
                session_id: id.clone(),
                jar: jar.lock().clone(),
                account: account.clone(),
                sign_in: account.as_ref().map_or(0, |account| account.sent()),
                carried: self.carried.clone(),
                is_known: false,
            });
        let read = read_result(answer, &self.message, self.seal, &upstream.reserved).await;
        let (answer, reply) = read.map_err(Failed::of)?;
        let Some(result) = answer.initialized() else {
            orphan.into_iter().for_each(Orphan::adopt);
            return Ok(First::declined(reply.into_held()));
        };
        let version = Agreed::on(&result.version)
            .ok_or(UpstreamError::BadInitialize)
            .map_err(Failed::ForGood)?;
        if let (Some(account), Some(result)) = (account, answer.result()) {
            account.remember_initialized(result);
        }
        let leg = Leg {
            session_id: issued.map_err(Failed::ForGood)?,
            upstream: Arc::clone(upstream),
            endpoint: endpoint.again(),
            at: LegRef::FIRST,
            version,
            jar,
            sign_in: account.as_ref().map_or(0, |account| account.sent()),
            account: account.clone(),
            lacks: Lacks::default(),
            lost: false.into(),
            farewell: OnceLock::new(),
        };
        orphan.into_iter().for_each(Orphan::adopt);
        Ok(First {
            leg: Some(leg),
            offered: Offered::of(result.capabilities()),
            reply,
        })
    }

    /// Any other answer than 200: the server's own, for the client, or that of somebody on the way.
    async fn declined(&self, answer: Answer) -> Result<First, Failed> {
        let (status, asked_for) = (answer.status, retry_after(&answer.headers));
        let is_about_the_way = matches!(
            status,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
        );
        match Reply::whole(answer).await {
            Ok(reply) if !is_about_the_way || reply.is_message() => Ok(First::declined(reply)),
            _ if is_about_the_way => {
                let error = UpstreamError::NotOpened(status);
                Err(Failed::ForNow(error, asked_for))
            }
            _ => Err(Failed::ForGood(UpstreamError::NotOpened(status))),
        }
    }
}

// === impl Failed ===

impl Failed {
    fn of(error: UpstreamError) -> Self {
        let may_pass = match &error {
            UpstreamError::NoAnswer(EgressError::OutOfSockets(_)) => false,
            // What is not HTTP/1.1 will not be the next time.
            UpstreamError::NoAnswer(EgressError::Broken(broken)) => {
                matches!(broken, WireError::Io(_) | WireError::Closed)
            }
            UpstreamError::NoAnswer(_) | UpstreamError::Unavailable(_) => true,
            UpstreamError::BadBody(ReadError::Broken(_)) => true,
            UpstreamError::Stream(error) => matches!(
                error,
                StreamError::Broken(_) | StreamError::Cut | StreamError::NoAnswer
            ),
            _ => false,
        };
        match may_pass {
            true => Self::ForNow(error, None),
            false => Self::ForGood(error),
        }
    }
}

/// An upstream session that nobody will use: unless it is adopted, it is ended.
struct Orphan {
    upstream: Arc<Upstream>,
    endpoint: Pin,
    session_id: UpstreamSessionId,
    jar: Jar,
    account: Option<Arc<Account>>,
    sign_in: u64,
    carried: Carried,
    is_known: bool,
}

impl Orphan {
    fn adopt(mut self) {
        self.is_known = true;
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        if self.is_known {
            return;
        }
        let upstream = Arc::clone(&self.upstream);
        let (endpoint, session_id) = (self.endpoint.again(), self.session_id.clone());
        let jar = Mutex::new(std::mem::take(&mut self.jar));
        let (account, carried) = (self.account.take(), std::mem::take(&mut self.carried));
        let sign_in = self.sign_in;
        let tracker = upstream.tracker().clone();
        let limit = errand(&upstream.server().recovery);
        tracker.spawn(tokio::time::timeout(limit, async move {
            let link = Link {
                endpoint: &endpoint,
                session_id: Some(&session_id),
                version: None,
                jar: &jar,
                carried: &carried,
                account: account.as_deref(),
                sign_in: Some(sign_in),
                repeat: Repeat::Safe,
            };
            upstream.delete(link).await.is_ok()
        }));
    }
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
pub(super) async fn initialized(
    answer: Answer,
    id: &str,
    reserved: &Reserved,
) -> Result<Message, UpstreamError> {
    let seal = Seal::generate().map_err(|_| UpstreamError::BadInitialize)?;
    let (message, _) = read_answer(answer, id, &seal, reserved).await?;
    Ok(message)
}

/// Reads up to the answer, which may come as one message or among events.
async fn read_result(
    answer: Answer,
    request: &Message,
    seal: &Seal,
    reserved: &Reserved,
) -> Result<(Message, Reply), UpstreamError> {
    read_answer(answer, request.id().unwrap_or_default(), seal, reserved).await
}

async fn read_answer(
    answer: Answer,
    id: &str,
    seal: &Seal,
    reserved: &Reserved,
) -> Result<(Message, Reply), UpstreamError> {
    if answer.is(media::EVENT_STREAM) {
        let born = Born::Request(id.into());
        let rewrite = Rewrite::new(seal.clone(), LegRef::FIRST, born, reserved.clone());
        let mut events = Box::new(EventRelay::new(answer.body, rewrite));
        let message = events.until_answer(id).await?;
        return Ok((message, Reply::events(events, || None).await));
    }
    let content_type = answer.content_type().cloned();
    let whole: Bytes = read_limited(answer.body, MAX_HELD_ANSWER).await?;
    let message = Message::parse(whole.clone()).map_err(|_| UpstreamError::BadInitialize)?;
    if !message.answers(id) {
        return Err(UpstreamError::BadInitialize);
    }
    let reply = Reply::Whole {
        status: StatusCode::OK,
        content_type,
        body: whole,
    };
    Ok((message, reply))
}
