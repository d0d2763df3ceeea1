//! Discovery against a server and an authorization server that the test plays: each request is
//! expected, in this order, and no other comes.

use bowline_egress::{FetchError, Reach, Tls};
use bowline_testbed::scripted::Scripted;
use serde_json::json;

use super::*;
use crate::oauth::auth_server::AuthServer;

/// Both sides that are asked.
struct Sides {
    server: Scripted,
    auth_server: Scripted,
}

/// One expected request: to whom, for what, and its answer.
enum Step {
    Server(&'static str, u16, Value),
    Issuer(&'static str, u16, Value),
}
use Step::{Issuer, Server};

impl Sides {
    async fn start() -> Self {
        Self {
            server: Scripted::start().await,
            auth_server: Scripted::start().await,
        }
    }

    /// The origin of the server, which is at `/mcp` there.
    fn origin(&self) -> String {
        self.server.url().replace("/mcp", "")
    }

    fn issuer(&self) -> String {
        self.auth_server.url().replace("/mcp", "")
    }

    /// What a good server publishes about itself.
    fn resource(&self, issuer: &str) -> Value {
        json!({"resource": self.server.url(), "authorization_servers": [issuer]})
    }

    /// Discovers, while the sides answer as scripted.
    async fn discover(
        &mut self,
        challenge: Option<&Challenge>,
        steps: Vec<Step>,
    ) -> Result<Discovery, AuthServerError> {
        let server: Uri = self.server.url().parse().unwrap();
        let fetch = Fetch::new(Reach::new(&server, false), Tls::platform());
        let auth_server = AuthServer::new(&server, fetch);
        let answering = async {
            for step in steps {
                let (asked, target, status, body) = match step {
                    Server(target, status, body) => {
                        (self.server.next().await, target, status, body)
                    }
                    Issuer(target, status, body) => {
                        (self.auth_server.next().await, target, status, body)
                    }
                };
                assert_eq!((asked.method.as_str(), &*asked.target), ("GET", target));
                assert_eq!(asked.header("accept"), "application/json");
                asked.reply(status, &[], body.to_string());
            }
        };
        tokio::join!(auth_server.discover(challenge), answering).0
    }

    fn finish(self) {
        self.server.finish();
        self.auth_server.finish();
    }
}

/// What a good authorization server publishes.
fn published(issuer: &str) -> Value {
    json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["plain", "S256"],
        "x_unknown": [1],
    })
}

fn challenge(resource_metadata: Option<&str>, scopes: &[&str]) -> Challenge {
    Challenge {
        resource_metadata: resource_metadata.map(str::to_owned),
        scopes: scopes.iter().map(|&scope| scope.to_owned()).collect(),
        error: None,
    }
}

/// Steps to a server that publishes `resource`, at the usual place for `/mcp`.
fn usual(resource: Value) -> Step {
    Server("/.well-known/oauth-protected-resource/mcp", 200, resource)
}

const OAUTH: &str = "/.well-known/oauth-authorization-server";
const OIDC: &str = "/.well-known/openid-configuration";

#[tokio::test]
async fn a_challenge_says_where_to_look() {
    let mut sides = Sides::start().await;
    let issuer = format!("{}/tenant", sides.issuer());
    let named = format!("{}/elsewhere?a=b", sides.origin());
    let resource = sides.resource(&issuer);
    let steps = vec![
        Server("/elsewhere?a=b", 200, resource.clone()),
        Issuer(
            "/.well-known/oauth-authorization-server/tenant",
            404,
            json!({}),
        ),
        Issuer("/.well-known/openid-configuration/tenant", 403, json!({})),
        Issuer(
            "/tenant/.well-known/openid-configuration",
            200,
            published(&issuer),
        ),
    ];
    let found = sides
        .discover(Some(&challenge(Some(&named), &[])), steps)
        .await
        .unwrap();
    assert_eq!(found.resource, sides.server.url());
    assert_eq!(found.issuer, issuer);
    assert_eq!(Value::Object(found.metadata), published(&issuer));
    assert_eq!(found.resource_metadata.map(Value::Object), Some(resource));
    assert!(found.scopes.is_empty());
    sides.finish();
}

