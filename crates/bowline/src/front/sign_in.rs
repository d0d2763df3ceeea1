//! A request whose caller has to sign in: its client is asked in the way that it can be, and the
//! request goes on once somebody has.
//!
//! A client that declared elicitation is asked on the stream of the very request that needs it, which
//! is held for a while. One that did not is told in words: by a tool `sign_in`, whose result is the
//! link, and by an error that has it.

use std::future::poll_fn;
use std::sync::Arc;

use bowline_wire::message::Message;
use bowline_wire::sse::event_of;
use bowline_wire::{media, version};
use http::{HeaderValue, Response, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::elicited::Elicited;
use super::exchange::{Exchange, stream_key, stream_place};
use super::question::{mark, question, withdrawn};
use super::reply::{self, ReplyBody, StreamBody};
use crate::body::Sent;
use crate::detach::see_through;
use crate::fault::{Fault, codes};
use crate::gateway::Shared;
use crate::leg::{self, LegRef, MAX_HELD_ANSWER, Relay, Reply, StreamError};
use crate::oauth::{Account, Asking, Asks, End, Flow, FlowId, SignInError, SignIns, Wanted};
use crate::session::{Call, LiveStream, Session, Source};
use crate::upstream::{Carried, UpstreamError};

/// The tool of a server whose caller cannot be asked otherwise.
const TOOL: &str = "sign_in";

/// The error that a client gets which may come back when the sign-in is done (2025-11-25).
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// How a client said that it can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Means {
    /// With a link, which its user opens.
    Link,
    /// With a form.
    Form,
    /// Not at all.
    Words,
}

/// A request that waits for somebody to sign in.
struct Wait {
    shared: Arc<Shared>,
    session: Arc<Session>,
    account: Arc<Account>,
    message: Message,
    carried: Carried,
    /// How long it is held, whatever number of questions that takes.
    until: Instant,
}

/// Asks for the sign-in that `message` needs.
pub(super) async fn ask(
    exchange: Exchange,
    message: Message,
    wanted: Arc<Wanted>,
) -> Result<Response<ReplyBody>, Fault> {
    let session = Arc::clone(exchange.in_use.session());
    let Some(account) = session.upstream.account(&session.caller) else {
        return Err(session.leg().fault(UpstreamError::SignIn(wanted)));
    };
    let sign_ins = Arc::clone(&account.sign_ins);
    if is_own_tool(&message)
        && let Err(error) = sign_ins.ask_again(&account).await
    {
        tracing::debug!(%error, "a declined sign-in is still remembered");
    }
    let server = session.upstream.server();
    let call = Call::begin(&session, message.id().unwrap_or_default());
    let begun = tokio::select! {
        biased;
        () = call.cancelled() => return Err(session.leg().fault(UpstreamError::Cancelled)),
        begun = sign_ins.begin(&account, &server, &wanted) => begun,
    };
    drop(call);
    let flow = match begun {
        Ok(flow) => flow,
        Err(error) => return Ok(told(&session, &message, None, &error.to_string())),
    };
    let (means, link) = (Means::of(&session, &flow), flow.link());
    if means == Means::Words || (is_own_tool(&message) && link.is_some()) {
        return Ok(told(&session, &message, link.as_deref(), why(&flow)));
    }
    held(exchange, message, account, &flow)
}

/// Why a request is not served that is not held.
fn why(flow: &Flow) -> &'static str {
    match &flow.asks {
        Asks::Authorization(_) => "the user has to sign in",
        Asks::Tokens { .. } => {
            "the client has to sign in by itself and hand over the tokens, for which it must be able to answer elicitations"
        }
        Asks::Client { .. } => {
            "the authorization server registers no clients; configure a client id for this server"
        }
    }
}

/// The request's answer as a stream that begins with the question and ends with the answer.
fn held(
    exchange: Exchange,
    message: Message,
    account: Arc<Account>,
    flow: &Flow,
) -> Result<Response<ReplyBody>, Fault> {
    let Exchange {
        shared,
        in_use,
        carried,
        ..
    } = exchange;
    let session = Arc::clone(in_use.session());
    let permit = Some(stream_place(&session.upstream, &session.share)?);
    let key = stream_key(&message);
    let abandoned = shared.abandoned(&session);
    let wait = Wait {
        shared,
        session: Arc::clone(&session),
        until: Instant::now() + account.sign_ins.settings().hold,
        account,
        message,
        carried,
    };
    let stream = Arc::new(LiveStream::new(wait.on(flow), None));
    session.attach(key, Arc::clone(&stream));
    let body = StreamBody::new(stream, in_use, abandoned, permit).with_heartbeat();
    let content_type = HeaderValue::from_static(media::EVENT_STREAM);
    Ok(reply::stream(StatusCode::OK, Some(content_type), body))
}

// === impl Wait ===

