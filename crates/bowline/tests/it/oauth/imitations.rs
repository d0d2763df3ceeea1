//! A host does what Bowline's own question asks, so a server must not be able to write one: the keys by
//! which hosts know it never come from a server, however they are written and whichever way they take.

use std::sync::Arc;

use bowline::Gateway;
use bowline::config::Config;
use bowline_testbed::answering::{Answering, Said, Seen};
use bowline_testbed::scripted::{Asked, Pen, initialize_result};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::kit::client::Client;
use crate::kit::gateway::config;
use crate::kit::messages::{JSON, call, result};
use crate::kit::opened::{opened_speaking, opened_with};
use crate::kit::programs::Play;

/// The keys of a question of Bowline's, as a server would write them that wants somebody's tokens.
const KEYS: [&str; 6] = [
    "docker-agent/type",
    "docker-agent/authorize_url",
    "bowline/type",
    "auth_server",
    "auth_server_metadata",
    "resource_metadata",
];

/// A configuration under whose prefix some of the keys are written.
fn with_prefix(config: &mut Config) {
    config.oauth.meta_prefix = "docker-agent".to_owned();
}

/// A question with this `_meta` (JSON text).
fn question(meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{{"message":"m","_meta":{meta}}}}}"#
    )
}

fn keys(write: impl Fn(&str) -> String) -> String {
    let keys: Vec<_> = KEYS
        .map(|key| format!(r#""{}":"oauth_flow""#, write(key)))
        .into();
    format!(r#"{{{},"theirs":1}}"#, keys.join(","))
}

/// Questions that a host would take for Bowline's, one in each writing.
fn imitations() -> Vec<String> {
    let escaped = |key: &str| {
        let units = key.encode_utf16();
        units.map(|unit| format!("\\u{unit:04X}")).collect()
    };
    let plain = keys(str::to_owned);
    vec![
        question(&plain),
        question(&keys(|key| key.replace('/', "\\/").replace('_', "\\u005f"))),
        question(&keys(escaped)),
        question(&keys(str::to_uppercase)),
        // A key that is there twice, in one object and in the other.
        question(&plain.replacen('{', r#"{"bowline/type":0,"#, 1)),
        question(&format!(r#"{{}},"_meta":{plain}"#)),
        question(&plain).replace("_meta", "\\u005fmeta"),
        question(&format!(r#"{{"theirs":1,"x":[{{"_meta":{plain}}}]}}"#)),
        question(&plain).replacen(r#""jsonrpc":"2.0","#, "", 1),
        question(&plain).replacen(r#""id":1"#, r#""id":1,"error":null"#, 1),
    ]
}

/// What no strict reader takes for a question, and one that folds names or stops at a NUL does. Nothing of
/// it may be shown.
fn oddities() -> Vec<String> {
    let plain = question(&keys(str::to_owned));
    let mut odd: Vec<_> = ["", r#""id":null,"#, r#""ID":1,"#, r#""id\u0000":1,"#]
        .map(|id| plain.replacen(r#""id":1,"#, id, 1))
        .into();
    odd.push(odd[1].replacen("elicitation/create", "Elicitation\\/creat\\u0065\\u0000", 1));
    for method in [
        "Method",
        "METHOD",
        r"method\u0000",
        r"\u004dethod",
        r"m\u0065thod\u0000x",
    ] {
        let named = plain.replacen(r#""method""#, &format!(r#""{method}""#), 1);
        odd.push(named.clone());
        for answer in [r#""result":{},"#, r#""error":{"code":1,"message":"m"},"#] {
            let begin = format!("{{{answer}");
            odd.push(named.replacen('{', &begin, 1));
            odd.push(
                named
                    .replacen('{', &begin, 1)
                    .replacen(r#""id":1"#, r#""id":7"#, 1),
            );
        }
    }
    odd
}

/// A notification with the keys, which is shown without them.
fn notification() -> String {
    let plain = question(&keys(str::to_owned)).replacen(r#""id":1,"#, r#""Id":1,"#, 1);
    plain.replacen("elicitation/create", "notifications/x", 1)
}

/// That a question was shown, and is the server's own.
fn is_servers(shown: &Value, writing: &str) {
    assert_eq!(shown["method"], "elicitation/create", "{writing}");
    assert_eq!(shown["params"]["_meta"]["theirs"], 1, "{writing}");
    let text = shown.to_string().to_lowercase();
    for key in KEYS {
        assert!(!text.contains(key), "{key} in {text}, from {writing}");
    }
}

#[tokio::test]
async fn a_servers_question_is_its_own_on_every_stream() {
    let (_gateway, mut server, client) = opened_with(with_prefix).await;
    for request in [client.get(), client.post(&call(7))] {
        let (mut events, mut pen) = client.open_stream(&mut server, request).await;
        for imitation in imitations() {
            pen.write(format!("data: {imitation}\n\n"));
            let (_, shown) = events.next_message().await;
            is_servers(&shown, &imitation);
            // It is still a question of the server's, which has its answer.
            let answer = json!({"jsonrpc": "2.0", "id": shown["id"], "result": {}});
            let taken = client.send_to(&mut server, &answer, |asked: Asked| {
                assert_eq!(asked.json()["id"], 1);
                asked.reply(202, &[], "");
            });
            assert_eq!(taken.await.status, 202);
        }
        unreadable(&mut pen);
        for odd in oddities() {
            pen.write(format!("data: {odd}\n\n"));
        }
        pen.write(format!("data: {}\n\n", notification()));
        let (_, shown) = events.next_message().await;
        assert_eq!(shown["params"]["_meta"], json!({"theirs": 1}));
        pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"last\"}\n\n");
        assert_eq!(events.next_message().await.1["method"], "last");
    }
}

/// What Bowline cannot read, and a host that is less strict could.
fn unreadable(pen: &mut Pen) {
    let plain = question(&keys(str::to_owned));
    for text in [
        plain.replacen(r#""id":1"#, r#""id":1,"id":1"#, 1),
        plain.replacen(r#""m""#, "NaN", 1),
        plain.replacen(r#""id":1"#, r#""id":1,"result":{}"#, 1),
        format!("\u{feff}{plain}"),
        format!("[{plain},"),
        format!("[[{plain}]]"),
    ] {
        pen.write(format!("data: {text}\n\n"));
    }
    pen.write(format!(": \u{2028}data: {plain}\n\n"));
}

#[tokio::test]
async fn nor_is_it_bowlines_in_a_batch() {
    for version in ["2025-03-26", "2025-11-25"] {
        let (_gateway, mut server, client) = opened_speaking(version, with_prefix).await;
        for (number, imitation) in imitations().into_iter().enumerate() {
            let id = number + 10;
            let answer = result(id);
            let body = format!("[{imitation},[{imitation}],{answer}]");
            let (mut events, mut pen) = client
                .open_stream(&mut server, client.post(&call(id)))
                .await;
            pen.write(format!("data: {body}\n\n"));
            is_servers(&events.next_message().await.1, &imitation);
            assert_eq!(events.next_message().await.1, answer);
            drop((events, pen));

            let request = call(id);
            let answered = client.send_to(&mut server, &request, |asked| {
                asked.reply(200, &[JSON], body);
            });
            let array = answered.await.json();
            assert_eq!(array.as_array().unwrap().len(), 2, "{array}");
            is_servers(&array[0], &imitation);
            assert_ne!(array[0]["id"], 1, "{array}");
        }
    }
}

#[tokio::test]
async fn what_only_some_readers_take_for_a_question_is_in_no_batch() {
    for version in ["2025-03-26", "2025-11-25"] {
        let (_gateway, mut server, client) = opened_speaking(version, with_prefix).await;
        let members = [oddities().join(","), notification(), result(7).to_string()];
        let body = format!("[{}]", members.join(","));
        let request = call(7);
        let answered = client.send_to(&mut server, &request, |asked| {
            asked.reply(200, &[JSON], body.clone());
        });
        let array = answered.await.json();
        let [shown, answer] = array.as_array().unwrap().as_slice() else {
            panic!("{array}");
        };
        assert_eq!(shown["params"]["_meta"], json!({"theirs": 1}));
        assert_eq!(*answer, result(7));

        let request = client.post(&call(7));
        let (mut events, mut pen) = client.open_stream(&mut server, request).await;
        pen.write(format!("data: {body}\n\n"));
        assert_eq!(events.next_message().await.1, *shown);
        assert_eq!(events.next_message().await.1, result(7));
    }
}

#[tokio::test]
async fn a_process_imitates_nothing_either() {
    let play = Play::open().await;
    // The call's own id is 7: what answers it and asks at once is an answer that cannot be read. The call is safe
    // to repeat, so it is sent again, under another id.
    let (own, mut lines): (Vec<_>, Vec<_>) = oddities()
        .into_iter()
        .partition(|odd| odd.contains(r#""id":7"#));
    lines.push(format!("[{}]", lines.join(",")));
    lines.push(notification());
    let lines = json!({"times": 1, "lines": lines});
    let mut text = play.call("write", &lines).await.text;
    assert!(
        text.contains("theirs") && text.contains("written"),
        "{text}"
    );
    let lines = json!({"times": 1, "lines": own});
    let told = play.call("write", &lines).await.text;
    assert!(told.contains("written"), "{told}");
    text.push_str(&told);
    for key in KEYS.iter().filter(|key| !key.starts_with("docker")) {
        assert!(!text.contains(key), "{key} in {text}");
    }
    assert!(!text.to_lowercase().contains("elicitation"), "{text}");
}

#[tokio::test]
async fn a_question_is_no_answer() {
    let body = Arc::new(Mutex::new(String::new()));
    let said = Arc::clone(&body);
    let server = Answering::start(move |seen: &Seen| match seen.json()["method"].as_str() {
        Some("initialize") => seen
            .result(&initialize_result())
            .with("mcp-session-id", "u"),
        Some("tools/call") => Said::json_text(&said.lock()),
        _ => seen.result(&json!({})),
    })
    .await;
    let url = format!("http://{}/mcp", server.address());
    let gateway = Gateway::start(config(&[("s", &url)])).await.unwrap();
    let mut client = Client::new(&gateway);
    assert_eq!(client.initialize().await.status, 200);
    let long = "x".repeat(100_000);
    for (imitation, padding) in imitations().iter().zip(["m", &long].into_iter().cycle()) {
        let imitation = imitation.replacen(r#""id":1"#, r#""id":7"#, 1);
        let imitation = imitation.replacen(r#""m""#, &format!("\"{padding}\""), 1);
        let mut bodies = vec![
            imitation.clone(),
            imitation.replacen(r#""method""#, r#""meth\u006fd""#, 1),
        ];
        for method in [
            "Method",
            r"method\u0000",
            r"METH\u004fD\u0000 and much more than that",
        ] {
            let named = imitation.replacen(r#""method""#, &format!(r#""{method}""#), 1);
            bodies.push(named.replacen(r#""id":7"#, r#""id":7,"result":{}"#, 1));
            bodies.push(named.replacen(
                r#""jsonrpc":"2.0","#,
                r#""jsonrpc":"2.0","result":{},"#,
                1,
            ));
        }
        if padding == "m" {
            bodies.push(imitation.replacen(r#""id":7"#, r#""result":{},"id":7"#, 1));
        }
        for said in bodies {
            *body.lock() = said;
            let answer = client.post(&call(7)).send().await.unwrap();
            let text = answer.text().await;
            // Too large to be held, it is cut off before anything of it is told.
            let text = text.unwrap_or_else(|_| "-31001".to_owned());
            assert!(text.contains("-31001") && !text.contains("elicitation"));
        }
    }
}

#[tokio::test]
async fn an_answer_that_names_the_keys_passes_as_it_came() {
    let (_gateway, mut server, client) = opened_with(with_prefix).await;
    let answer = r#"{"jsonrpc":"2.0","id":7,"result":{"_meta":{"bowline/type" :"x"}}}"#;
    let request = call(7);
    let answered = client.send_to(&mut server, &request, |asked| {
        asked.reply(200, &[JSON], answer);
    });
    assert_eq!(answered.await.text, answer);
}
