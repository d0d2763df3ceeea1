//! Clients that are web pages: what works for them at a server works for them here, where their origin is
//! let in.

use std::collections::BTreeMap;

use bowline::Gateway;
use bowline::config::{Caller, KeyHash};
use bowline_testbed::scripted::Scripted;
use http::HeaderMap;
use reqwest::{Method, Response};

use crate::kit::client::Client;
use crate::kit::gateway::config;
use crate::kit::messages::call;

const LOCAL: &str = "http://localhost:5173";

const WANTED: &str = "content-type,mcp-protocol-version,mcp-session-id,authorization,x-tenant";

async fn preflight(url: &str, origin: &str) -> Response {
    let request = reqwest::Client::new().request(Method::OPTIONS, url);
    let request = request
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", WANTED);
    request.send().await.unwrap()
}

fn lets_in(headers: &HeaderMap, origin: &str) -> bool {
    headers
        .get("access-control-allow-origin")
        .is_some_and(|it| it == origin)
        && !headers.contains_key("access-control-allow-credentials")
        && headers["vary"] == "Origin"
}

#[tokio::test]
async fn a_browser_is_told_that_a_page_may_ask_and_what_it_may_read() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(config(&[("s", server.url())]))
        .await
        .unwrap();
    let url = format!("http://{}/mcp/s", gateway.listen());
    let asked = preflight(&url, LOCAL).await;
    assert_eq!(asked.status(), 204);
    let headers = asked.headers();
    assert!(lets_in(headers, LOCAL), "{headers:?}");
    assert_eq!(headers["access-control-allow-methods"], "GET, POST, DELETE");
    assert_eq!(headers["access-control-allow-headers"], WANTED);

    let client = Client::open(&gateway, &mut server, "u").await;
    let sending = client.post(&call(1)).header("origin", LOCAL).send();
    let (answer, ()) = tokio::join!(sending, async {
        server.next().await.result(&serde_json::json!({}));
    });
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(lets_in(answer.headers(), LOCAL));
    let readable = answer.headers()["access-control-expose-headers"]
        .to_str()
        .unwrap();
    for name in ["Mcp-Session-Id", "WWW-Authenticate", "Retry-After"] {
        assert!(readable.contains(name), "{readable}");
    }
    // What is refused is read as well; what clients look for before they have a key is, too.
    for path in ["/mcp/nobody", "/.well-known/oauth-protected-resource"] {
        let url = format!("http://{}{path}", gateway.listen());
        assert_eq!(preflight(&url, LOCAL).await.status(), 204, "{path}");
        let refused = Client::at(url).get().header("origin", LOCAL).send().await;
        let refused = refused.unwrap();
        assert_eq!(refused.status(), 404, "{path}");
        assert!(lets_in(refused.headers(), LOCAL), "{path}");
    }
}

#[tokio::test]
async fn pages_that_are_not_let_in_are_told_nothing() {
    let server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.origins = vec!["https://app.example".to_owned()];
    let gateway = Gateway::start(config).await.unwrap();
    let url = format!("http://{}/mcp/s", gateway.listen());
    assert!(lets_in(
        preflight(&url, "https://app.example").await.headers(),
        "https://app.example"
    ));
    for stranger in [
        "https://evil.example",
        "null",
        "https://app.example.evil.example",
    ] {
        let refused = preflight(&url, stranger).await;
        assert_eq!(refused.status(), 403, "{stranger}");
        let named = refused.headers().keys().map(|name| name.as_str());
        let told: Vec<_> = named
            .filter(|name| name.starts_with("access-control"))
            .collect();
        assert!(told.is_empty(), "{stranger}: {told:?}");
    }
    // Nor is anybody whose page has a name that was rebound.
    let rebound = reqwest::Client::new()
        .get(&url)
        .header("origin", "http://evil.example:80")
        .header("host", "evil.example:80");
    assert_eq!(rebound.send().await.unwrap().status(), 403);
    // And nobody is told who asks for nothing across origins.
    let plain = Client::at(url).get().send().await.unwrap();
    assert!(!plain.headers().contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn a_page_learns_that_it_needs_a_key() {
    let server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    let key = KeyHash::of(b"k-ann");
    config.callers = BTreeMap::from([("ann".parse().unwrap(), Caller::with_key(key))]);
    let gateway = Gateway::start(config).await.unwrap();
    let url = format!("http://{}/mcp/s", gateway.listen());
    assert_eq!(preflight(&url, LOCAL).await.status(), 204);
    let mut client = Client::new(&gateway);
    let refused = client.post(&call(1)).header("origin", LOCAL).send().await;
    let refused = refused.unwrap();
    assert_eq!(refused.status(), 401);
    assert!(lets_in(refused.headers(), LOCAL));
    client.key = Some("k-ann");
    let known = client.post(&call(1)).header("origin", LOCAL).send().await;
    assert_eq!(known.unwrap().status(), 400, "no session, but a key");
    // `OPTIONS` that is no browser's question is a request like any other.
    let bare = reqwest::Client::new().request(Method::OPTIONS, &url);
    let bare = bare.header("origin", LOCAL).send().await.unwrap();
    assert_eq!(bare.status(), 401);
}
