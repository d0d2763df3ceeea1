//! Answers with an error status: reads them, and turns what the judge says into an answer or an error.

use std::time::Duration;

use bowline_egress::read_limited;
use bowline_system::printable::is_unprintable;
use bowline_wire::message::{Kind, Message, RawId, RawIdBuf, echoes_id};
use bowline_wire::sse::Decoder;
use bowline_wire::{batch, media};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use serde::de::IgnoredAny;

use super::fingerprint::{is_fingerprint, is_suspect};
use crate::config::Recovery;
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::upstream::transports::answer::{Answer, WholeBody};
use crate::upstream::transports::error::{Declined, UpstreamError};
use crate::upstream::transports::judge::{self, Content, Facts, Stream, Verdict};
use crate::upstream::transports::limits::{MAX_BATCH, MAX_HELD_ANSWER};
use crate::upstream::transports::outcome::{SentAs, Whole};

/// The largest answer that can be a fingerprint, and how long it may take to arrive when no client
/// waits for it.
const MAX_FINGERPRINT: usize = 64 * 1024;
const FINGERPRINT_TIMEOUT: Duration = Duration::from_secs(1);

/// How many characters of a refusal's prose are passed on.
const MAX_PROSE: usize = 500;

/// Whether an answer must be judged by its body.
pub(crate) fn wants_judging(answer: &Answer, recovery: &Recovery) -> bool {
    !answer.status.is_success()
        || (answer.status != StatusCode::OK && is_suspect(&recovery.fingerprints, answer.status))
}

/// Reads an answer and decides whether it is the server's own, for the client, or a failure.
pub(crate) async fn judge(
    answer: Answer,
    request: &Message,
    recovery: &Recovery,
) -> Result<Whole, UpstreamError> {
    let refusal = Refusal::read(answer, request.id(), recovery).await?;
    refusal.judged(Stream::None).into_whole()
}

/// What an answer with an error status means.
pub(in crate::upstream::transports) enum Judged {
    Answer(Whole),
    Failed(UpstreamError),
    /// The stream may still have the answer.
    Listen(Refusal),
}

impl Judged {
    /// The answer or the error, where no stream is left to be waited for.
    pub(in crate::upstream::transports) fn into_whole(self) -> Result<Whole, UpstreamError> {
        match self {
            Self::Answer(whole) => Ok(whole),
            Self::Failed(error) => Err(error),
            Self::Listen(refusal) => Err(refusal.into_unknown()),
        }
    }
}

/// An answer with an error status.
pub(in crate::upstream::transports) struct Refusal {
    status: StatusCode,
    named_session: bool,
    has_challenge: bool,
    is_json: bool,
    retry_after: Option<HeaderValue>,
    /// The id of the request.
    asked: Option<RawIdBuf>,
    /// The body, if it was read whole.
    body: Result<Bytes, UpstreamError>,
}

impl Refusal {
    /// Reads an answer. An error is a sign of a lost session that the operator wrote down.
    pub(in crate::upstream::transports) async fn read(
        mut answer: Answer,
        asked: Option<RawId<'_>>,
        recovery: &Recovery,
    ) -> Result<Self, UpstreamError> {
        let status = answer.status;
        let read = answer.read(recovery).await;
        if let Ok(body) = &read
            && is_fingerprint(&recovery.fingerprints, status, &body.bytes)
        {
            return Err(UpstreamError::Fingerprint(status));
        }
        let body = read.and_then(|body| answer.readable(body));
        Ok(Self {
            status,
            named_session: answer.named_session(),
            has_challenge: answer.has_challenge(),
            is_json: answer.is(media::JSON),
            retry_after: answer.headers.get(RETRY_AFTER).cloned(),
            asked: asked.map(RawId::to_buf),
            body,
        })
    }

    /// What it means, with what the stream has done.
    pub(in crate::upstream::transports) fn judged(self, stream: Stream) -> Judged {
        let content = self.content();
        #[cfg(feature = "planted")]
        if let Some(error) = self.planted(content) {
            return Judged::Failed(error);
        }
        let verdict = judge::judge(Facts {
            status: self.status,
            content,
            has_challenge: self.has_challenge,
            names_session: self.named_session,
            stream,
        });
        match verdict {
            Verdict::Answer { may_deny_session } => self.into_answer(may_deny_session),
            Verdict::Lost => Judged::Failed(UpstreamError::SessionLost),
            Verdict::Declined { may_deny_session } => {
                Judged::Failed(self.declined(may_deny_session))
            }
            Verdict::Unknown => Judged::Failed(self.into_unknown()),
            Verdict::Listen => Judged::Listen(self),
        }
    }

