//! How clients are asked to sign in, one way for each flow, and what their answers do.

use std::time::Duration;

use bowline::config::{Flow, ToolFilter};
use serde_json::{Value, json};

use crate::kit::asking::{
    REDIRECT, accept, gateway, pass_on, question, reply, session, stream, text,
};
use crate::kit::browser::{browse, come_back, query, set_out};
use crate::kit::events::Events;
use crate::kit::gateway::only;
use crate::kit::messages::{call, list};
use crate::kit::protected::{GOOD, Protected};
use crate::kit::wired::call_of;

const SIGN_IN_NEEDED: i64 = -31003;

#[tokio::test]
async fn a_client_that_drives_itself_gets_the_metadata_and_hands_over_tokens() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::ClientDriven, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let params = &asked["params"];
    let meta = &params["_meta"];
    assert_eq!(meta["bowline/type"], "oauth_flow");
    assert_eq!(meta["bowline/server_url"], server.url());
    assert_eq!(meta["auth_server"], server.issuer());
    assert_eq!(
        meta["auth_server_metadata"]["token_endpoint"],
        format!("{}/token", server.issuer())
    );
    assert_eq!(meta["resource_metadata"]["resource"], server.url());
    assert_eq!(
        meta.as_object().unwrap().len(),
        5,
        "no authorize_url, no state: {meta}"
    );
    assert_eq!(
        params["requestedSchema"]["required"],
        json!(["access_token"])
    );
    // It says which client they are of, so they can be refreshed.
    let tokens = json!({
        "access_token": "good-given", "token_type": "bearer", "expires_in": 1,
        "refresh_token": "theirs", "client_id": "their-client", "scope": "a b",
    });
    reply(&client, &asked, &accept(&tokens)).await;
    let (_, answer) = events.next_message().await;
    assert_eq!(server.registrations(), 0);
    // It may have been renewed before it was first used: it lives for a second.
    assert!(text(&answer).starts_with(GOOD), "{answer}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let answer = client.send(&call(2)).await;
    assert_eq!(text(&answer.json()), "good-1");
    let requests = server.token_requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert_eq!(requests[0]["client_id"], "their-client");
    assert_eq!(requests[0]["refresh_token"], "theirs");
}

#[tokio::test]
async fn tokens_of_an_unnamed_client_expire() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::ClientDriven, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let tokens = json!({"access_token": "good-given", "expires_in": 1, "refresh_token": "theirs"});
    reply(&client, &asked, &accept(&tokens)).await;
    assert_eq!(text(&events.next_message().await.1), "good-given");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut events = stream(&client, &call(2)).await;
    question(&mut events).await;
    assert_eq!(server.token_requests().len(), 0);
}

#[tokio::test]
async fn a_client_that_drives_itself_has_to_hand_over_tokens() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::ClientDriven, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let long = "x".repeat(16 * 1024 + 1);
    for (id, content, why) in [
        (1, json!({"code": "c", "state": "s"}), "client-driven"),
        (2, json!({}), "no access token"),
        (3, Value::Null, "no access token"),
        (4, json!({"access_token": ""}), "empty access token"),
        (
            5,
            json!({"access_token": "good-x", "token_type": "mac"}),
            "not a bearer token",
        ),
        (6, json!({"access_token": "a\r\nX-Evil: 1"}), "HTTP header"),
        (7, json!({"access_token": "good-\0"}), "HTTP header"),
        (8, json!({"access_token": "good-\u{7f}"}), "HTTP header"),
        (
            9,
            json!({"access_token": long}),
            "access token of more than 16384 bytes",
        ),
        (
            10,
            json!({"access_token": "good-x", "client_id": "c", "refresh_token": long}),
            "refresh token of more than 16384 bytes",
        ),
        (
            11,
            json!({"access_token": "good-x", "client_id": long}),
            "client id has more than 4096 bytes",
        ),
    ] {
        let mut events = stream(&client, &call(id)).await;
        let asked = question(&mut events).await;
        reply(&client, &asked, &accept(&content)).await;
        let (_, refused) = events.next_message().await;
        assert_eq!(refused["error"]["code"], SIGN_IN_NEEDED);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(why), "{message}");
    }
    assert_eq!((server.tool_calls(), server.token_requests().len()), (0, 0));
}

