//! A leg whose server would not even hear `initialize` before the caller has signed in.
//!
//! The client is answered here, so that there is a session in which it can be asked to sign in. The
//! leg is opened as one is that was lost: with the client's own `initialize`, by the first request
//! after somebody has signed in, and the client then hears that its lists have changed.

use std::sync::Arc;

use bowline_egress::Jar;
use bowline_wire::message::{Initialized, Message};
use bowline_wire::version::{self, Agreed};

use crate::exchange::open::first::First;
use crate::exchange::reply::Reply;
use crate::leg::capabilities::{Capabilities, MissingLists};
use crate::leg::{Generation, Leg, Life};
use crate::oauth::Account;
use crate::upstream::{Conversation, Upstream, UpstreamError};

/// What a client is told that the server has, so that it asks for it later.
const CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}"#;

/// Answers the client's `initialize` in the server's place: as the server last answered this caller, if
/// that is known.
pub(crate) async fn unopened(
    upstream: Arc<Upstream>,
    account: Arc<Account>,
    message: &Message,
) -> Result<First, UpstreamError> {
    let endpoint = upstream.pick().await?;
    let wanted = message
        .param("protocolVersion")
        .map(|span| message.text(span).trim_matches('"'));
    let [.., newest] = version::SUPPORTED;
    let version = version::SUPPORTED
        .into_iter()
        .find(|known| Some(*known) == wanted)
        .unwrap_or(newest);
    let result = account.last_initialized(version).unwrap_or_else(|| {
        let (name, own) = (&upstream.name, env!("CARGO_PKG_VERSION"));
        let info = format!(r#"{{"name":"{name}","version":"{own}"}}"#);
        format!(
            r#"{{"protocolVersion":"{version}","capabilities":{CAPABILITIES},"serverInfo":{info},"instructions":"The user has to sign in before anything here can be used."}}"#
        )
    });
    let reply = Reply::result(message, &result);
    let said: Option<Initialized<'_>> = serde_json::from_str(&result).ok();
    let capabilities = Capabilities::guessed(
        said.as_ref()
            .map_or(CAPABILITIES, Initialized::capabilities),
    );
    let life = Life {
        generation: Generation::UNOPENED,
        conversation: Conversation::http(None, Jar::default()),
        version: Agreed::on(version).ok_or(UpstreamError::BadInitialize)?,
        sign_in: 0,
        missing_lists: MissingLists::default(),
    };
    let leg = Leg::new(upstream, endpoint, Some(account), life);
    Ok(First {
        leg: Some(Arc::new(leg)),
        capabilities,
        reply,
    })
}
