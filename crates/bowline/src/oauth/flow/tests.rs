use serde_json::json;

use super::*;
use crate::oauth::grant::tests::{credentials, tokens};

/// Gateways of several versions share a store: its field names outlive those in the code.
#[test]
fn what_is_stored_keeps_its_names() {
    let credentials = credentials(tokens("", None, None));
    let authorization = Authorization {
        client: credentials.client,
        is_client_named: false,
        request: AuthorizationRequest {
            authorize_url: "https://login.example/authorize".to_owned(),
            state: Secret::new("state"),
            verifier: Secret::new("verifier"),
            scopes: Vec::new(),
        },
        browser: None,
    };
    let key = AccountKey {
        caller: "ann".into(),
        server_url: "https://mcp.example/mcp".into(),
    };
    let kind = FlowKind::Managed {
        pages: "http://gateway".to_owned(),
    };
    let awaited = AwaitedInput::Authorization(Box::new(authorization));
    let since = Since {
        sign_outs: 2,
        sign_in: 7,
        missing_scopes: vec!["write".to_owned()],
    };
    let flow = Flow::new(
        &key,
        "files",
        credentials.discovery,
        kind,
        awaited,
        60,
        since,
    );
    let flow = serde_json::to_value(flow.unwrap()).unwrap();
    let names = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(
        names(&flow),
        [
            "after",
            "asks",
            "caller",
            "ends",
            "found",
            "id",
            "kind",
            "missing",
            "outs",
            "server",
            "server_url",
            "taken"
        ]
    );
    assert_eq!(
        flow["kind"],
        json!({"Managed": {"pages": "http://gateway"}})
    );
    assert_eq!(
        names(&flow["asks"]["Authorization"]),
        ["begun", "browser", "client", "is_client_named"]
    );
    let state = FlowState {
        last: Some((FlowId::of(""), FlowOutcome::Declined { said: None })),
        ..FlowState::default()
    };
    let state = serde_json::to_value(state).unwrap();
    assert_eq!(names(&state), ["declined_until", "ends", "flow", "last"]);
    assert_eq!(state["last"][1], json!({"Declined": {"said": null}}));
}
