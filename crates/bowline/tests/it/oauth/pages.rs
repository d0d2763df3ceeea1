//! The pages that people see: where they may lead, who may press their button, and what stands between
//! them and the browser.

use http::StatusCode;
use reqwest::redirect::Policy;
use reqwest::{Method, Response};

use crate::kit::browser::{Browser, form_of};
use crate::kit::signing::{OAuthStage, token_of};

const PUBLIC: &str = "https://gw.example.com";

/// A proxy on this machine: what it makes of a browser's request.
struct Proxy<'a> {
    stage: &'a OAuthStage,
    /// What its pages' addresses begin with.
    public: String,
    /// What it says in `Host`; that of its connection, if nothing.
    host: Option<&'static str>,
}

impl Proxy<'_> {
    /// A request of a page of this origin, or of none.
    async fn send(&self, method: Method, url: &str, more: &[(&str, &str)]) -> Response {
        self.send_form(method, url, more, String::new()).await
    }

    async fn send_form(
        &self,
        method: Method,
        url: &str,
        more: &[(&str, &str)],
        form: String,
    ) -> Response {
        let path = url.strip_prefix(&self.public).expect(url);
        let inner = format!("http://{}{path}", self.stage.gateway.listen());
        let http = reqwest::Client::builder().redirect(Policy::none());
        let mut request = http.build().unwrap().request(method, inner);
        if let Some(host) = self.host {
            request = request.header("host", host);
        }
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        request.body(form).send().await.unwrap()
    }
}

async fn behind_a_proxy(public: &str, host: Option<&'static str>) {
    let stage = OAuthStage::set_with(
        |_| {},
        |config| config.oauth.public_url = Some(public.parse().unwrap()),
    )
    .await;
    let proxy = Proxy {
        stage: &stage,
        public: public.to_owned(),
        host,
    };
    let client = stage.client(None).await;
    let link = stage.link(&client).await;
    let page = proxy.send(Method::GET, &link, &[]).await;
    assert_eq!(page.status(), 200, "{public} {host:?}");
    for stranger in ["http://localhost:3000", "https://evil.example", "null"] {
        let refused = proxy
            .send(Method::POST, &link, &[("origin", stranger)])
            .await;
        assert_eq!(refused.status(), 403, "{stranger}");
    }
    let set_out = proxy.send(Method::POST, &link, &[("origin", PUBLIC)]).await;
    assert_eq!(set_out.status(), 303, "{public} {host:?}");
    let cookie = set_out.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("__Host-"), "{cookie}");
    for part in ["; Path=/;", "; Secure", "; HttpOnly", "; SameSite=Lax"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let location = url::Url::parse(set_out.headers()["location"].to_str().unwrap()).unwrap();
    let query = |name: &str| {
        let mut pairs = location.query_pairs();
        pairs
            .find(|(known, _)| known == name)
            .unwrap()
            .1
            .into_owned()
    };
    assert_eq!(query("redirect_uri"), format!("{public}/oauth/callback"));
    let issuer = stage.words.lock().authority.clone();
    let back = [
        ("state", &*query("state")),
        ("code", "code"),
        ("iss", &issuer),
    ];
    let back = url::Url::parse_with_params(&query("redirect_uri"), back).unwrap();
    let shown = cookie.split(';').next().unwrap();
    let (_, value) = shown.split_once("__Host-").unwrap();
    let mut form = String::new();
    for method in [Method::GET, Method::POST] {
        let planted = proxy
            .send(method.clone(), back.as_str(), &[("cookie", value)])
            .await;
        assert_eq!(planted.status(), 404, "a name that siblings can set");
        let own = [("cookie", shown), ("origin", PUBLIC)];
        let page = proxy.send_form(method, back.as_str(), &own, form).await;
        assert_eq!(page.status(), 200, "{public} {host:?}");
        form = format!("{}1", form_of(&page.text().await.unwrap()));
    }
    assert_eq!(token_of(&client).await, "token-code");
}

#[tokio::test]
async fn a_proxy_on_the_same_machine_may_keep_the_host_or_not() {
    behind_a_proxy(PUBLIC, None).await;
    behind_a_proxy(PUBLIC, Some("gw.example.com")).await;
}

#[tokio::test]
async fn a_proxy_may_have_a_path_for_the_gateway() {
    let public = format!("{PUBLIC}/some/bowline");
    behind_a_proxy(&public, None).await;
    behind_a_proxy(&public, Some("gw.example.com")).await;
}

#[tokio::test]
async fn by_http_the_cookie_goes_where_the_proxy_has_the_pages() {
    let stage = OAuthStage::set_with(
        |_| {},
        |config| config.oauth.public_url = Some("http://localhost:81/bowline/".parse().unwrap()),
    )
    .await;
    let client = stage.client(None).await;
    let link = stage.link(&client).await;
    let own = link.strip_prefix("http://localhost:81/bowline").unwrap();
    let own = format!("http://{}{own}", stage.gateway.listen());
    let set_out = Browser::new().submit(&own).await;
    let cookie = set_out.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("; Path=/bowline/oauth;"), "{cookie}");
    assert!(!cookie.contains("Secure"), "{cookie}");
}

#[tokio::test]
async fn a_page_of_another_port_does_not_press_the_button() {
    let stage = OAuthStage::set_with(
        |_| {},
        |config| config.origins = vec!["https://app.example".to_owned()],
    )
    .await;
    let client = stage.client(None).await;
    let link = stage.link(&client).await;
    let own = format!("http://{}", stage.gateway.listen());
    let press = async |origin: &str| {
        let http = reqwest::Client::builder().redirect(Policy::none());
        let request = http.build().unwrap().post(&link).header("origin", origin);
        request.send().await.unwrap()
    };
    for other in [
        "http://localhost:3000",
        "http://127.0.0.1:3000",
        "https://app.example",
    ] {
        let refused = press(other).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{other}");
        let headers = refused.headers();
        assert!(
            !headers.contains_key("access-control-allow-origin"),
            "{other}"
        );
    }
    assert_eq!(press(&own).await.status(), 303);
}

#[tokio::test]
async fn pages_are_taken_for_what_they_are_and_the_last_ones_have_no_form() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let link = stage.link(&client).await;
    let mut browser = Browser::new();
    let start = browser.get(&link).await;
    let policy = start.headers["content-security-policy"].to_str().unwrap();
    // Browsers hold every redirect behind the form against it, and those lead to wherever an
    // authorization server has people sign in.
    assert!(!policy.contains("form-action"), "{policy}");
    let opened = browser.open(&link).await;
    let done = stage.come_back(&browser, &opened.state, "code").await;
    let gone = stage.come_back(&browser, &opened.state, "code").await;
    for page in [&done, &gone] {
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("form-action 'none'"), "{policy}");
    }
    for page in [start, done, gone] {
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
    }
}
