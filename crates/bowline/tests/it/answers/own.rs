//! A server's own answer is its word, whatever its status and headers, on every transport: nothing runs twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::answering::{Answering, Said, Seen};
use bowline_testbed::scripted::Pen;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::kit::client::{Answer, Client};
use crate::kit::fake::{Fake, client_of, text};
use crate::kit::gateway::config;
use crate::kit::wait::until;

/// The transports, and whether the client is one of a union.
const WAYS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

type Rule = dyn Fn(&Seen) -> Said + Send + Sync;

/// A server that answers its first call by a rule of the test and all others well, behind a gateway with another
/// server.
struct Play {
    server: Answering,
    state: Arc<State>,
    client: Client,
    tool: &'static str,
    _gateway: Gateway,
    _other: Fake,
}

struct State {
    over_sse: bool,
    calls: AtomicUsize,
    openings: AtomicUsize,
    /// The session is lost: pings are refused.
    is_lost: std::sync::atomic::AtomicBool,
    first: Box<Rule>,
    streams: Mutex<Vec<Pen>>,
}

impl State {
    fn say(&self, message: &Value) {
        for stream in &mut *self.streams.lock() {
            stream.write(format!("data: {message}\n\n"));
        }
    }

    /// Answers in the way of the transport.
    fn answer(&self, seen: &Seen, result: &Value) -> Said {
        if !self.over_sse {
            return seen.result(result);
        }
        let id = &seen.json()["id"];
        if !id.is_null() {
            self.say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
        }
        Said::status(202)
    }

    fn serve(&self, seen: &Seen) -> Said {
        if seen.method == "GET" {
            if !self.over_sse {
                return Said::status(405);
            }
            let (said, mut pen) = Said::events();
            pen.write("event: endpoint\ndata: /messages\n\n");
            *self.streams.lock() = vec![pen];
            return said;
        }
        if self.over_sse && seen.path() != "/messages" {
            return Said::status(405);
        }
        let message = seen.json();
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                self.openings.fetch_add(1, Ordering::SeqCst);
                self.is_lost.store(false, Ordering::SeqCst);
                let result = json!({"protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}});
                let said = self.answer(seen, &result);
                match self.over_sse {
                    true => said,
                    false => said.with("mcp-session-id", "u"),
                }
            }
            "tools/list" => {
                let tool = json!({"name": "t", "inputSchema": {"type": "object"}});
                self.answer(seen, &json!({"tools": [tool]}))
            }
            "tools/call" => match self.calls.fetch_add(1, Ordering::SeqCst) {
                0 => (self.first)(seen),
                _ => self.answer(seen, &text("again")),
            },
            "acme/purge/list" => Said::status(500),
            "ping" if self.is_lost.load(Ordering::SeqCst) => Said::status(404),
            "ping" => self.answer(seen, &json!({})),
            _ => Said::status(202),
        }
    }
}

impl Play {
    async fn set(
        (over_sse, in_union): (bool, bool),
        budget: Duration,
        first: impl Fn(&Seen) -> Said + Send + Sync + 'static,
    ) -> Self {
        let state = Arc::new(State {
            over_sse,
            calls: AtomicUsize::default(),
            openings: AtomicUsize::default(),
            is_lost: std::sync::atomic::AtomicBool::default(),
            first: Box::new(first),
            streams: Mutex::default(),
        });
        let own = Arc::clone(&state);
        let server = Answering::start(move |seen| own.serve(seen)).await;
        let other = Fake::start("other").await;
        let transport = if over_sse { "sse" } else { "mcp" };
        let url = format!("http://{}/{transport}", server.address());
        let mut config = config(&[("s", &url), ("other", &other.url())]);
        for server in config.servers.values_mut() {
            server.recovery.budget = budget;
        }
        let gateway = Gateway::start(config).await.unwrap();
        let (mut client, tool) = match in_union {
            true => (client_of(&gateway), "s__t"),
            false => (
                Client::at(format!("http://{}/mcp/s", gateway.listen())),
                "t",
            ),
        };
        assert_eq!(client.begin().await.status, 200);
        Self {
            server,
            state,
            client,
            tool,
            _gateway: gateway,
            _other: other,
        }
    }

    async fn call(&self) -> Answer {
        self.client.call(7, self.tool, &json!({})).await
    }

    fn calls(&self) -> usize {
        self.state.calls.load(Ordering::SeqCst)
    }

    /// The call ran once, and the session goes on.
    async fn ran_once(&self, openings: usize, what: &str) {
        let next = self.client.call(8, self.tool, &json!({})).await;
        assert_eq!(
            next.json()["result"]["content"],
            text("again")["content"],
            "{what}: {next:?}"
        );
        assert_eq!(self.calls(), 2, "{what}: the call and the next one");
        let opened = self.state.openings.load(Ordering::SeqCst);
        assert_eq!(opened, openings, "{what}");
    }
}

fn own_error(seen: &Seen) -> Value {
    let error = json!({"code": -32050, "message": "its own words"});
    json!({"jsonrpc": "2.0", "id": seen.json()["id"], "error": error})
}

fn long() -> Duration {
    Duration::from_secs(120)
}

fn short() -> Duration {
    Duration::from_secs(6)
}

#[tokio::test]
async fn an_own_answer_with_any_status_is_passed_on() {
    for way in WAYS {
        for status in [400, 401, 403, 404, 409, 410, 422, 429, 500, 502, 503] {
            let play = Play::set(way, long(), move |seen| {
                Said::json(&own_error(seen))
                    .instead(status)
                    .with("retry-after", "1")
            })
            .await;
            let answer = play.call().await;
            let what = format!("{way:?} {status}");
            assert_eq!(answer.failure(), Some(-32050), "{what}: {answer:?}");
            assert!(![401, 403, 404].contains(&answer.status.as_u16()), "{what}");
            play.ran_once(1, &what).await;
        }
    }
}

