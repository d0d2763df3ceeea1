//! A session at a server that accepts not even `initialize` before the caller has signed in.
//!
//! Bowline answers `initialize` itself, so that there is a session in which it can prompt for the sign-in.
//! The leg is opened like one that was lost: with the client's own `initialize`, by the first request after
//! the sign-in. The client is then notified that its lists have changed.

use std::sync::Arc;

use bowline_egress::Jar;
use bowline_wire::message::{Initialized, Message};
use bowline_wire::version::{self, Agreed};

use super::first::First;
use crate::exchange::reply::Reply;
use crate::leg::capabilities::{Capabilities, MissingLists};
use crate::leg::{Generation, Leg, Life};
use crate::oauth::Account;
use crate::upstream::{Conversation, Credentials, Upstream, UpstreamError};

/// The capabilities in the answer, so that the client lists tools, prompts and resources later.
const CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}"#;

/// Answers the client's `initialize` instead of the server: with the server's last answer to this caller, if
/// it is known. `number` is the leg's.
pub(crate) async fn unopened(
    upstream: Arc<Upstream>,
    account: Arc<Account>,
    message: &Message,
    number: u16,
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
    let initialized: Option<Initialized<'_>> = serde_json::from_str(&result).ok();
    let capabilities = Capabilities::guessed(
        initialized
            .as_ref()
            .map_or(CAPABILITIES, Initialized::capabilities),
    );
    let life = Life {
        generation: Generation::unopened(number),
        conversation: Conversation::new(&endpoint.address, Jar::default()),
        version: Agreed::on(version).ok_or(UpstreamError::BadInitialize)?,
        credentials: Credentials::Caller { sign_in: 0 },
        missing_lists: MissingLists::default(),
    };
    let leg = Leg::new(upstream, endpoint, Some(account), life);
    Ok(First {
        leg: Some(Arc::new(leg)),
        capabilities,
        reply,
    })
}
