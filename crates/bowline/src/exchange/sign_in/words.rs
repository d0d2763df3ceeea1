//! Texts for a client that cannot be prompted, or whose user has not signed in in time: a tool `sign_in`
//! whose result is the link, and errors that contain the link.

use bowline_wire::message::{Message, RawId};
use bowline_wire::{codes, compose};
use serde_json::json;

use super::Means;
use crate::exchange::Reply;
use crate::exchange::own_tool::{is_own_tool, sign_in_tool};
use crate::oauth::{AwaitedInput, Flow};
use crate::session::Session;

/// The error for clients that can retry when the sign-in is done (2025-11-25).
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// Why a request fails that waited for a sign-in. `had_stray`: an answer came that was no sign-in's.
pub(super) fn not_yet(had_stray: bool) -> &'static str {
    match had_stray {
        false => "the user has not signed in yet",
        true => {
            "the user has not signed in yet; an answer with a wrong `state` came meanwhile, and was refused"
        }
    }
}

/// Why a request fails that needs a sign-in and is not held.
pub(super) fn why(flow: &Flow) -> &'static str {
    match &flow.awaited {
        AwaitedInput::Authorization(_) => "the user has to sign in",
        AwaitedInput::Tokens { .. } => {
            "the client has to run the sign-in itself and return the tokens, so it must support elicitation"
        }
        AwaitedInput::Client { .. } => {
            "the authorization server registers no clients; configure a client id for this server"
        }
    }
}

/// The reply to a client that cannot be prompted.
pub(super) fn told(session: &Session, message: &Message, link: Option<&str>, why: &str) -> Reply {
    Reply::own(told_body(session, message, link, why))
}

/// The same as a message.
pub(super) fn told_body(
    session: &Session,
    message: &Message,
    link: Option<&str>,
    why: &str,
) -> String {
    let id = message.id().unwrap_or(RawId::NULL);
    let is_own_tool = is_own_tool(message);
    let result = match (message.method(), link) {
        (Some("tools/list"), _) if session.leg().generation.is_unopened() => {
            json!({"tools": [sign_in_tool(&session.upstream.name)]})
        }
        (Some("ping"), _) => json!({}),
        (_, Some(link)) if is_own_tool => json!({"content": [{
            "type": "text",
            "text": format!("Please open this link to sign in at \"{}\", then try again: {link}", session.upstream.name),
        }]}),
        (_, None) if is_own_tool => json!({
            "content": [{"type": "text", "text": format!("Signing in is not possible now: {why}")}],
            "isError": true,
        }),
        _ => return error(id, codes::SIGN_IN_NEEDED, why, link),
    };
    compose::result(id, result)
}

pub(super) fn error(id: RawId<'_>, code: i64, why: &str, link: Option<&str>) -> String {
    let message = match link {
        Some(link) => format!("{why}: {link}"),
        None => why.to_owned(),
    };
    let error = json!({
        "code": code,
        "message": message,
        "data": {"reason": "sign_in_needed", "url": link},
    });
    compose::error(id, error)
}

/// The result of `sign_in` after the sign-in.
pub(super) fn signed_in(id: RawId<'_>, session: &Session) -> String {
    let text = format!("Signed in at \"{}\".", session.upstream.name);
    let result = json!({"content": [{"type": "text", "text": text}]});
    compose::result(id, result)
}

/// The error for a request that was held until its time limit without a sign-in.
pub(super) fn try_later(id: RawId<'_>, flow: &Flow, means: Means, why: &str) -> String {
    let link = flow.link();
    if means != Means::Link {
        return error(id, codes::SIGN_IN_NEEDED, why, link.as_deref());
    }
    let elicitation = json!({
        "mode": "url",
        "elicitationId": flow.id.as_str(),
        "url": link,
        "message": format!("Sign in to use \"{}\".", flow.server),
    });
    let error = json!({
        "code": URL_ELICITATION_REQUIRED,
        "message": format!("{why}; retry after the sign-in"),
        "data": {"elicitations": [elicitation]},
    });
    compose::error(id, error)
}
