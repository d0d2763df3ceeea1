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
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::exchange::{Exchange, stream_key, stream_permit};
use super::reply::{self, ReplyBody, StreamBody};
use crate::body::Sent;
use crate::config;
use crate::fault::{Fault, codes};
use crate::leg::{self, LegRef, MAX_HELD_ANSWER, Relay, Reply, StreamError};
use crate::oauth::{
    Account, Delivery, End, Flow, FlowId, Secret, SignInError, SignIns, Via, Wanted,
};
use crate::session::{LiveStream, Session, Source};
use crate::upstream::UpstreamError;

/// The tool of a server whose caller cannot be asked otherwise.
const TOOL: &str = "sign_in";

/// The error that a client gets which may come back when the sign-in is done (2025-11-25).
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// How a client said that it can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    /// With a link, which its user opens.
    Link,
    /// With a form.
    Form,
    /// Not at all.
    Words,
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
    let is_own_tool = called_tool(&message).as_deref() == Some(TOOL);
    let sign_ins = Arc::clone(&account.sign_ins);
    if is_own_tool && let Err(error) = sign_ins.ask_again(&account).await {
        tracing::debug!(%error, "a declined sign-in is still remembered");
    }
    let server = session.upstream.server();
    let begun = sign_ins.begin(&account, &server, &wanted).await;
    let flow = match begun {
        Ok(flow) => flow,
        Err(error) => return Ok(told(&session, &message, None, &error.to_string())),
    };
    let means = Means::of(&session, server.oauth.as_ref().map(|oauth| oauth.flow));
    if means == Means::Words || is_own_tool {
        let why = "the user has to sign in";
        return Ok(told(&session, &message, Some(&sign_ins.link(&flow)), why));
    }
    held(exchange, message, &account, flow, means)
}

/// The request's answer as a stream that begins with the question and ends with the answer.
fn held(
    exchange: Exchange,
    message: Message,
    account: &Account,
    flow: Flow,
    means: Means,
) -> Result<Response<ReplyBody>, Fault> {
    let Exchange {
        shared,
        in_use,
        carried,
        ..
    } = exchange;
    let session = Arc::clone(in_use.session());
    let permit = stream_permit(&shared)?;
    let sign_ins = Arc::clone(&account.sign_ins);
    let key = stream_key(&message);
    let question = sign_ins
        .asks_first(session.hash, &flow)
        .then(|| question(&session, &sign_ins, &flow, means))
        .flatten();
    let (waiting, hold) = (Arc::clone(&session), sign_ins.settings().hold);
    let opening = Box::pin(async move {
        let session = waiting;
        let id = message.id().unwrap_or_default().to_owned();
        let call = session.calls.begin(&id);
        let error = tokio::select! {
            biased;
            () = call.cancelled() => return Ok(Source::Ended),
            end = sign_ins.ended(&flow) => match end {
                End::SignedIn => {
                    drop(call);
                    return Ok(go_on(session, message, &carried).await);
                }
                End::Declined => error(&id, codes::SIGN_IN_NEEDED, &SignInError::Declined.to_string(), None),
                End::Failed(why) => error(&id, codes::SIGN_IN_NEEDED, &why, None),
            },
            () = tokio::time::sleep(hold) => {
                tell_when_done(&session, &sign_ins, &flow);
                come_back(&id, &sign_ins, &flow, means)
            }
        };
        Ok(Source::Last(event_of(error.as_bytes())))
    });
    let stream = Arc::new(LiveStream::saying(question, Source::Opening(opening)));
    session.attach(key, Arc::clone(&stream));
    let body = StreamBody::new(stream, in_use, shared.abandoned(), permit).with_heartbeat();
    let content_type = HeaderValue::from_static(media::EVENT_STREAM);
    Ok(reply::stream(StatusCode::OK, Some(content_type), body))
}

/// The request, now that somebody has signed in.
async fn go_on(
    session: Arc<Session>,
    message: Message,
    carried: &crate::upstream::Carried,
) -> Source {
    let id: Option<Box<str>> = message.id().map(Into::into);
    let reply = leg::request(Arc::clone(&session), message, carried, Sent::default()).await;
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

/// The question as an event.
fn question(session: &Session, sign_ins: &SignIns, flow: &Flow, means: Means) -> Option<Bytes> {
    let id = flow.id();
    let mark = session.seal.request(LegRef::OWN, id.as_str())?;
    let message = format!("Sign in to use \"{}\".", flow.server);
    let mut params = match means {
        Means::Link => json!({
            "mode": "url",
            "elicitationId": id.as_str(),
            "url": sign_ins.link(flow),
            "message": message,
        }),
        Means::Form | Means::Words => json!({
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": {"code": {"type": "string"}, "state": {"type": "string"}},
            },
        }),
    };
    if let Some(params) = params.as_object_mut() {
        params.insert("_meta".to_owned(), meta(sign_ins, flow));
    }
    let question = format!(
        r#"{{"jsonrpc":"2.0","id":{mark},"method":"elicitation/create","params":{params}}}"#
    );
    Some(event_of(question.as_bytes()))
}