#[tokio::test]
async fn a_host_drives_with_the_state_and_the_code_comes_back_once() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |config| {
        config.oauth.meta_prefix = "docker-agent".to_owned();
    })
    .await;
    let client = session(&gateway, &json!({"form": {}})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let meta = &asked["params"]["_meta"];
    assert_eq!(meta["docker-agent/type"], "oauth_flow");
    assert_eq!(meta["docker-agent/server_url"], server.url());
    assert_eq!(meta["auth_server"], server.issuer());
    let authorize = meta["docker-agent/authorize_url"].as_str().unwrap();
    let state = meta["docker-agent/state"].as_str().unwrap();
    assert_eq!(query(authorize, "state"), state);
    assert_eq!(query(authorize, "redirect_uri"), REDIRECT);
    reply(
        &client,
        &asked,
        &accept(&json!({"code": "c", "state": state})),
    )
    .await;
    assert_eq!(text(&events.next_message().await.1), "good-1");
    let requests = server.token_requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0]["redirect_uri"], REDIRECT);
    assert_eq!(requests[0]["client_id"], "registered");
    assert!(requests[0]["code_verifier"].len() >= 43);
    assert_eq!(pass_on(&gateway, state, "c").await, 404);
}

#[tokio::test]
async fn a_wrong_state_ends_the_request_at_once_and_the_right_one_still_counts() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let state = asked["params"]["_meta"]["bowline/state"].as_str().unwrap();
    let mut waiting = stream(&client, &call(2)).await;
    reply(
        &client,
        &asked,
        &accept(&json!({"code": "c", "state": "forged"})),
    )
    .await;
    for events in [&mut events, &mut waiting] {
        ends_with(events, "wrong `state`").await;
    }
    assert_eq!(server.token_requests().len(), 0);
    // The answer was of no use, so the next request asks again, for the same sign-in.
    let mut again = stream(&client, &call(3)).await;
    let second = question(&mut again).await;
    assert_ne!(second["id"], asked["id"]);
    assert_eq!(second["params"]["_meta"]["bowline/state"], state);
    reply(&client, &second, &accept(&json!({"code": "c"}))).await;
    ends_with(&mut again, "wrong `state`").await;
    let mut again = stream(&client, &call(4)).await;
    question(&mut again).await;
    assert_eq!(pass_on(&gateway, state, "c").await, 200);
    // The last question was not answered, and nobody waits for its answer now.
    assert_eq!(
        again.next_message().await.1["method"],
        "notifications/cancelled"
    );
    assert_eq!(text(&again.next_message().await.1), "good-1");
    assert_eq!(server.token_requests().len(), 1);
}

/// The end of a request that was given up with this reason.
async fn ends_with(events: &mut Events, why: &str) -> Value {
    let (_, told) = events.next_message().await;
    assert_eq!(told["error"]["code"], SIGN_IN_NEEDED, "{told}");
    let message = told["error"]["message"].as_str().unwrap();
    assert!(message.contains(why), "{message}");
    told
}

/// Such as a host that has no dialogs yet: whoever waits would wait for nobody.
#[tokio::test]
async fn a_client_that_cannot_ask_yet_is_asked_again_at_the_next_call() {
    for (flow, elicitation, has_link) in [
        (Flow::Managed, json!({"url": {}}), true),
        (Flow::Managed, json!({"form": {}}), true),
        (Flow::Drive, json!({"form": {}}), true),
        (Flow::ClientDriven, json!({}), false),
    ] {
        let server = Protected::alone().await;
        let gateway = gateway(&server, flow, |_| {}).await;
        let client = session(&gateway, &elicitation).await;
        let mut last = Value::Null;
        for id in 1..4 {
            let mut events = stream(&client, &call(id)).await;
            let asked = question(&mut events).await;
            assert_ne!(asked["id"], last);
            last = asked["id"].clone();
            let mut waiting = stream(&client, &call(10 + id)).await;
            let why = json!({"code": -32603, "message": "no elicitation handler configured"});
            let answer = match id {
                1 => json!({"jsonrpc": "2.0", "id": last, "result": {"action": "maybe"}}),
                _ => json!({"jsonrpc": "2.0", "id": last, "error": why}),
            };
            assert_eq!(client.send(&answer).await.status, 202);
            for events in [&mut events, &mut waiting] {
                let told = ends_with(events, "the sign-in prompt").await;
                assert_eq!(told["error"]["data"]["url"].is_string(), has_link);
            }
        }
        assert_eq!((server.token_requests().len(), server.tool_calls()), (0, 0));
        // A prompt that went with its request may be answered late: that is not this one's answer.
        let mut gone = stream(&client, &call(30)).await;
        let early = question(&mut gone).await;
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 30}});
        assert_eq!(client.send(&cancel).await.status, 202);
        gone.ends_cleanly().await;
        // Its flow was never ended: whoever has the link can still sign in.
        let mut events = stream(&client, &call(20)).await;
        let asked = question(&mut events).await;
        let late = json!({"code": -32603, "message": "cancelled"});
        let late = json!({"jsonrpc": "2.0", "id": early["id"], "error": late});
        assert_eq!(client.send(&late).await.status, 202);
        match asked["params"]["url"].as_str() {
            Some(link) => assert_eq!(browse(&gateway, link).await, 200),
            None => reply(&client, &asked, &json!({"action": "decline"})).await,
        }
        let (_, told) = events.next_message().await;
        assert!(!told.to_string().contains("prompt"), "{told}");
    }
}