    #[cfg(feature = "planted")]
    fn planted(&self, content: Content) -> Option<UpstreamError> {
        let is_own = matches!(content, Content::Own(_));
        let lost = || Some(UpstreamError::SessionLost);
        match (self.status.as_u16(), is_own) {
            (404, true) if planted::has(Bug::Own404IsLost) => lost(),
            (400 | 410, true) if planted::has(Bug::Own400IsLost) => lost(),
            (400, false) if planted::has(Bug::Plain400IsLost) => lost(),
            (404, false) if planted::has(Bug::Page404Passes) => Some(self.declined(false)),
            (401 | 403, true) if planted::has(Bug::Own403IsRefused) => Some(self.declined(false)),
            (400..500, true)
                if self.retry_after.is_some() && planted::has(Bug::OwnAnswerMustWait) =>
            {
                Some(self.declined(false))
            }
            _ => None,
        }
    }

    fn content(&self) -> Content {
        let Ok(body) = &self.body else {
            return Content::Unreadable;
        };
        let asked = self.asked.as_ref().map(RawIdBuf::as_id);
        if asked.is_some_and(|id| echoes(body, id)) {
            return Content::Own(message(body).and_then(|message| message.error_code()));
        }
        match self.is_json && message(body).is_some() {
            true => Content::Unaddressed,
            false => Content::Foreign,
        }
    }

    /// What the client gets: of several messages only the answer, because a server's request among
    /// them would lack its mark. Statuses on which a client acts by itself are not passed on: it would
    /// open another session, sign in here, or send it again.
    fn into_answer(self, may_deny_session: bool) -> Judged {
        let body = match self.body {
            Ok(body) => body,
            Err(error) => return Judged::Failed(error),
        };
        let members = match batch::is_batch(&body) {
            true => batch::split(&body, MAX_BATCH).unwrap_or_default(),
            false => Vec::new(),
        };
        let asked = self.asked.as_ref().map(RawIdBuf::as_id);
        let is_answer = |member: &Bytes| asked.is_some_and(|id| echoes_id(member, id));
        let answer = members.into_iter().find(is_answer);
        let (status, own) = (self.status, SentAs::own());
        let is_acted_on = status == StatusCode::NOT_FOUND
            || status.is_redirection()
            || judge::is_about_credentials(status);
        Judged::Answer(Whole {
            body: answer.unwrap_or(body),
            sent_as: match is_acted_on {
                true => own,
                false => SentAs {
                    status,
                    retry_after: self.retry_after.map(Box::new),
                    ..own
                },
            },
            may_deny_session,
        })
    }

    /// The error, if it is not the answer to the request and the request did not run.
    fn declined(&self, may_deny_session: bool) -> UpstreamError {
        let body = self.body.as_ref().ok();
        let is_relayed =
            |body: &&Bytes| !judge::is_about_credentials(self.status) && message(body).is_some();
        UpstreamError::Declined(Box::new(Declined {
            status: self.status,
            may_deny_session,
            body: body.filter(is_relayed).cloned(),
            text: body.and_then(prose),
            retry_after: self.retry_after.clone(),
        }))
    }

    /// The error, if it proves nothing.
    pub(in crate::upstream::transports) fn into_unknown(self) -> UpstreamError {
        let status = self.status;
        self.body.err().unwrap_or(UpstreamError::NotMcp(status))
    }
}

// === impl Answer ===

impl Answer {
    /// Whether it is the server's own answer to this message.
    pub(super) async fn is_own(
        &mut self,
        message: &Bytes,
        recovery: &Recovery,
    ) -> Result<bool, UpstreamError> {
        let asked = Message::parse(message.clone()).ok();
        let Some(id) = asked.as_ref().and_then(Message::id) else {
            return Ok(false);
        };
        let body = self.read(recovery).await?;
        Ok(echoes(&self.readable(body)?, id))
    }