/// What a host that knows these keys needs to do its part.
fn meta(sign_ins: &SignIns, flow: &Flow) -> Value {
    let prefix = &sign_ins.settings().meta_prefix;
    let key = |name: &str| format!("{prefix}/{name}");
    json!({
        key("type"): "oauth_flow",
        key("server_url"): flow.server_url,
        key("authorize_url"): sign_ins.link(flow),
        key("state"): flow.begun.state.expose(),
        "auth_server": flow.found.issuer,
        "auth_server_metadata": flow.found.metadata,
        "resource_metadata": flow.found.resource_metadata,
    })
}

/// Nobody has signed in within the time that a request is held.
fn come_back(id: &str, sign_ins: &SignIns, flow: &Flow, means: Means) -> String {
    let link = sign_ins.link(flow);
    if means != Means::Link {
        return error(
            id,
            codes::SIGN_IN_NEEDED,
            "nobody has signed in yet",
            Some(&link),
        );
    }
    let elicitation = json!({
        "mode": "url",
        "elicitationId": flow.id().as_str(),
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

/// Tells the client when it may come back.
fn tell_when_done(session: &Arc<Session>, sign_ins: &Arc<SignIns>, flow: &Flow) {
    let (session, sign_ins, flow) = (Arc::clone(session), Arc::clone(sign_ins), flow.clone());
    let tracker = session.upstream.tracker().clone();
    tracker.spawn(async move {
        if sign_ins.ended(&flow).await == End::SignedIn {
            let done = json!({
                "jsonrpc": "2.0",
                "method": "notifications/elicitation/complete",
                "params": {"elicitationId": flow.id().as_str()},
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
    let is_own_tool = called_tool(message).as_deref() == Some(TOOL);
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

fn called_tool(message: &Message) -> Option<String> {
    if message.method() != Some("tools/call") {
        return None;
    }
    serde_json::from_str(message.text(message.param("name")?)).ok()
}

/// Takes the client's answer to a question of ours.
pub(super) async fn answered(session: &Session, id: &str, answer: &Message) {
    #[derive(Deserialize)]
    struct Elicited {
        action: String,
        #[serde(default)]
        content: Content,
    }
    #[derive(Deserialize, Default)]
    struct Content {
        code: Option<String>,
        state: Option<String>,
    }
    let (Some(flow), Some(account)) =
        (FlowId::parse(id), session.upstream.account(&session.caller))
    else {
        return;
    };
    // An error is no answer: the question is still open until it is too late.
    let Some(Ok(elicited)) = answer.result().map(serde_json::from_str::<Elicited>) else {
        return;
    };
    let sign_ins = &account.sign_ins;
    let done = match (elicited.action.as_str(), elicited.content) {
        (
            "accept",
            Content {
                code: Some(code),
                state: Some(state),
            },
        ) if FlowId::of(&state) == flow => {
            let code = Delivery::Code {
                code: Secret::new(code),
                iss: None,
            };
            match sign_ins.deliver(&state, code, Via::Courier).await {
                Ok(_) => Ok(()),
                Err(error) => {
                    tracing::info!(%error, "the answer to a sign-in was not taken");
                    Ok(())
                }
            }
        }
        // The link was opened: its answer comes by another way.
        ("accept", _) => Ok(()),
        _ => sign_ins.decline(&flow).await,
    };
    if let Err(error) = done {
        tracing::warn!(%error, "the answer to a sign-in was not taken");
    }
}

// === impl Means ===

impl Means {
    /// What the client declared, and the server's flow can use.
    fn of(session: &Session, flow: Option<config::Flow>) -> Self {
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
        match flow {
            Some(config::Flow::Managed) if has_link => Self::Link,
            Some(config::Flow::Drive) if has_link => Self::Link,
            Some(config::Flow::Drive) if has_form => Self::Form,
            _ => Self::Words,
        }
    }
}
