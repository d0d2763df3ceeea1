//! The id that a server issued is used with that server, always, and never any other.

use bowline::Gateway;
use bowline_testbed::scripted::Scripted;
use bowline_testbed::strict::Strict;
use http::{HeaderName, HeaderValue};
use proptest::prelude::{Strategy, any, prop};
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::json;

use crate::kit::client::Client;
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::call;

/// The one header that the property's operator lets through.
const LET_THROUGH: &str = "x-let-through";

const ODD: &str = r#"~!{odd}|id;with="every",thing\[0]@%20^`<>"#;

#[tokio::test]
async fn the_issued_id_is_on_every_later_request_and_initialize_has_none() {
    let server = Strict::start(Some(ODD)).await;
    let gateway = gateway(server.url()).await;
    let mut client = Client::new(&gateway);
    let opened = client.initialize().await;
    let ours = opened.headers["mcp-session-id"].clone();
    assert_ne!(ours, ODD);
    assert_eq!(opened.headers.get_all("mcp-session-id").iter().count(), 1);
    for message in [
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
        call(2),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}),
    ] {
        let answer = client.send(&message).await;
        assert!(answer.status.is_success(), "{message}: {}", answer.text);
        assert!(!answer.headers.contains_key("mcp-session-id"));
    }
    let stream = client.get().send().await.unwrap();
    assert_eq!(
        stream.status(),
        200,
        "GET is served even over a server that has none"
    );
    assert_eq!(client.delete().send().await.unwrap().status(), 204);
    // The upstream's DELETE follows; dropping the session is what the client was told.
    let seen = until(&server, "DELETE").await;
    let methods: Vec<&str> = seen.methods.iter().map(String::as_str).collect();
    assert_eq!(
        methods,
        [
            "initialize",
            "notifications/initialized",
            "tools/list",
            "tools/call",
            "notifications/cancelled",
            "GET",
            "DELETE"
        ]
    );
    assert_eq!(seen.complaints, [""; 0]);
    assert_eq!(seen.session_ids, [ODD; 6]);
}

/// Waits until the server has seen this method.
async fn until(server: &Strict, method: &str) -> bowline_testbed::strict::Observed {
    let seen = async {
        loop {
            let observed = server.observed();
            if observed.methods.iter().any(|seen| seen == method) {
                return observed;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(bowline_testbed::scripted::PATIENCE, seen)
        .await
        .expect(method)
}

#[tokio::test]
async fn a_server_that_issues_no_id_gets_none() {
    let server = Strict::start(None).await;
    let gateway = gateway(server.url()).await;
    let mut client = Client::new(&gateway);
    assert_eq!(client.initialize().await.status, 200);
    assert!(
        client.session.is_some(),
        "the client's session is Bowline's own"
    );
    assert_eq!(client.send(&call(1)).await.status, 200);
    assert_eq!(client.delete().send().await.unwrap().status(), 204);
    assert_eq!(client.send(&call(2)).await.status, 404);
    let seen = server.observed();
    assert_eq!((seen.session_ids.len(), seen.complaints.len()), (0, 0));
}

#[tokio::test]
async fn a_clients_own_choice_of_id_is_never_adopted() {
    let server = Strict::start(Some(ODD)).await;
    let gateway = gateway(server.url()).await;
    let mut client = Client::new(&gateway);
    client.session = Some(HeaderValue::from_static("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"));
    let opened = client.initialize().await;
    assert_eq!(opened.status, 200);
    assert_ne!(
        client.session.as_ref().unwrap(),
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    );
    assert_eq!(server.observed().session_ids.len(), 0);
}

#[tokio::test]
async fn an_id_outside_visible_ascii_is_the_servers_fault() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    for bad in ["", "two words", "é"] {
        let mut client = Client::new(&gateway);
        let (answer, ()) = tokio::join!(client.initialize(), async {
            server.next().await.initialized(Some(bad));
        });
        assert_eq!(answer.status, 502, "{bad:?}");
        assert!(answer.text.contains("session id"), "{}", answer.text);
    }
    server.finish();
}

/// Arbitrary headers and ids from clients, on every method: the strict server complains about any
/// session id but its own, and no value that a client sent may reach it in any header, unless the
/// operator lets that header through; and then under its own name only, and never one of those
/// that are Bowline's own, whatever the operator's list says.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_from_a_clients_headers_reaches_the_server_as_a_session_id() {
    let server = Strict::start(Some(ODD)).await;
    let mut config = config(&[("s", server.url())]);
    let configured = config.servers.values_mut().next().unwrap();
    let names = [LET_THROUGH, "mcp-session-id", "authorization", "cookie"];
    configured.forward_headers = names.map(HeaderName::from_static).to_vec();
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Client::new(&gateway);
    client.initialize().await;
    let mut passed = 0;
    let good = client.session.clone().unwrap();
    let mut runner = TestRunner::deterministic();
    for round in 0..200 {
        let headers = hostile_headers().new_tree(&mut runner).unwrap().current();
        let named = session_header(&good)
            .new_tree(&mut runner)
            .unwrap()
            .current();
        client.session = named;
        let request = match round % 6 {
            0 => client.post(&crate::kit::messages::initialize_message()),
            1 => client.post(&call(round)),
            2 => client.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
            3 => client.get(),
            // The good id would end the session that the other rounds need.
            4 if client.session.as_ref() != Some(&good) => client.delete(),
            _ => client.post(&json!({"jsonrpc": "2.0", "id": "made-up", "result": {}})),
        };
        let mut request = request;
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        // Dropped without reading: the stream of a GET would never end.
        drop(request.send().await.unwrap());
        let seen = server.observed();
        assert_eq!(seen.complaints, [""; 0], "{headers:?}");
        assert!(
            seen.other_headers.iter().all(|(_, value)| *value != good),
            "Bowline's own id"
        );
        for (name, value) in headers {
            assert!(!seen.session_ids.contains(&value), "{name} {value:?}");
            let arrived: Vec<_> = seen
                .other_headers
                .iter()
                .filter(|(_, arrived)| *arrived == value)
                .collect();
            passed += arrived.len();
            let leaked = arrived.iter().any(|(as_name, _)| *as_name != LET_THROUGH);
            assert!(!leaked, "{name} {value:?}");
        }
    }
    assert!(
        server.observed().session_ids.len() > 20,
        "the good id was used, too"
    );
    assert!(passed > 5, "what may pass does");
}

fn hostile_headers() -> impl Strategy<Value = Vec<(HeaderName, HeaderValue)>> {
    let name = prop::sample::select(vec![
        "mcp-session-id",
        "x-mcp-session-id",
        "mcp-session",
        "cookie",
        "authorization",
        "x-session-id",
        "forwarded",
        "x-forwarded-for",
        "proxy-authorization",
        "mcp-name",
        "baggage",
        "set-cookie",
        LET_THROUGH,
    ]);
    // Long enough that none is by chance a value that Bowline itself sends.
    let value = "[!-~]{24,60}".prop_map(|text| HeaderValue::from_str(&text).unwrap());
    prop::collection::vec((name.prop_map(HeaderName::from_static), value), 0..5)
}

fn session_header(good: &HeaderValue) -> impl Strategy<Value = Option<HeaderValue>> {
    let good = good.clone();
    (any::<u8>(), "[!-~]{1,64}").prop_map(move |(choice, text)| match choice % 4 {
        0 => None,
        1 => Some(HeaderValue::from_str(&text).unwrap()),
        2 => Some(HeaderValue::from_static(ODD)),
        _ => Some(good.clone()),
    })
}