    /// Its body as one message or an array, or as what is no message at all. Otherwise it may be
    /// incomplete, or in a format that only the client can read.
    fn readable(&self, body: WholeBody) -> Result<Bytes, UpstreamError> {
        let (body, ended_with_connection) = (body.bytes, body.ended_with_connection);
        let is_whole = !(ended_with_connection && body.is_empty());
        let readable = match self.is(media::EVENT_STREAM) {
            true => joined_events(body),
            false => Some(body).filter(is_readable),
        };
        let readable = readable.filter(|_| is_whole);
        readable.ok_or(UpstreamError::NotMcp(self.status))
    }
}

/// Whether a body contains the answer to the request with this id.
fn echoes(body: &Bytes, id: RawId<'_>) -> bool {
    if !batch::is_batch(body) {
        return echoes_id(body, id);
    }
    let members = batch::split(body, MAX_BATCH).unwrap_or_default();
    members.iter().any(|member| echoes_id(member, id))
}

fn message(body: &Bytes) -> Option<Message> {
    let message = Message::parse(body.clone()).ok();
    message.filter(|message| message.kind() == Kind::Response)
}

/// The beginning of what an intermediary or a server says about its refusal, on one line. Pages are for browsers.
fn prose(body: &Bytes) -> Option<Box<str>> {
    let text = String::from_utf8_lossy(body);
    if text.trim_start().starts_with('<') {
        return None;
    }
    let words = text.split(|c: char| c.is_whitespace() || is_unprintable(c));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let line: String = words.join(" ").chars().take(MAX_PROSE).collect();
    (!line.is_empty()).then(|| line.into())
}

/// Whether a body can be a complete answer: valid JSON, or not JSON at all. A truncated JSON body
/// is neither.
pub(crate) fn is_readable(body: &Bytes) -> bool {
    let text = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
    match text.trim_ascii_start().first() {
        Some(b'{' | b'[') => serde_json::from_slice::<IgnoredAny>(text).is_ok(),
        // NUL bytes are a sign of UTF-16.
        _ => !body.contains(&0),
    }
}

/// The messages of a stream of events: one message, or an array of all. `None` if the stream is
/// truncated or cannot be parsed.
fn joined_events(body: Bytes) -> Option<Bytes> {
    let mut events = Decoder::new(MAX_HELD_ANSWER);
    events.push(body);
    let mut messages = Vec::new();
    while let Some(event) = events.next_event().ok()? {
        messages.extend(event.data().filter(|data| !data.is_empty()));
    }
    if !events.is_between_events() || !messages.iter().all(is_readable) {
        return None;
    }
    Some(match messages.len() {
        1 => messages.remove(0),
        _ => [&b"["[..], &messages.join(&b","[..]), b"]"].concat().into(),
    })
}

/// Whether an answer with a success status, which no client waits for, is a fingerprint.
pub(crate) async fn says_lost(answer: Answer, recovery: &Recovery) -> bool {
    let status = answer.status;
    if !is_suspect(&recovery.fingerprints, status) {
        answer.read_out().await;
        return false;
    }
    let is_events = answer.is(media::EVENT_STREAM);
    let reading = read_limited(answer.body, MAX_FINGERPRINT);
    let Ok(Ok(body)) = tokio::time::timeout(FINGERPRINT_TIMEOUT, reading).await else {
        return false;
    };
    let is_one = |body: &Bytes| is_fingerprint(&recovery.fingerprints, status, body);
    if !is_events {
        return is_one(&body);
    }
    let mut events = Decoder::new(MAX_FINGERPRINT);
    events.push(body);
    while let Ok(Some(event)) = events.next_event() {
        if event.data().as_ref().is_some_and(is_one) {
            return true;
        }
    }
    false
}

/// Judges the answer to a message without an id, which no answer could echo.
pub(crate) async fn judge_notification(
    answer: Answer,
    recovery: &Recovery,
) -> Result<Option<Whole>, UpstreamError> {
    match read_notified(answer, recovery).await? {
        None => Ok(None),
        Some(refusal) => refusal.judged(Stream::None).into_whole().map(Some),
    }
}

/// Reads the answer to a message without an id, if it is not a success.
pub(in crate::upstream::transports) async fn read_notified(
    answer: Answer,
    recovery: &Recovery,
) -> Result<Option<Refusal>, UpstreamError> {
    let status = answer.status;
    if status.is_success() {
        return match says_lost(answer, recovery).await {
            true => Err(UpstreamError::Fingerprint(status)),
            false => Ok(None),
        };
    }
    Refusal::read(answer, None, recovery).await.map(Some)
}
