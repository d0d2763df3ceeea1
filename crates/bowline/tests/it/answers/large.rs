//! Answers of unknown length, and large ones: what breaks is repeated or told as long as the client has
//! seen nothing of it, and cut off later; an answer to another request never arrives whole.

use std::fmt::Write as _;

use bowline_testbed::scripted::{Asked, Pen, Scripted};
use serde_json::{Value, json};

use crate::kit::client::{Answer, Client};
use crate::kit::gateway::{refusals, with_admin};
use crate::kit::messages::{JSON, call};
use crate::kit::opened::opened_speaking;

const LARGE: usize = 1_000_000;

fn safe(id: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "resources/read", "params": {"uri": "x:y"}})
}

/// An answer of about this length: its id, as it is written, comes first or last.
fn answer(id: &str, length: usize, id_first: bool) -> String {
    let mut text = String::new();
    while text.len() < length {
        let at = text.len();
        write!(text, r#"{{"id":{at},"a":"\"}}]\\ {at}"}},"#).unwrap();
    }
    let result = format!(r#"{{"list":[{text}0]}}"#);
    match id_first {
        true => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        false => format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{id}}}"#),
    }
}

fn begin(asked: Asked, length: Option<usize>) -> Pen {
    let length = length.map(|length| length.to_string());
    let mut headers = vec![JSON];
    headers.extend(length.as_ref().map(|length| ("content-length", &**length)));
    asked.begin(200, &headers)
}

/// The next request that is not a ping, which is answered.
async fn next(server: &mut Scripted) -> Asked {
    loop {
        let asked = server.next().await;
        match asked.rpc_method().as_str() {
            "ping" => asked.result(&json!({})),
            _ => return asked,
        }
    }
}

/// The answer, or `None` if it was cut off.
async fn sent(client: &Client, message: &Value) -> Option<Answer> {
    let response = client.post(message).send().await.ok()?;
    let status = response.status();
    let headers = response.headers().clone();
    let text = response.text().await.ok()?;
    Some(Answer {
        status,
        headers,
        text,
    })
}

#[tokio::test]
async fn a_small_answer_that_breaks_is_repeated_or_told() {
    for version in ["2025-11-25", "2025-03-26"] {
        let (gateway, mut server, client) = opened_speaking(version, with_admin).await;
        let body = answer("7", 250, true);
        for length in [None, Some(body.len())] {
            let half = body[..body.len() / 2].to_owned();
            let break_off = |asked| {
                let mut pen = begin(asked, length);
                pen.write(half.clone());
                pen.cut();
            };
            let message = safe(7);
            let (answered, ()) = tokio::join!(client.send(&message), async {
                break_off(next(&mut server).await);
                next(&mut server).await.result(&json!({"contents": []}));
            });
            assert_eq!(answered.json()["id"], 7);
            assert_eq!(answered.json()["result"], json!({"contents": []}));
            let before = refusals(&gateway, "outcome_unknown").await;
            let message = call(7);
            let (answered, ()) = tokio::join!(client.send(&message), async {
                break_off(next(&mut server).await);
            });
            assert_eq!(answered.code(), -31001, "{answered:?}");
            assert_eq!(refusals(&gateway, "outcome_unknown").await, before + 1);
        }
    }
}

#[tokio::test]
async fn a_large_answer_that_breaks_is_cut_off_and_counted() {
    for version in ["2025-11-25", "2025-03-26"] {
        let (gateway, mut server, client) = opened_speaking(version, with_admin).await;
        let body = answer("7", LARGE, true);
        for (turn, length) in [None, Some(body.len())].into_iter().enumerate() {
            let message = call(7);
            let (answered, ()) = tokio::join!(sent(&client, &message), async {
                let mut pen = begin(next(&mut server).await, length);
                pen.write(body[..body.len() / 2].to_owned());
                pen.cut();
            });
            assert!(answered.is_none(), "{answered:?}");
            assert_eq!(refusals(&gateway, "outcome_unknown").await, turn as u64 + 1);
        }
    }
}