impl Wait {
    /// What the client hears while it waits for this flow: the question, if nobody else in the session
    /// asks it, and then what came of it.
    fn on(self, flow: &Flow) -> Source {
        let sign_ins = &self.account.sign_ins;
        let means = Means::of(&self.session, flow);
        let link = flow.link();
        if means == Means::Words {
            let id = self.message.id().unwrap_or_default();
            let told = error(id, codes::SIGN_IN_NEEDED, why(flow), link.as_deref());
            return Source::Last(event_of(told.as_bytes()));
        }
        let asking = sign_ins.ask(self.session.hash, flow);
        let asking = asking.and_then(|asking| {
            let request = self.message.id().unwrap_or_default();
            let mark = mark(&self.session, flow, request)?;
            Some((asking, mark))
        });
        let question = asking
            .as_ref()
            .map(|(_, mark)| question(sign_ins, flow, means, mark));
        let rest = Source::opening(self.through(flow.clone(), means, asking));
        match question {
            Some(question) => Source::Saying(event_of(question.as_bytes()), Box::new(rest)),
            None => rest,
        }
    }

    async fn through(
        self,
        flow: Flow,
        means: Means,
        asking: Option<(Asking, String)>,
    ) -> Result<Source, UpstreamError> {
        let sign_ins = Arc::clone(&self.account.sign_ins);
        let id = self.message.id().unwrap_or_default().to_owned();
        let call = Call::begin(&self.session, &id);
        let needed = |why: &str| {
            let told = error(&id, codes::SIGN_IN_NEEDED, why, None);
            Source::Last(event_of(told.as_bytes()))
        };
        let end = tokio::select! {
            biased;
            () = call.cancelled() => return Ok(Source::Ended),
            end = sign_ins.ended(&flow) => end,
            () = tokio::time::sleep_until(self.until) => {
                if let Some((asking, _)) = asking {
                    asking.stays();
                }
                if means == Means::Link {
                    tell_when_done(&self.session, &sign_ins, &flow);
                }
                let told = come_back(&id, &flow, means);
                return Ok(Source::Last(event_of(told.as_bytes())));
            }
        };
        drop(call);
        let withdrawn = asking.and_then(|(asking, mark)| {
            let withdrawn = asking.is_open().then(|| withdrawn(&mark));
            asking.stays();
            withdrawn
        });
        let rest = match end {
            Some(End::SignedIn) => self.go_on().await,
            Some(End::Declined { said }) => needed(&SignInError::Declined { said }.to_string()),
            Some(End::Failed(why)) => needed(&why),
            None => match self.account.waiting().await {
                Ok(Some(next)) => self.on(&next),
                Ok(None) => self.go_on().await,
                Err(error) => needed(&error.to_string()),
            },
        };
        Ok(match withdrawn {
            Some(withdrawn) => Source::Saying(event_of(withdrawn.as_bytes()), Box::new(rest)),
            None => rest,
        })
    }

    /// The request, now that somebody has signed in.
    async fn go_on(self) -> Source {
        let Self {
            shared,
            session,
            message,
            carried,
            ..
        } = self;
        let id: Option<Box<str>> = message.id().map(Into::into);
        if is_own_tool(&message) {
            let told = signed_in(id.as_deref().unwrap_or("null"), &session);
            return Source::Last(event_of(told.as_bytes()));
        }
        let (own, sent) = (Arc::clone(&session), Sent::default());
        let leaves = sent.clone();
        let asking = async move { leg::request(&own, message, &carried, leaves).await };
        let reply = see_through(asking, sent, shared.abandoned(&session)).await;
        match reply {
            Ok(Reply::Stream {
                relay: relay @ Relay::Events(_),
                ..
            }) => Source::Relay(relay),
            Ok(Reply::Whole {
                content_type, body, ..
            }) if media::is(content_type.as_ref(), media::EVENT_STREAM) => Source::Last(body),
            Ok(Reply::Whole { body, .. }) => Source::Last(event_of(&body)),
            Ok(Reply::Accepted) => Source::Ended,
            Ok(Reply::Stream { relay, .. }) => match whole(relay).await {
                Ok(body) => Source::Last(event_of(&body)),
                Err(error) => failed(&session, error.into(), id.as_deref()),
            },
            Err(error) => failed(&session, error, id.as_deref()),
        }
    }
}

/// A body that arrives in pieces, once it is there.
async fn whole(mut relay: Relay) -> Result<Vec<u8>, StreamError> {
    let mut body = Vec::new();
    while let Some(piece) = poll_fn(|cx| relay.poll_next(cx)).await {
        body.extend_from_slice(&piece?);
        if body.len() > MAX_HELD_ANSWER {
            return Err(StreamError::Cut);
        }
    }
    Ok(body)
}

fn failed(session: &Session, error: UpstreamError, id: Option<&str>) -> Source {
    let told = session.leg().fault(error).body(id);
    Source::Last(event_of(told.as_bytes()))
}

/// Nobody has signed in within the time that a request is held.
fn come_back(id: &str, flow: &Flow, means: Means) -> String {
    let link = flow.link();
    if means != Means::Link {
        let why = "nobody has signed in yet";
        return error(id, codes::SIGN_IN_NEEDED, why, link.as_deref());
    }
    let elicitation = json!({
        "mode": "url",
        "elicitationId": flow.id.as_str(),
        "url": link,
        "message": format!("Sign in to use \"{}\".", flow.server),
    });
    let told = json!({
        "code": URL_ELICITATION_REQUIRED,
        "message": "nobody has signed in yet; try again afterwards",
        "data": {"elicitations": [elicitation]},
    });
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{told}}}"#)
}

