//! Arrays from a server: none of its requests is shown without its mark.

use serde_json::json;

use crate::kit::messages::{JSON, call, note, result};
use crate::kit::opened::{BATCHING, opened_speaking};

#[tokio::test]
async fn a_servers_batch_of_events_is_split_and_marked() {
    let (_gateway, mut server, client) = opened_speaking(BATCHING, |_| {}).await;
    let streams = [
        (client.get(), note("notifications/message")),
        (client.post(&call(1)), result(1)),
    ];
    for (request, end) in streams {
        let (mut events, mut pen) = client.open_stream(&mut server, request).await;
        let ask = json!({"jsonrpc": "2.0", "id": 42, "method": "roots/list"});
        let batch = json!([ask, note("notifications/progress"), end]);
        pen.write(format!("id: 7\ndata: {batch}\n\n"));
        let (id, asked) = events.next_message().await;
        assert_eq!((id, asked["method"].as_str()), (None, Some("roots/list")));
        assert_ne!(asked["id"], 42);
        assert_eq!(
            events.next_message().await,
            (None, note("notifications/progress"))
        );
        let (id, last) = events.next_message().await;
        assert_eq!(last, end);
        assert_ne!(id.expect("the id is on the last"), "7");
        drop(pen);
        events.ends_cleanly().await;
    }
    server.finish();
}

#[tokio::test]
async fn a_servers_array_of_json_keeps_its_marks_too() {
    let (_gateway, mut server, client) = opened_speaking(BATCHING, |_| {}).await;
    let one = call(1);
    let ask = json!({"jsonrpc": "2.0", "id": 42, "method": "roots/list"});
    let array = json!([ask, result(1)]).to_string();
    let large = format!(
        "{}[{ask},{}]",
        " ".repeat(100),
        json!({"jsonrpc": "2.0", "id": 1, "result": "x".repeat(100_000)})
    );
    for body in [array.clone(), large] {
        for announced in [true, false] {
            let answer = client.send_to(&mut server, &one, |asked| {
                let length = body.len().to_string();
                let headers = [JSON, ("content-length", length.as_str())];
                let mut pen = asked.begin(200, if announced { &headers } else { &headers[..1] });
                // In pieces, and the first tells nothing.
                let (first, rest) = body.split_at(body.find('[').unwrap());
                pen.write(first.to_owned());
                pen.write(rest.to_owned());
            });
            let shown = answer.await.json();
            assert_eq!(shown[0]["method"], "roots/list");
            assert_ne!(shown[0]["id"], 42);
            assert_eq!(shown[1]["id"], 1);
        }
    }
    // Without anything to mark it passes as it came; and so does all that is no array.
    for body in [format!(" [ {} ]\n", result(1)), format!(" {}", result(1))] {
        for announced in [true, false] {
            let answer = client.send_to(&mut server, &one, |asked| {
                let length = body.len().to_string();
                let headers = [JSON, ("content-length", length.as_str())];
                let mut pen = asked.begin(200, if announced { &headers } else { &headers[..1] });
                pen.write(body.clone());
            });
            assert_eq!(answer.await.text, body);
        }
    }
    // What cannot be read is no answer, nor is an array without one.
    for body in ["[1,".to_owned(), json!([ask, result(2)]).to_string()] {
        let answer = client.send_to(&mut server, &one, |asked| asked.reply(200, &[JSON], body));
        assert_eq!(answer.await.code(), -31001);
        // The session is asked after.
        server.next().await.result(&json!({}));
    }
    // As an answer to a member it is several members.
    let batch = json!([call(1)]);
    let answer = client.send_to(&mut server, &batch, |asked| {
        asked.reply(200, &[JSON], array.clone())
    });
    let shown = answer.await.json();
    assert_eq!(
        (&shown[0]["method"], &shown[1]),
        (&json!("roots/list"), &result(1))
    );
    assert_ne!(shown[0]["id"], 42);
    server.finish();
}

#[tokio::test]
async fn a_later_revisions_array_of_json_passes_as_it_came() {
    let (_gateway, mut server, client) = opened_speaking("2025-06-18", |_| {}).await;
    let one = call(1);
    let body = "[ {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}} ]";
    let answer = client.send_to(&mut server, &one, |asked| asked.reply(200, &[JSON], body));
    assert_eq!(answer.await.text, body);
    server.finish();
}