#[tokio::test]
async fn a_large_answer_passes_as_it_came() {
    for version in ["2025-11-25", "2025-03-26"] {
        let (_gateway, mut server, client) = opened_speaking(version, with_admin).await;
        // Values, not text: servers write ids in their own way.
        for (id, written) in [
            (json!(7), "7"),
            (json!(7), "7.0"),
            (json!("a/b"), r#""a\/b""#),
            (json!(7), r#""7""#),
        ] {
            for id_first in [true, false] {
                let body = answer(written, LARGE, id_first);
                for length in [None, Some(body.len())] {
                    let message = call(id.clone());
                    let (answered, ()) = tokio::join!(sent(&client, &message), async {
                        let mut pen = begin(next(&mut server).await, length);
                        for piece in body.as_bytes().chunks(50_001) {
                            pen.write(piece.to_vec());
                        }
                    });
                    assert!(answered.unwrap().text == body, "{written}");
                }
            }
        }
    }
}

#[tokio::test]
async fn an_error_of_nobodys_passes() {
    let (_gateway, mut server, client) = opened_speaking("2025-11-25", with_admin).await;
    let text = "x".repeat(LARGE);
    for body in [
        format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":-32700,"message":"{text}"}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","error":{{"code":-32700,"message":"{text}"}}}}"#),
    ] {
        let message = call(7);
        let (answered, ()) = tokio::join!(sent(&client, &message), async {
            begin(next(&mut server).await, None).write(body.clone());
        });
        assert!(answered.unwrap().text == body);
    }
}

#[tokio::test]
async fn a_large_answer_under_another_id_does_not_arrive() {
    for version in ["2025-11-25", "2025-03-26"] {
        let (gateway, mut server, client) = opened_speaking(version, with_admin).await;
        let mut count = 0;
        for id_first in [true, false] {
            let body = answer("8", LARGE, id_first);
            for length in [None, Some(body.len())] {
                let message = call(7);
                let (answered, ()) = tokio::join!(sent(&client, &message), async {
                    begin(next(&mut server).await, length).write(body.clone());
                });
                count += 1;
                match id_first {
                    // Nothing had been passed on.
                    true => assert_eq!(answered.unwrap().code(), -31001),
                    false => assert!(answered.is_none()),
                }
                assert_eq!(refusals(&gateway, "outcome_unknown").await, count);
            }
        }
        // The session goes on.
        let message = call(9);
        let (answered, ()) = tokio::join!(client.send(&message), async {
            next(&mut server).await.result(&json!({}));
        });
        assert_eq!(answered.json()["result"], json!({}));
    }
}

#[tokio::test]
async fn a_large_answer_to_a_repeat_has_the_clients_id() {
    let (_gateway, mut server, client) = opened_speaking("2025-11-25", with_admin).await;
    for length in [LARGE, 12 * LARGE] {
        for id_first in [true, false] {
            let message = safe("mine");
            let (answered, ()) = tokio::join!(sent(&client, &message), async {
                drop(next(&mut server).await);
                let again = next(&mut server).await;
                let id = again.json()["id"].to_string();
                assert_ne!(id, "\"mine\"");
                begin(again, None).write(answer(&id, length, id_first));
            });
            let expected = answer("\"mine\"", length, id_first);
            assert!(answered.unwrap().text == expected);
        }
    }
}

/// A client may take such an answer for a request, and what is in it for the gateway's own.
#[tokio::test]
async fn a_large_answer_in_which_a_request_hides_is_cut_off() {
    let (gateway, mut server, client) = opened_speaking("2025-11-25", with_admin).await;
    let request = r#","method":"elicitation/create","id":"q"}"#;
    for id_first in [true, false] {
        let body = answer("7", LARGE, id_first);
        let body = format!("{}{request}", body.strip_suffix('}').unwrap());
        let before = refusals(&gateway, "outcome_unknown").await;
        for length in [None, Some(body.len())] {
            let message = call(7);
            let (answered, ()) = tokio::join!(sent(&client, &message), async {
                begin(next(&mut server).await, length).write(body.clone());
            });
            assert!(answered.is_none(), "id first: {id_first}");
        }
        assert_eq!(refusals(&gateway, "outcome_unknown").await, before + 2);
    }
}