#[tokio::test]
async fn an_own_answer_of_a_server_that_then_loses_the_session_is_passed_on() {
    for way in WAYS {
        for status in [400, 404, 410, 429] {
            let losing = Arc::new(Mutex::new(None::<Arc<State>>));
            let inner = Arc::clone(&losing);
            let play = Play::set(way, short(), move |seen| {
                if let Some(state) = &*inner.lock() {
                    state.is_lost.store(true, Ordering::SeqCst);
                }
                Said::json(&own_error(seen))
                    .instead(status)
                    .with("retry-after", "1")
            })
            .await;
            *losing.lock() = Some(Arc::clone(&play.state));
            let answer = play.call().await;
            let what = format!("{way:?} {status}");
            assert_eq!(answer.failure(), Some(-32050), "{what}: {answer:?}");
            if status == 404 || status == 410 {
                // A ping has told.
                until("another session", || {
                    play.state.openings.load(Ordering::SeqCst) == 2
                })
                .await;
            }
            assert_eq!(play.calls(), 1, "{what}");
            losing.lock().take();
        }
    }
}

#[tokio::test]
async fn an_own_answer_in_the_body_of_a_success_is_passed_on() {
    for way in WAYS {
        for status in [200, 202] {
            let play = Play::set(way, long(), move |seen| {
                Said::json(&own_error(seen)).instead(status)
            })
            .await;
            let answer = play.call().await;
            assert_eq!(answer.failure(), Some(-32050), "{way:?}: {answer:?}");
            play.ran_once(1, &format!("{way:?} {status}")).await;
        }
    }
}

#[tokio::test]
async fn a_refusal_that_is_cut_proves_nothing() {
    for way in WAYS {
        for status in [404, 410] {
            let play = Play::set(way, short(), move |_| {
                let (said, mut pen) = Said::events();
                pen.write("data: {\"jsonrpc\":\"2.0\",");
                pen.cut();
                said.instead(status)
            })
            .await;
            let answer = play.call().await;
            let what = format!("{way:?} {status}");
            assert_eq!(answer.failure(), Some(-31001), "{what}: {answer:?}");
            play.ran_once(1, &what).await;
        }
    }
}

#[tokio::test]
async fn an_answer_on_the_living_stream_comes_after_any_refusal_of_the_message() {
    for in_union in [false, true] {
        for status in [400, 404, 410, 502] {
            for is_cut in [false, true] {
                let play = Play::set((true, in_union), long(), move |_| {
                    let (said, mut pen) = Said::events();
                    if is_cut {
                        pen.write("data: {");
                        pen.cut();
                    }
                    said.instead(status)
                })
                .await;
                let answering = async {
                    until("the call", || play.calls() == 1).await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    let seen = play.server.seen();
                    let call = seen.iter().find(|seen| seen.body.contains("tools/call"));
                    let id = call.unwrap().json()["id"].clone();
                    let answer = json!({"jsonrpc": "2.0", "id": id, "result": text("late")});
                    play.state.say(&answer);
                };
                let (answer, ()) = tokio::join!(play.call(), answering);
                let what = format!("{in_union} {status} {is_cut}");
                assert_eq!(
                    answer.json()["result"]["content"],
                    text("late")["content"],
                    "{what}: {answer:?}"
                );
                play.ran_once(1, &what).await;
            }
        }
    }
}

#[tokio::test]
async fn a_message_url_that_is_gone_proves_nothing_while_the_stream_speaks() {
    for in_union in [false, true] {
        for status in [404, 410] {
            let play = Play::set((true, in_union), short(), move |_| Said::status(status)).await;
            let speaking = async {
                until("the call", || play.calls() == 1).await;
                let note = json!({"jsonrpc": "2.0", "id": "nobody's", "result": {}});
                play.state.say(&note);
            };
            let (answer, ()) = tokio::join!(play.call(), speaking);
            let what = format!("{in_union} {status}");
            assert_eq!(answer.failure(), Some(-31001), "{what}: {answer:?}");
            play.ran_once(1, &what).await;
        }
    }
}

#[tokio::test]
async fn the_text_of_a_refusal_reaches_the_client() {
    for way in WAYS {
        for (status, code) in [(401, -31003), (403, -31002), (429, -31002)] {
            for challenge in [None, Some("Basic realm=\"x\"")] {
                let play = Play::set(way, long(), move |_| {
                    let said = Said::json_text("blocked by\nrule 17")
                        .instead(status)
                        .with("retry-after", "9");
                    match challenge {
                        Some(challenge) => said.with("www-authenticate", challenge),
                        None => said,
                    }
                })
                .await;
                let answer = play.call().await;
                let what = format!("{way:?} {status} {challenge:?}");
                assert_eq!(answer.code(), code, "{what}: {answer:?}");
                assert!(answer.text.contains("blocked by rule 17"), "{what}");
                assert!(answer.text.contains(&status.to_string()), "{what}");
                assert!(!answer.headers.contains_key("www-authenticate"));
                play.ran_once(1, &what).await;
            }
        }
    }
}

#[tokio::test]
async fn what_only_looks_like_a_list_is_not_repeated() {
    let play = Play::set((false, false), short(), |_| Said::status(202)).await;
    let purge = json!({"jsonrpc": "2.0", "id": 7, "method": "acme/purge/list"});
    // It answers 500, which does not say whether it ran.
    let answer = play.client.send(&purge).await;
    assert_eq!(answer.failure(), Some(-31001), "{answer:?}");
    let seen = play.server.seen();
    let purges = seen.iter().filter(|seen| seen.body.contains("acme/purge"));
    assert_eq!(purges.count(), 1);
}
