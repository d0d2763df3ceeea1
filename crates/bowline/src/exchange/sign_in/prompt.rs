//! The question that asks for a sign-in: an `elicitation/create` of our own.

use bowline_wire::compose;
use serde_json::{Map, Value, json};

use crate::config::shown_url;
use crate::exchange::sign_in::Means;
use crate::leg::Generation;
use crate::oauth::{AwaitedInput, Flow, Flows};
use crate::session::Session;

/// The id (JSON text) of the question of a flow on the stream of this request (JSON text). It is used
/// once in a session, because the request's is.
pub(crate) fn mark(session: &Session, flow: &Flow, request: &str) -> Option<String> {
    let id = format!("{}{request}", flow.id.as_str());
    session.seal.request(Generation::OWN, &id)
}

/// The question with this id (JSON text).
pub(crate) fn question(flows: &Flows, flow: &Flow, means: Means, mark: &str) -> String {
    let message = match &flow.awaited {
        AwaitedInput::Client { .. } => format!(
            "To sign in to use \"{}\", a client id at {} is needed.",
            flow.server, flow.discovery.issuer
        ),
        AwaitedInput::Tokens { .. } | AwaitedInput::Authorization(_) => {
            format!("Sign in to use \"{}\".", flow.server)
        }
    };
    let meta = meta(flows, flow);
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
    compose::request(mark, "elicitation/create", params)
}

/// What takes a question back whose answer nobody waits for any more.
pub(crate) fn withdrawn(mark: &str) -> String {
    compose::cancelled(mark, "the sign-in is over")
}

fn schema(flow: &Flow) -> Value {
    let (properties, required): (_, &[&str]) = match &flow.awaited {
        AwaitedInput::Client { .. } => (
            json!({
                "client_id": {"type": "string", "title": "Client id"},
                "client_secret": {"type": "string", "title": "Client secret, if it has one"},
            }),
            &["client_id"],
        ),
        AwaitedInput::Tokens { .. } => (
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
        AwaitedInput::Authorization(_) => (
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
fn meta(flows: &Flows, flow: &Flow) -> Value {
    let mut meta = Map::new();
    let prefix = &flows.settings().meta_prefix;
    let mut own = |name: &str, value: &str| {
        meta.insert(format!("{prefix}/{name}"), value.into());
    };
    own("server_url", &shown_url(&flow.server_url));
    let is_for_host = match &flow.awaited {
        AwaitedInput::Client { .. } => {
            own("type", "oauth_client_credentials");
            meta.insert(
                "auth_server".to_owned(),
                flow.discovery.issuer.clone().into(),
            );
            false
        }
        AwaitedInput::Tokens { .. } => {
            own("type", "oauth_flow");
            true
        }
        AwaitedInput::Authorization(way) => {
            own("type", "oauth_flow");
            let is_for_host = !flow.is_managed();
            if is_for_host {
                own("authorize_url", &way.request.authorize_url);
                own("state", way.request.state.expose());
            }
            is_for_host
        }
    };
    if is_for_host {
        let found = &flow.discovery;
        meta.insert("auth_server".to_owned(), found.issuer.clone().into());
        let metadata = found.metadata.clone();
        meta.insert("auth_server_metadata".to_owned(), metadata.into());
        if let Some(resource) = &found.resource_metadata {
            meta.insert("resource_metadata".to_owned(), resource.clone().into());
        }
    }
    meta.into()
}
