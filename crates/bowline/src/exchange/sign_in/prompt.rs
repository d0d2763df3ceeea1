//! The sign-in prompt: an `elicitation/create` that Bowline sends.

use bowline_wire::compose;
use bowline_wire::message::{RawId, RawIdBuf};
use serde_json::{Map, Value, json};

use crate::config::{SignInHost, shown_url};
use crate::exchange::sign_in::Means;
use crate::oauth::{AwaitedInput, Flow, Flows};
use crate::session::Session;

/// The id of a flow's prompt on the stream of this request. It is unique in a
/// session, because the request's id is.
pub(crate) fn mark(session: &Session, flow: &Flow, request: RawId<'_>) -> Option<RawIdBuf> {
    let id = format!("{}{request}", flow.id.as_str());
    let own = session.leg().generation.own();
    session.seal.request(own, RawId::new(&id))
}

/// The prompt with this id.
pub(crate) fn question(flows: &Flows, flow: &Flow, means: Means, mark: RawId<'_>) -> String {
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
        // The authorization response comes to Bowline's own callback, so the form has no fields.
        (Means::Form, Some(link)) if flow.returns_to_bowline() => json!({
            "message": format!("{message} Please open this link: {link}"),
            "requestedSchema": {"type": "object", "properties": {}},
            "_meta": meta,
        }),
        _ => json!({"message": message, "requestedSchema": schema(flow), "_meta": meta}),
    };
    compose::request(mark, "elicitation/create", params)
}

/// The cancel of a prompt that needs no answer any more.
pub(crate) fn withdrawn(mark: RawId<'_>) -> String {
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

/// The metadata for hosts that handle the sign-in themselves, and no more: a host gets the state only if it
/// may return it.
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
        AwaitedInput::Authorization(_) if flow.returns_to_bowline() => {
            match flows.settings().host {
                SignInHost::Any => {
                    own("type", "oauth_flow");
                    false
                }
                // Its terminal UI shows the link of a prompt only if that has no type. Its remote clients decline a prompt
                // without these documents, and sign in by themselves with them.
                SignInHost::DockerAgent => true,
            }
        }
        AwaitedInput::Authorization(way) => {
            own("type", "oauth_flow");
            own("authorize_url", &way.request.authorize_url);
            own("state", way.request.state.expose());
            true
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