#[tokio::test]
async fn the_callback_wins_over_a_question_that_nobody_answers() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let state = asked["params"]["_meta"]["bowline/state"].as_str().unwrap();
    assert_eq!(pass_on(&gateway, state, "c").await, 200);
    let (_, withdrawn) = events.next_message().await;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    assert_eq!(text(&events.next_message().await.1), "good-1");
    // The answer comes too late, and does nothing.
    reply(&client, &asked, &json!({"action": "decline"})).await;
    assert_eq!(text(&client.send(&call(2)).await.json()), "good-1");
}

#[tokio::test]
async fn tokens_win_over_a_code() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let state = &asked["params"]["_meta"]["bowline/state"];
    let both = json!({"code": "c", "state": state, "access_token": "good-given"});
    reply(&client, &asked, &accept(&both)).await;
    assert_eq!(text(&events.next_message().await.1), "good-given");
    assert_eq!(server.token_requests().len(), 0);
}

#[tokio::test]
async fn a_link_to_our_own_page_comes_without_secrets() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Managed, |_| {}).await;
    let client = session(&gateway, &json!({"url": {}, "form": {}})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    assert_eq!(asked["params"]["mode"], "url");
    let expected = json!({"bowline/type": "oauth_flow", "bowline/server_url": server.url()});
    assert_eq!(asked["params"]["_meta"], expected);
    // Tokens and codes do not come this way.
    let content = json!({"access_token": "good-given", "code": "c", "state": "s"});
    reply(&client, &asked, &accept(&content)).await;
    let link = asked["params"]["url"].as_str().unwrap();
    assert_eq!(browse(&gateway, link).await, 200);
    assert_eq!(text(&events.next_message().await.1), "good-1");
}

#[tokio::test]
async fn a_client_with_forms_only_is_offered_the_link_by_form() {
    for elicitation in [json!({}), json!({"form": {}})] {
        let server = Protected::alone().await;
        let gateway = gateway(&server, Flow::Managed, |_| {}).await;
        let client = session(&gateway, &elicitation).await;
        let mut events = stream(&client, &call(1)).await;
        let asked = question(&mut events).await;
        let params = &asked["params"];
        assert_eq!(params["mode"], Value::Null);
        // Nothing is to be filled in, and nothing that is counts.
        let nothing = json!({"type": "object", "properties": {}});
        assert_eq!(params["requestedSchema"], nothing);
        let expected = json!({"bowline/type": "oauth_flow", "bowline/server_url": server.url()});
        assert_eq!(params["_meta"], expected);
        let content = json!({"access_token": "good-given", "code": "c", "state": "s"});
        reply(&client, &asked, &accept(&content)).await;
        let message = params["message"].as_str().unwrap();
        let link = &message[message.find("http://").unwrap()..];
        assert_eq!(browse(&gateway, link).await, 200, "{message}");
        assert_eq!(text(&events.next_message().await.1), "good-1");
    }
}

#[tokio::test]
async fn a_no_counts_for_everybody_who_waits_and_for_a_while() {
    for (flow, elicitation) in [
        (Flow::Managed, json!({"url": {}})),
        (Flow::Managed, json!({"form": {}})),
        (Flow::Drive, json!({"form": {}})),
        (Flow::ClientDriven, json!({})),
    ] {
        let server = Protected::alone().await;
        let gateway = gateway(&server, flow, |_| {}).await;
        let client = session(&gateway, &elicitation).await;
        let mut first = stream(&client, &call(0)).await;
        let asked = question(&mut first).await;
        let mut waiting = vec![first];
        for id in 1..4 {
            waiting.push(stream(&client, &call(id)).await);
        }
        reply(&client, &asked, &json!({"action": "decline"})).await;
        // None of them is asked anything: the next message is the refusal.
        for events in &mut waiting {
            let (_, refused) = events.next_message().await;
            assert_eq!(refused["error"]["code"], SIGN_IN_NEEDED, "{flow:?}");
        }
        let later = client.send(&call("later")).await;
        assert_eq!(later.code(), SIGN_IN_NEEDED);
        assert!(later.text.contains("declined"), "{}", later.text);
        // Another session of the same caller is not asked either.
        let other = session(&gateway, &elicitation).await;
        assert_eq!(other.send(&call(1)).await.code(), SIGN_IN_NEEDED);
        assert_eq!(server.token_requests().len(), 0);
    }
}

