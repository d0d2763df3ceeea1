//! Whether a request may run twice. The one table.

use bowline_wire::message::Message;

use crate::config::Replay;

/// Whether a request may be sent again although it may have run. `is_harmless` tells of a tool.
pub(super) fn is_safe(
    request: &Message,
    policy: &Replay,
    is_harmless: impl FnOnce(&str) -> bool,
) -> bool {
    if *policy == Replay::Never {
        return false;
    }
    match request.method() {
        Some(
            "ping"
            | "resources/read"
            | "prompts/get"
            | "completion/complete"
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "tasks/get"
            | "tasks/result",
        ) => true,
        Some("tools/call") => {
            let name = request.param("name").map(|span| request.text(span));
            let name: Option<String> = name.and_then(|text| serde_json::from_str(text).ok());
            let listed = |name: &str| matches!(policy, Replay::Tools(tools) if tools.iter().any(|tool| tool == name));
            name.is_some_and(|name| listed(&name) || is_harmless(&name))
        }
        Some(method) => method.ends_with("/list"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn safe(method: &str, policy: &Replay) -> bool {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":"t"}}}}"#);
        let message = Message::parse(Bytes::from(text)).unwrap();
        is_safe(&message, policy, |_| false)
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
            assert!(safe(method, &Replay::Safe), "{method}");
            assert!(!safe(method, &Replay::Never), "{method}");
        }
        for method in [
            "tools/call",
            "initialize",
            "tasks/cancel",
            "vendor/do",
            "list",
            "listings",
        ] {
            assert!(!safe(method, &Replay::Safe), "{method}");
        }
    }

    #[test]
    fn tools_are_safe_by_their_listing_or_by_the_operators_word() {
        let call = Message::parse(Bytes::from_static(
            br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t\u0065"}}"#,
        ))
        .unwrap();
        assert!(is_safe(&call, &Replay::Safe, |name| name == "te"));
        assert!(!is_safe(&call, &Replay::Never, |_| true));
        assert!(is_safe(
            &call,
            &Replay::Tools(vec!["te".to_owned()]),
            |_| false
        ));
        assert!(!is_safe(
            &call,
            &Replay::Tools(vec!["other".to_owned()]),
            |_| false
        ));
    }
}