#[tokio::test]
async fn a_challenge_may_say_it_without_a_host() {
    let mut sides = Sides::start().await;
    let issuer = sides.issuer();
    let steps = vec![
        Server("/elsewhere", 200, sides.resource(&issuer)),
        Issuer(OAUTH, 200, published(&issuer)),
    ];
    let challenge = challenge(Some("/elsewhere"), &[]);
    sides.discover(Some(&challenge), steps).await.unwrap();
    sides.finish();
}

#[tokio::test]
async fn a_document_that_is_too_large_is_not_kept() {
    let mut sides = Sides::start().await;
    let issuer = sides.issuer();
    let mut large = published(&issuer);
    large["x_unknown"] = "x".repeat(MAX_DOCUMENT).into();
    // A large page for people is none.
    let page = json!("x".repeat(MAX_DOCUMENT));
    let resource = sides.resource(&issuer);
    let steps = vec![
        usual(page),
        Server("/.well-known/oauth-protected-resource", 200, resource),
        Issuer(OAUTH, 200, large),
    ];
    let refused = sides.discover(None, steps).await;
    assert!(
        matches!(refused, Err(AuthServerError::DocumentTooLarge { .. })),
        "{refused:?}"
    );
    sides.finish();
}

#[tokio::test]
async fn without_a_challenge_the_usual_places_are_tried() {
    let mut sides = Sides::start().await;
    let issuer = sides.issuer();
    let mut resource = sides.resource(&issuer);
    resource["resource"] = sides.origin().into();
    let steps = vec![
        // Neither a page for people nor a document about something else is what is looked for.
        usual(json!("<html>")),
        Server("/.well-known/oauth-protected-resource", 200, resource),
        Issuer(OAUTH, 200, json!([1])),
        Issuer(OIDC, 200, published(&issuer)),
    ];
    let found = sides.discover(None, steps).await.unwrap();
    assert_eq!(
        found.resource,
        sides.origin(),
        "as it was published, without a slash"
    );
    assert_eq!(found.issuer, issuer);
    sides.finish();
}

#[tokio::test]
async fn somebody_elses_document_is_refused() {
    for resource in [
        "https://evil.example/mcp",
        "{}/other",
        "{}/mc",
        "{}/mcp/more",
    ] {
        let mut sides = Sides::start().await;
        let mut document = sides.resource(&sides.issuer());
        document["resource"] = resource.replace("{}", &sides.origin()).into();
        let steps = vec![
            Server("/named", 200, document),
            Server("/.well-known/oauth-protected-resource/mcp", 404, json!({})),
            Server("/.well-known/oauth-protected-resource", 404, json!({})),
        ];
        let challenge = challenge(Some("/named"), &[]);
        let failed = sides.discover(Some(&challenge), steps).await;
        assert!(
            matches!(failed, Err(AuthServerError::ResourceMismatch)),
            "{failed:?}"
        );
        sides.finish();
    }
}

#[tokio::test]
async fn an_authorization_server_must_be_the_one_that_was_named() {
    for claimed in [
        json!("https://evil.example"),
        json!(null),
        json!("{}/tenant/"),
        json!("{}"),
    ] {
        let mut sides = Sides::start().await;
        let issuer = format!("{}/tenant", sides.issuer());
        let mut document = published(&issuer);
        document["issuer"] = match claimed.as_str() {
            Some(claimed) => claimed.replace("{}", &sides.issuer()).into(),
            None => claimed,
        };
        let steps = vec![
            usual(sides.resource(&issuer)),
            Issuer(
                "/.well-known/oauth-authorization-server/tenant",
                200,
                document,
            ),
            Issuer("/.well-known/openid-configuration/tenant", 404, json!({})),
            Issuer("/tenant/.well-known/openid-configuration", 404, json!({})),
        ];
        let failed = sides.discover(None, steps).await;
        assert!(
            matches!(failed, Err(AuthServerError::IssuerMismatch)),
            "{failed:?}"
        );
        sides.finish();
    }
}

