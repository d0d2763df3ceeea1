//! What it means that a client leaves.

use serde_json::json;

use super::conversations::scripted;
use crate::kit::messages::call;

#[tokio::test]
async fn what_was_asked_is_finished_and_the_session_ends() {
    let (mut server, mut client, _listening) = scripted("2025-11-25").await;
    client.say(&call(1)).await;
    let asked = server.next().await;
    client.close();
    let (last, ()) = tokio::join!(client.ended(), async {
        asked.result(&json!({"content": []}));
        let end = server.next().await;
        assert_eq!(
            (end.method.as_str(), end.header("mcp-session-id")),
            ("DELETE", "u1")
        );
        end.reply(200, &[], "");
    });
    assert!(last.iter().any(|message| message["id"] == 1), "{last:?}");
    server.finish();
}

#[tokio::test]
async fn a_request_that_takes_longer_does_not_hold_up_the_end() {
    let (mut server, mut client, _listening) = scripted("2025-11-25").await;
    client.say(&call(1)).await;
    let _asked = server.next().await;
    client.stop();
    let (_, ()) = tokio::join!(client.ended(), async {
        let end = server.next().await;
        assert_eq!(end.method, "DELETE");
        end.reply(200, &[], "");
    });
}

#[tokio::test]
async fn a_client_that_cannot_be_written_to_has_left() {
    let (mut server, client, listening) = scripted("2025-11-25").await;
    let (input, serving) = client.without_output();
    let mut pen = listening.events();
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n");
    let end = server.next().await;
    assert_eq!(end.method, "DELETE");
    end.reply(200, &[], "");
    serving.await.unwrap();
    drop(input);
}

#[tokio::test]
async fn one_that_leaves_during_initialize_leaves_nothing_behind() {
    let mut client = crate::kit::wired::Wired::at("http://127.0.0.1:9/mcp").await;
    client
        .say(&crate::kit::wired::initialize("2025-11-25", &json!({})))
        .await;
    client.stop();
    client.ended().await;
}
