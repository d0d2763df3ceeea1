//! The question that asks for a sign-in: an `elicitation/create` of our own.

use serde_json::{Map, Value, json};

use super::sign_in::Means;
use crate::config::shown_url;
use crate::leg::LegRef;
use crate::oauth::{Asks, Flow, SignIns};
use crate::session::Session;

/// The id (JSON text) of the question of a flow on the stream of this request (JSON text). It is used
/// once in a session, because the request's is.
pub(super) fn mark(session: &Session, flow: &Flow, request: &str) -> Option<String> {
    let id = format!("{}{request}", flow.id.as_str());
    session.seal.request(LegRef::OWN, &id)
}

/// The question with this id (JSON text).
pub(super) fn question(sign_ins: &SignIns, flow: &Flow, means: Means, mark: &str) -> String {
    let message = match &flow.asks {
        Asks::Client { .. } => format!(
            "To sign in to use \"{}\", a client id at {} is needed.",
            flow.server, flow.found.issuer
        ),
        Asks::Tokens { .. } | Asks::Authorization(_) => {
            format!("Sign in to use \"{}\".", flow.server)
        }
    };
    let meta = meta(sign_ins, flow);
    let params = match (means, flow.link()) {
        (Means::Link, Some(link)) => json!({
            "mode": "url",
            "elicitationId": flow.id.as_str(),
            "url": link,
            "message": message,
            "_meta": meta,
        }),
        // The answer to that comes to a page of ours, so there is nothing to fill in.
        (Means::Form, Some(link)) if flow.is_managed() => json!({
            "message": format!("{message} Please open this link: {link}"),
            "requestedSchema": {"type": "object", "properties": {}},
            "_meta": meta,
        }),
        _ => json!({"message": message, "requestedSchema": schema(flow), "_meta": meta}),
    };
    format!(r#"{{"jsonrpc":"2.0","id":{mark},"method":"elicitation/create","params":{params}}}"#)
}

/// What takes a question back whose answer nobody waits for any more.
pub(super) fn withdrawn(mark: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{mark},"reason":"the sign-in is over"}}}}"#
    )
}

fn schema(flow: &Flow) -> Value {
    let (properties, required): (_, &[&str]) = match &flow.asks {
        Asks::Client { .. } => (
            json!({
                "client_id": {"type": "string", "title": "Client id"},
                "client_secret": {"type": "string", "title": "Client secret, if it has one"},
            }),
            &["client_id"],
        ),
        Asks::Tokens { .. } => (
            json!({
                "access_token": {"type": "string"},
                "token_type": {"type": "string"},
                "expires_in": {"type": "integer"},
                "refresh_token": {"type": "string"},
                "client_id": {"type": "string"},
                "scope": {"type": "string"},
            }),
            &["access_token"],
        ),
        Asks::Authorization(_) => (
            json!({"code": {"type": "string"}, "state": {"type": "string"}}),
            &[],
        ),
    };
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

/// What a host that knows these keys needs to do its part, and no more: the state goes only to one that
/// may bring it back.
fn meta(sign_ins: &SignIns, flow: &Flow) -> Value {
    let mut meta = Map::new();
    let prefix = &sign_ins.settings().meta_prefix;
    let mut own = |name: &str, value: &str| {
        meta.insert(format!("{prefix}/{name}"), value.into());
    };
    own("server_url", &shown_url(&flow.server_url));
    let is_for_host = match &flow.asks {
        Asks::Client { .. } => {
            own("type", "oauth_client_credentials");
            meta.insert("auth_server".to_owned(), flow.found.issuer.clone().into());
            false
        }
        Asks::Tokens { .. } => {
            own("type", "oauth_flow");
            true
        }
        Asks::Authorization(way) => {
            own("type", "oauth_flow");
            let is_for_host = !flow.is_managed();
            if is_for_host {
                own("authorize_url", &way.begun.authorize_url);
                own("state", way.begun.state.expose());
            }
            is_for_host
        }
    };
    if is_for_host {
        let found = &flow.found;
        meta.insert("auth_server".to_owned(), found.issuer.clone().into());
        let metadata = found.metadata.clone();
        meta.insert("auth_server_metadata".to_owned(), metadata.into());
        if let Some(resource) = &found.resource_metadata {
            meta.insert("resource_metadata".to_owned(), resource.clone().into());
        }
    }
    meta.into()
}