#[tokio::test]
async fn without_s256_nobody_signs_in() {
    for methods in [json!(null), json!([]), json!(["plain"]), json!("S256")] {
        let mut sides = Sides::start().await;
        let issuer = sides.issuer();
        let mut document = published(&issuer);
        document["code_challenge_methods_supported"] = methods;
        let steps = vec![usual(sides.resource(&issuer)), Issuer(OAUTH, 200, document)];
        let failed = sides.discover(None, steps).await;
        assert!(matches!(failed, Err(AuthServerError::NoS256)), "{failed:?}");
    }
}

#[tokio::test]
async fn endpoints_must_be_of_the_web() {
    for (name, endpoint) in [
        ("authorization_endpoint", "javascript:alert(1)"),
        ("authorization_endpoint", "file:///etc/passwd"),
        ("authorization_endpoint", "http://user@127.0.0.1/authorize"),
        ("authorization_endpoint", "http://127.0.0.1/authorize#part"),
        ("authorization_endpoint", "http://127.0.0.1/ $(touch x)"),
        ("authorization_endpoint", ""),
        ("token_endpoint", "ftp://127.0.0.1/token"),
        ("response_types_supported", "token"),
    ] {
        let mut sides = Sides::start().await;
        let issuer = sides.issuer();
        let mut document = published(&issuer);
        document[name] = endpoint.into();
        let steps = vec![usual(sides.resource(&issuer)), Issuer(OAUTH, 200, document)];
        let failed = sides.discover(None, steps).await;
        let expected = matches!(
            failed,
            Err(AuthServerError::Malformed(_)
                | AuthServerError::Unreachable(FetchError::NotWeb | FetchError::Userinfo))
        );
        assert!(expected, "{endpoint}: {failed:?}");
    }
}

#[tokio::test]
async fn nobody_is_sent_to_where_only_the_gateway_can_go() {
    let mut sides = Sides::start().await;
    let named = challenge(Some("http://169.254.169.254/latest/meta-data/"), &[]);
    let failed = sides.discover(Some(&named), Vec::new()).await;
    let out_of_reach = |failed: &Result<Discovery, AuthServerError>| {
        matches!(
            failed,
            Err(AuthServerError::Unreachable(FetchError::OutOfReach(..)))
        )
    };
    assert!(out_of_reach(&failed), "{failed:?}");
    let steps = vec![usual(sides.resource("http://10.0.0.1"))];
    let failed = sides.discover(None, steps).await;
    assert!(out_of_reach(&failed), "{failed:?}");
    sides.finish();
}

#[tokio::test]
async fn the_first_authorization_server_that_publishes_is_taken() {
    let mut sides = Sides::start().await;
    let (first, second) = (format!("{}?a", sides.issuer()), sides.issuer());
    let mut resource = sides.resource("");
    resource["authorization_servers"] = json!([first, 7, second]);
    let steps = vec![usual(resource), Issuer(OAUTH, 200, published(&second))];
    assert_eq!(sides.discover(None, steps).await.unwrap().issuer, second);
    let steps = vec![
        usual(sides.resource(&second)),
        Issuer(OAUTH, 404, json!({})),
        Issuer(OIDC, 404, json!({})),
    ];
    let failed = sides.discover(None, steps).await;
    assert!(
        matches!(failed, Err(AuthServerError::NoSupport)),
        "{failed:?}"
    );
    sides.finish();
}

#[tokio::test]
async fn a_server_may_grant_access_to_itself() {
    let mut sides = Sides::start().await;
    let mut document = published(&sides.origin());
    document["issuer"] = format!("{}/", sides.origin()).into();
    let steps = vec![
        Server("/.well-known/oauth-protected-resource/mcp", 404, json!({})),
        Server("/.well-known/oauth-protected-resource", 404, json!({})),
        Server(OAUTH, 200, document),
    ];
    let found = sides.discover(None, steps).await.unwrap();
    assert_eq!(found.resource, sides.server.url());
    assert_eq!(
        found.issuer,
        format!("{}/", sides.origin()),
        "as it is published"
    );
    assert_eq!(found.resource_metadata, None);
    sides.finish();
}

