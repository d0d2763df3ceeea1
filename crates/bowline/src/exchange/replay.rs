//! The table that says which requests are safe to repeat.

pub(crate) mod own_list;
pub(crate) mod retry;

use bowline_wire::message::Message;

use crate::config::Replay;

/// Whether a request that may have run may be sent again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Safety {
    Safe,
    Unsafe,
    /// If the tools list that the caller was shown says that this tool is safe to repeat.
    IfShown(String),
}

/// Looks a request up in the table.
pub(crate) fn safety_of(request: &Message, policy: &Replay) -> Safety {
    #[cfg(feature = "planted")]
    if crate::planted::has(crate::planted::Bug::ReplayEverything) {
        return Safety::Safe;
    }
    if *policy == Replay::Never {
        return Safety::Unsafe;
    }
    match request.method() {
        Some(
            "ping"
            | "tools/list"
            | "prompts/list"
            | "prompts/get"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "completion/complete"
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "tasks/list"
            | "tasks/get"
            | "tasks/result",
        ) => Safety::Safe,
        Some("tools/call") => match (request.called_tool(), policy) {
            (None, _) => Safety::Unsafe,
            (Some(name), Replay::Tools(tools)) if tools.contains(&name) => Safety::Safe,
            (Some(name), _) => Safety::IfShown(name),
        },
        Some(_) | None => Safety::Unsafe,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn safe(method: &str, policy: &Replay) -> Safety {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":"t"}}}}"#);
        let message = Message::parse(Bytes::from(text)).unwrap();
        safety_of(&message, policy)
    }

    #[test]
    fn the_table() {
        for method in [
            "ping",
            "tools/list",
            "prompts/list",
            "resources/list",
            "resources/templates/list",
            "tasks/list",
            "resources/read",
            "prompts/get",
            "completion/complete",
            "logging/setLevel",
            "resources/subscribe",
            "resources/unsubscribe",
            "tasks/get",
            "tasks/result",
        ] {
            assert_eq!(safe(method, &Replay::Safe), Safety::Safe, "{method}");
            assert_eq!(safe(method, &Replay::Never), Safety::Unsafe, "{method}");
        }
        for method in [
            "initialize",
            "tasks/cancel",
            "vendor/do",
            "list",
            "listings",
            "acme/purge/list",
            "tools/list/",
            "Tools/list",
        ] {
            assert_eq!(safe(method, &Replay::Safe), Safety::Unsafe, "{method}");
        }
    }

    #[test]
    fn tools_are_safe_by_their_hints_or_by_configuration() {
        let call = Message::parse(Bytes::from_static(
            br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t\u0065"}}"#,
        ))
        .unwrap();
        let listed = |tool: &str| Replay::Tools(vec![tool.to_owned()]);
        let if_shown = || Safety::IfShown("te".to_owned());
        assert_eq!(safety_of(&call, &Replay::Safe), if_shown());
        assert_eq!(safety_of(&call, &Replay::Never), Safety::Unsafe);
        assert_eq!(safety_of(&call, &listed("te")), Safety::Safe);
        assert_eq!(safety_of(&call, &listed("other")), if_shown());
    }
}
