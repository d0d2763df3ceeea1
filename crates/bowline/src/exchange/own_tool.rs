//! The tool `sign_in`, which clients without elicitation see until the caller has signed in. Its result is the link.

use bowline_wire::message::Message;
use serde_json::{Value, json};

use crate::config::ServerName;

const NAME: &str = "sign_in";

/// The definition of the tool that starts a sign-in at this server.
pub(crate) fn sign_in_tool(server: &ServerName) -> Value {
    json!({
        "name": NAME,
        "title": "Sign in",
        "description": format!("Returns the link with which the user signs in at \"{server}\". Its other tools appear afterwards."),
        "inputSchema": {"type": "object", "properties": {}},
    })
}

/// Whether a message calls that tool.
pub(crate) fn is_own_tool(message: &Message) -> bool {
    message.called_tool().is_some_and(|name| name == NAME)
}