/// A server that publishes nothing, and answers this where its own metadata would be.
fn nothing(status: u16) -> Vec<Step> {
    vec![
        Server("/.well-known/oauth-protected-resource/mcp", 404, json!({})),
        Server("/.well-known/oauth-protected-resource", 404, json!({})),
        Server(OAUTH, status, json!({})),
        Server(OIDC, 404, json!({})),
    ]
}

#[tokio::test]
async fn the_oldest_servers_publish_nothing_and_want_a_bearer_token() {
    let mut sides = Sides::start().await;
    let wants_bearer = challenge(None, &["a"]);
    let found = sides
        .discover(Some(&wants_bearer), nothing(404))
        .await
        .unwrap();
    let origin = sides.origin();
    assert_eq!(
        found.metadata["authorization_endpoint"],
        format!("{origin}/authorize")
    );
    assert_eq!(found.metadata["token_endpoint"], format!("{origin}/token"));
    assert_eq!(
        found.metadata["registration_endpoint"],
        format!("{origin}/register")
    );
    assert_eq!((found.issuer, found.scopes), (origin, vec!["a".to_owned()]));
    // Who says nothing about tokens at all has no endpoints that one could guess.
    let failed = sides.discover(None, nothing(404)).await;
    assert!(
        matches!(failed, Err(AuthServerError::NoSupport)),
        "{failed:?}"
    );
    // Nor has who says that there is a document.
    let mut steps = nothing(404);
    steps.insert(0, Server("/named", 404, json!({})));
    let failed = sides
        .discover(Some(&challenge(Some("/named"), &[])), steps)
        .await;
    assert!(
        matches!(failed, Err(AuthServerError::NoSupport)),
        "{failed:?}"
    );
    // And who is in trouble has not said that there is none.
    let failed = sides.discover(Some(&wants_bearer), nothing(503)).await;
    let is_trouble = matches!(failed, Err(AuthServerError::Unavailable(status)) if status == 503);
    assert!(is_trouble, "{failed:?}");
    sides.finish();
}

#[tokio::test]
async fn scopes_come_from_the_challenge_or_else_from_the_server() {
    let mut sides = Sides::start().await;
    let issuer = sides.issuer();
    for (challenged, listed, offered, expected) in [
        (&["c", "d"][..], json!(["a"]), json!(["x"]), "c d"),
        (&[], json!(["a", "b"]), json!(["x"]), "a b"),
        (&[], json!(null), json!(["x", "offline_access"]), ""),
        (
            &[],
            json!(["a"]),
            json!(["offline_access", "a"]),
            "a offline_access",
        ),
        (
            &["offline_access"],
            json!(null),
            json!(["offline_access"]),
            "offline_access",
        ),
    ] {
        let mut resource = sides.resource(&issuer);
        resource["scopes_supported"] = listed;
        let mut document = published(&issuer);
        document["scopes_supported"] = offered;
        let steps = vec![usual(resource), Issuer(OAUTH, 200, document)];
        let challenge = challenge(None, challenged);
        let found = sides.discover(Some(&challenge), steps).await.unwrap();
        assert_eq!(found.scopes.join(" "), expected);
    }
    sides.finish();
}

#[test]
fn a_server_lies_within_its_resource() {
    let server = Url::parse("https://h.example/a/mcp?x=1").unwrap();
    for resource in [
        "https://h.example/a/mcp",
        "https://h.example/a/mcp?x=1",
        "https://h.example/a/mcp/",
        "https://h.example/a",
        "https://h.example/a/",
        "https://h.example/",
        "https://h.example",
        "https://H.example:443",
    ] {
        assert!(is_within(&server, resource), "{resource}");
    }
    for resource in [
        "https://h.example/a/m",
        "https://h.example/a/mcp/more",
        "https://h.example/b",
        "https://h.example/a/mcp?x=2",
        "https://h.example/a/mcp#part",
        "https://u@h.example/a/mcp",
        "http://h.example/a/mcp",
        "https://h.example:8443/a/mcp",
        "https://evil.example/a/mcp",
        "https://h.example.evil.example/a/mcp",
        "h.example/a/mcp",
        "urn:a:mcp",
        "",
    ] {
        assert!(!is_within(&server, resource), "{resource}");
    }
}
