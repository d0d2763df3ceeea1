//! Who Bowline is at an authorization server that forgets its clients, as many do: nobody is locked
//! out by it. And what a refresh token is good for.

use bowline::Gateway;
use bowline::config::{Client as Registered, Flow, Server, ServerOAuth};
use serde_json::{Value, json};

use crate::kit::asking::{accept, gateway, question, reply, session, stream, text};
use crate::kit::browser::Browser;
use crate::kit::client::Client;
use crate::kit::messages::call;
use crate::kit::protected::Protected;
use crate::kit::signing::{OAuthStage, token_of};

impl OAuthStage {
    /// The authorization server forgets whoever registered so far.
    fn forget_clients(&self) {
        let mut words = self.words.lock();
        let known = std::mem::replace(&mut words.client_id, "registered-anew".to_owned());
        words.forgotten.push(known);
    }
}

async fn with_refresh_tokens() -> OAuthStage {
    OAuthStage::saying(|words| words.refresh_token = Some("refresh".to_owned())).await
}

#[tokio::test]
async fn a_client_that_is_forgotten_at_a_refresh_leads_to_a_sign_in() {
    let stage = with_refresh_tokens().await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "one").await;
    assert_eq!(token_of(&client).await, "token-one");
    stage.forget_clients();
    stage.words.lock().only_token = Some("token-two".to_owned());
    stage.sign_in(&client, "two").await;
    assert_eq!(token_of(&client).await, "token-two");
    assert_eq!(stage.registrations(), 2);
}

#[tokio::test]
async fn a_client_that_is_forgotten_at_an_exchange_is_registered_anew() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let mut browser = Browser::new();
    let opened = browser.open(&stage.link(&client).await).await;
    stage.forget_clients();
    let page = stage.come_back(&browser, &opened.state, "one").await;
    assert_eq!(page.status, 502);
    assert!(page.text.contains("invalid_client"), "{}", page.text);
    stage.sign_in(&client, "two").await;
    assert_eq!(token_of(&client).await, "token-two");
    assert_eq!(stage.registrations(), 2);
}

/// What people allow one server's client, the other's has not.
#[tokio::test]
async fn servers_that_name_one_authorization_server_are_two_clients_there() {
    let second = Protected::apart(|words| words.challenge.clear()).await;
    let url = second.url();
    let stage = OAuthStage::set_with(
        |_| {},
        |config| {
            let mut server = Server::from_url(&url).unwrap();
            server.oauth = Some(ServerOAuth::default());
            config.servers.insert("second".parse().unwrap(), server);
        },
    )
    .await;
    second.words.lock().resource["authorization_servers"] = json!([stage.issuer()]);
    for (name, id) in [("s", "of-s"), ("second", "of-second")] {
        stage.words.lock().client_id = id.to_owned();
        let mut client = Client::new(&stage.gateway);
        client.url = format!("http://{}/mcp/{name}", stage.gateway.listen());
        assert_eq!(client.initialize().await.status, 200);
        let opened = Browser::new().open(&stage.link(&client).await).await;
        let mut query = opened.authorize_url.query_pairs();
        let (_, client_id) = query.find(|(name, _)| name == "client_id").unwrap();
        assert_eq!(client_id, id);
    }
    assert_eq!(stage.registrations(), 2);
    assert_eq!(second.registrations(), 0);
}

/// An authorization server that knows no such client tells nobody but the person.
#[tokio::test]
async fn who_asks_for_another_link_is_sent_as_another_client() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let mut browser = Browser::new();
    browser.open(&stage.link(&client).await).await;
    stage.forget_clients();
    let mut tool = call(2);
    tool["params"]["name"] = json!("sign_in");
    let told = client.send(&tool).await.json();
    let told = told["result"]["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    let link = told
        .split(' ')
        .find(|word| word.starts_with("http"))
        .unwrap();
    let mut browser = Browser::new();
    let opened = browser.open(link).await;
    let mut query = opened.authorize_url.query_pairs();
    assert_eq!(
        query.find(|(name, _)| name == "client_id").unwrap().1,
        "registered-anew"
    );
    let page = stage.come_back(&browser, &opened.state, "two").await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert_eq!(token_of(&client).await, "token-two");
}

/// Who presses and asks again all day uses up no authorization server's patience with the others.
#[tokio::test]
async fn who_asks_again_and_again_is_not_another_client_each_time() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let mut tool = call(2);
    tool["params"]["name"] = json!("sign_in");
    for _ in 0..6 {
        Browser::new().open(&stage.link(&client).await).await;
        client.send(&tool).await;
    }
    assert_eq!(stage.registrations(), 2);
    stage.sign_in(&client, "one").await;
    assert_eq!(token_of(&client).await, "token-one");
}

#[tokio::test]
async fn a_server_that_takes_no_token_is_not_worth_a_refresh_for_each_request() {
    let stage = OAuthStage::saying(|words| {
        words.refresh_token = Some("refresh".to_owned());
        words.challenge = "Bearer".to_owned();
    })
    .await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "one").await;
    assert_eq!(token_of(&client).await, "token-one");
    let exchanged = stage.token_requests().len();
    stage.words.lock().only_token = Some("none".to_owned());
    for _ in 0..5 {
        stage.link(&client).await;
    }
    assert_eq!(stage.token_requests().len(), exchanged + 1);
    // A server that takes it again has it again.
    stage.words.lock().only_token = None;
    assert_eq!(token_of(&client).await, "token-");
}

async fn handed(server: &Protected, configured: Option<&str>) -> (Gateway, Client) {
    let gateway = gateway(server, Flow::ClientDriven, |config| {
        let server = config.servers.values_mut().next().unwrap();
        server.oauth.as_mut().unwrap().client = configured.map(|id| Registered {
            id: id.to_owned(),
            secret: None,
        });
    })
    .await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    // Over in a moment, so that the next request needs another.
    let tokens = json!({"access_token": "good-handed", "refresh_token": "handed", "expires_in": 3});
    reply(&client, &asked, &accept(&tokens)).await;
    assert_eq!(text(&events.next_message().await.1), "good-handed");
    (gateway, client)
}

#[tokio::test]
async fn a_handed_refresh_token_is_the_configured_clients() {
    let server = Protected::alone().await;
    let (_gateway, client) = handed(&server, Some("configured")).await;
    let refreshed: Value = loop {
        let answer = client.send(&call(2)).await.json();
        if text(&answer) != "good-handed" {
            break answer;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert_eq!(text(&refreshed), "good-1");
    let asked = &server.token_requests()[0];
    assert_eq!(asked["refresh_token"], "handed");
    assert_eq!(asked["client_id"], "configured");
}