#[tokio::test]
async fn one_dialog_serves_all_who_wait() {
    for flow in [Flow::Drive, Flow::ClientDriven] {
        let server = Protected::alone().await;
        let gateway = gateway(&server, flow, |_| {}).await;
        let client = session(&gateway, &json!({})).await;
        let mut first = stream(&client, &call(1)).await;
        let asked = question(&mut first).await;
        let mut second = stream(&client, &call(2)).await;
        let tokens = accept(&json!({"access_token": "good-given"}));
        reply(&client, &asked, &tokens).await;
        for events in [&mut first, &mut second] {
            assert_eq!(text(&events.next_message().await.1), "good-given");
        }
        assert_eq!(server.tool_calls(), 2);
    }
}

#[tokio::test]
async fn a_declined_sign_in_is_asked_for_again_by_the_tool() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::ClientDriven, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    reply(&client, &asked, &json!({"action": "cancel"})).await;
    events.next_message().await;
    let mut sign_in = call(2);
    sign_in["params"]["name"] = "sign_in".into();
    let mut events = stream(&client, &sign_in).await;
    let asked = question(&mut events).await;
    let tokens = accept(&json!({"access_token": "good-given"}));
    reply(&client, &asked, &tokens).await;
    assert_eq!(text(&events.next_message().await.1), "Signed in at \"s\".");
    assert_eq!(text(&client.send(&call(3)).await.json()), "good-given");
}

#[tokio::test]
async fn the_tool_is_not_one_of_those_that_the_operator_chooses_from() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Managed, |config| {
        only(config).tools = Some(ToolFilter {
            allow: Some(vec!["t".to_owned()]),
            deny: Vec::new(),
        });
    })
    .await;
    let client = session(&gateway, &Value::Null).await;
    let listed = client.send(&list(1)).await.json();
    assert_eq!(listed["result"]["tools"][0]["name"], "sign_in", "{listed}");
    let sign_in = call_of(2, "sign_in", &json!({}));
    let told = client.send(&sign_in).await.json();
    let link = text(&told).rsplit(' ').next().unwrap();
    let (state, cookie) = set_out(link).await.unwrap();
    assert_eq!(come_back(&gateway, &state, &cookie).await, 200);
    assert_eq!(client.send(&call(3)).await.status, 200);
    // Now it would be the server's.
    assert_eq!(client.send(&sign_in).await.code(), -32602);
    assert_eq!(server.tool_calls(), 1);
}

#[tokio::test]
async fn a_client_without_forms_cannot_hand_over_tokens() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::ClientDriven, |_| {}).await;
    for elicitation in [Value::Null, json!({"url": {}})] {
        let client = session(&gateway, &elicitation).await;
        let refused = client.send(&call(1)).await;
        assert_eq!(refused.code(), SIGN_IN_NEEDED);
        assert_eq!(refused.json()["error"]["data"]["url"], Value::Null);
    }
}

#[tokio::test]
async fn a_token_that_the_server_does_not_take_is_asked_for_again() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::ClientDriven, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let spoiled = accept(&json!({"access_token": "spoiled"}));
    reply(&client, &asked, &spoiled).await;
    let (_, refused) = events.next_message().await;
    assert_eq!(refused["error"]["code"], SIGN_IN_NEEDED, "{refused}");
    // Once, and a no then counts for all.
    let mut waiting = vec![stream(&client, &call(2)).await];
    let asked = question(&mut waiting[0]).await;
    waiting.push(stream(&client, &call(3)).await);
    reply(&client, &asked, &json!({"action": "decline"})).await;
    for events in &mut waiting {
        let (_, refused) = events.next_message().await;
        assert_eq!(refused["error"]["code"], SIGN_IN_NEEDED);
    }
    assert_eq!(client.send(&call(4)).await.code(), SIGN_IN_NEEDED);
    assert_eq!((server.tool_calls(), server.token_requests().len()), (0, 0));
}