/// Tells the client when it may come back, once.
fn tell_when_done(session: &Arc<Session>, sign_ins: &Arc<SignIns>, flow: &Flow) {
    if !sign_ins.promises_first(session.hash, flow) {
        return;
    }
    let (session, sign_ins, flow) = (Arc::clone(session), Arc::clone(sign_ins), flow.clone());
    let tracker = session.upstream.tracker().clone();
    tracker.spawn(async move {
        if sign_ins.ended(&flow).await == Some(End::SignedIn) {
            let done = json!({
                "jsonrpc": "2.0",
                "method": "notifications/elicitation/complete",
                "params": {"elicitationId": flow.id.as_str()},
            });
            session.tell(&event_of(done.to_string().as_bytes()));
        }
    });
}

/// The answer for a client that cannot be asked.
fn told(
    session: &Session,
    message: &Message,
    link: Option<&str>,
    why: &str,
) -> Response<ReplyBody> {
    let id = message.id().unwrap_or("null");
    let is_own_tool = is_own_tool(message);
    let result = match (message.method(), link) {
        (Some("tools/list"), _) if session.leg().at == LegRef::UNOPENED => json!({"tools": [{
            "name": TOOL,
            "title": "Sign in",
            "description": format!("Returns the link with which the user signs in at \"{}\". Its other tools appear afterwards.", session.upstream.name),
            "inputSchema": {"type": "object", "properties": {}},
        }]}),
        (Some("ping"), _) => json!({}),
        (_, Some(link)) if is_own_tool => json!({"content": [{
            "type": "text",
            "text": format!("Please open this link to sign in at \"{}\", then try again: {link}", session.upstream.name),
        }]}),
        (_, None) if is_own_tool => json!({
            "content": [{"type": "text", "text": format!("Signing in is not possible now: {why}")}],
            "isError": true,
        }),
        _ => return reply::json(StatusCode::OK, error(id, codes::SIGN_IN_NEEDED, why, link)),
    };
    reply::json(
        StatusCode::OK,
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
    )
}

fn error(id: &str, code: i64, why: &str, link: Option<&str>) -> String {
    let message = match link {
        Some(link) => format!("{why}: {link}"),
        None => why.to_owned(),
    };
    let error = json!({
        "code": code,
        "message": message,
        "data": {"reason": "sign_in_needed", "url": link},
    });
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

/// What `sign_in` returns once somebody has.
fn signed_in(id: &str, session: &Session) -> String {
    let text = format!("Signed in at \"{}\".", session.upstream.name);
    let result = json!({"content": [{"type": "text", "text": text}]});
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn is_own_tool(message: &Message) -> bool {
    message.method() == Some("tools/call")
        && message.param("name").is_some_and(|name| {
            serde_json::from_str::<String>(message.text(name)).is_ok_and(|name| name == TOOL)
        })
}

/// Takes the client's answer to a question of ours.
pub(super) async fn answered(session: &Session, id: &str, answer: &Message) {
    let (Some(flow), Some(account)) = (
        id.get(..FlowId::LENGTH).and_then(FlowId::parse),
        session.upstream.account(&session.caller),
    ) else {
        return;
    };
    // An error is no answer: the question is still open until it is too late.
    let Some(Ok(elicited)) = answer.result().map(serde_json::from_str::<Elicited>) else {
        return;
    };
    if let Err(error) = elicited.take(session, &account, &flow).await {
        tracing::info!(%error, ?flow, "the answer to a sign-in was not taken");
    }
}

// === impl Means ===

impl Means {
    /// What the client declared, and the flow can use.
    fn of(session: &Session, flow: &Flow) -> Self {
        #[derive(Deserialize)]
        struct Initialize {
            params: Params,
        }
        #[derive(Deserialize)]
        struct Params {
            capabilities: Capabilities,
        }
        #[derive(Deserialize)]
        struct Capabilities {
            elicitation: Option<Elicitation>,
        }
        #[derive(Deserialize)]
        struct Elicitation {
            form: Option<serde::de::IgnoredAny>,
            url: Option<serde::de::IgnoredAny>,
        }
        let declared = serde_json::from_slice::<Initialize>(&session.believed.initialize).ok();
        let Some(declared) = declared.and_then(|it| it.params.capabilities.elicitation) else {
            return Self::Words;
        };
        // Without either it means forms, which were there first.
        let has_form = declared.form.is_some() || declared.url.is_none();
        let has_link = declared.url.is_some() && session.leg().version() >= version::SUPPORTED[2];
        let is_a_way = flow.authorization().is_some();
        match (has_link && is_a_way, has_form) {
            (true, _) => Self::Link,
            (false, true) => Self::Form,
            (false, false) => Self::Words,
        }
    }
}
