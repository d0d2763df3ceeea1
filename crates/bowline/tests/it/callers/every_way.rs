//! Whatever way a request takes, one question decides: what a caller's configuration does not give it, it reaches by no
//! path, front, method or gateway, after any sequence of reloads. The answer is that to an id that never was one.

use std::collections::{BTreeMap, BTreeSet};

use bowline::Gateway;
use bowline::config::{Caller, Config, KeyHash, Password, Peers, Union};
use bowline_testbed::redis::Redis;
use http::HeaderValue;
use proptest::prelude::{Strategy, any, prop};
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use reqwest::Url;
use serde_json::{Value, json};

use crate::kit::client::{Answer, Client, sent};
use crate::kit::events::Events;
use crate::kit::fake::{Fake, config_of};
use crate::kit::messages::call;
use crate::kit::programs::{Tally, command, config_of as config_of_program};
use crate::kit::sse::Sse;
use crate::kit::stores::in_redis;
use crate::kit::wait::until;

const BOB: &str = "k-bob";
const ANN: &str = "k-ann";

/// Every server: two behind URLs, and a program, which lives in one gateway.
const SERVERS: [&str; 3] = ["a", "b", "p"];

/// Every path of streamable HTTP, and where it leads; `None` names nothing.
const PATHS: [(&str, Option<&str>); 9] = [
    ("/mcp", None),
    ("/mcp/", None),
    ("/mcp/a", Some("a")),
    ("/a/mcp", Some("a")),
    ("/mcp/b", Some("b")),
    ("/mcp/p", Some("p")),
    ("/p/mcp/", Some("p")),
    ("/mcp/u", Some("u")),
    ("/u/mcp", Some("u")),
];

/// What a reload says of bob.
#[derive(Debug, Clone)]
enum Bob {
    Gone,
    AnotherKey,
    May(BTreeSet<&'static str>),
}

impl Bob {
    fn may_use(&self, server: &str) -> bool {
        matches!(self, Self::May(servers) if servers.contains(server))
    }

    fn is_known(&self) -> bool {
        matches!(self, Self::May(_))
    }
}

/// A reload: of which gateways, and what it says.
#[derive(Debug, Clone)]
struct Reload {
    at: [bool; 2],
    bob: Bob,
}

fn reloads() -> impl Strategy<Value = Vec<Reload>> {
    let servers = prop::sample::subsequence(SERVERS.to_vec(), 0..=3);
    let may = servers.prop_map(|servers| Bob::May(servers.into_iter().collect()));
    let bob = proptest::prop_oneof![
        6 => may,
        1 => proptest::strategy::Just(Bob::Gone),
        1 => proptest::strategy::Just(Bob::AnotherKey),
    ];
    let at = proptest::prop_oneof![
        2 => proptest::strategy::Just([true, true]),
        1 => any::<bool>().prop_map(|first| [first, !first]),
    ];
    let reload = (at, bob).prop_map(|(at, bob)| Reload { at, bob });
    prop::collection::vec(reload, 5)
}

/// What bob opened, and where it is.
#[derive(Debug, Clone)]
struct Opened {
    what: What,
    id: HeaderValue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Session(&'static str),
    Attachment(&'static str),
}

/// Two gateways on one store with peers, the servers behind them, and what bob has there.
struct Stage {
    fakes: [Fake; 2],
    tally: Tally,
    gateways: [Gateway; 2],
    /// What each gateway knows of bob.
    bob: [Bob; 2],
    config: Config,
    opened: Vec<Opened>,
    /// Bob's streams of HTTP+SSE at the first gateway, with what they lead to.
    streams: Vec<(What, Sse)>,
    /// The URLs of their messages, also of those that have ended.
    endpoints: Vec<(What, Url)>,
    _redis: Redis,
}

impl Stage {
    async fn start() -> Option<Self> {
        let Ok(redis) = Redis::start().await else {
            bowline_testbed::skip("no Redis");
            return None;
        };
        let fakes = [Fake::start("a").await, Fake::start("b").await];
        let tally = Tally::default();
        let program = config_of_program(command(&tally.path()));
        let [one] = program
            .servers
            .into_values()
            .collect::<Vec<_>>()
            .try_into()
            .ok()?;
        let mut config = config_of(&[&fakes[0]]);
        config.store = in_redis(&redis);
        config.supervisor = program.supervisor;
        config.peers = Some(Peers {
            listen: "127.0.0.1:0".parse().unwrap(),
            advertise: None,
            secret: Password::Written("a secret of these gateways alone".to_owned()),
        });
        let everything = Bob::May(SERVERS.into());
        config.callers = callers(&everything);
        let gateways = [
            Gateway::start(config.clone()).await.unwrap(),
            Gateway::start(config.clone()).await.unwrap(),
        ];
        // A session of the path without a name, from before there were several servers.
        let mut old = Client::at(url(&gateways[0], "/mcp")).with_key(BOB);
        assert_eq!(old.begin().await.status, 200);
        let old = Opened {
            what: What::Session("a"),
            id: old.session.unwrap(),
        };
        config.servers.extend(config_of(&[&fakes[1]]).servers);
        config.servers.insert("p".parse().unwrap(), one);
        let union = Union {
            servers: ["a", "b"].map(|name| name.parse().unwrap()).into(),
            ..Union::default()
        };
        config.unions.insert("u".parse().unwrap(), union);
        for gateway in &gateways {
            gateway.reload(config.clone()).unwrap();
        }
        let mut stage = Self {
            fakes,
            tally,
            gateways,
            bob: [everything.clone(), everything],
            config,
            opened: vec![old],
            streams: Vec::new(),
            endpoints: Vec::new(),
            _redis: redis,
        };
        for (path, what) in [
            ("/mcp/a", What::Session("a")),
            ("/b/mcp", What::Session("b")),
            ("/mcp/p", What::Session("p")),
            ("/mcp", What::Attachment("")),
            ("/mcp/u", What::Attachment("u")),
        ] {
            let mut client = stage.client(0, path, BOB);
            let answer = client.begin().await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            let id = client.session.clone().unwrap();
            let opened = Opened { what, id };
            for server in SERVERS {
                let is_member = stage.has(&opened, server);
                let before = stage.calls(server);
                let answer = client.send(&calling(what, server)).await;
                assert_eq!(
                    stage.calls(server) > before,
                    is_member,
                    "{path}: {}",
                    answer.text
                );
            }
            stage.opened.push(opened);
        }
        stage.open_streams().await;
        Some(stage)
    }

    fn client(&self, gateway: usize, path: &str, key: &'static str) -> Client {
        Client::at(url(&self.gateways[gateway], path)).with_key(key)
    }

    /// Opens the streams of HTTP+SSE that bob may have now and has not.
    async fn open_streams(&mut self) {
        for (path, what) in [
            ("/sse/a", What::Session("a")),
            ("/p/sse", What::Session("p")),
            ("/sse", What::Attachment("")),
            ("/sse/u", What::Attachment("u")),
        ] {
            let has = self.streams.iter().any(|(other, _)| *other == what);
            if has || !self.leads(0, what) {
                continue;
            }
            let mut stream = Sse::open_as(&self.gateways[0], path, Some(BOB)).await;
            stream.begin().await;
            self.endpoints.push((what, stream.endpoint.clone()));
            self.streams.push((what, stream));
        }
    }

    /// Whether bob may speak to this at a gateway.
    fn leads(&self, gateway: usize, what: What) -> bool {
        match what {
            What::Session(server) => self.bob[gateway].may_use(server),
            What::Attachment(_) => self.bob[gateway].is_known(),
        }
    }

    /// Whether a server is what was opened, or a part of it.
    fn has(&self, opened: &Opened, server: &str) -> bool {
        match opened.what {
            What::Session(own) => own == server,
            What::Attachment("") => true,
            What::Attachment(_) => server != "p",
        }
    }

    /// How many calls a server has run.
    fn calls(&self, server: &str) -> usize {
        match server {
            "a" => self.fakes[0].count("tools/call"),
            "b" => self.fakes[1].count("tools/call"),
            _ => self.tally.count("bump here"),
        }
    }

    fn all_calls(&self) -> Vec<usize> {
        SERVERS.map(|server| self.calls(server)).into()
    }

    async fn reload(&mut self, reload: &Reload) {
        let mut gets = Vec::new();
        for opened in &self.opened {
            for gateway in [0, 1] {
                let path = match opened.what {
                    What::Session(server) => format!("/mcp/{server}"),
                    What::Attachment(union) => format!("/mcp/{union}"),
                };
                if self.leads(0, opened.what) && self.leads(gateway, opened.what) {
                    let mut client = self.client(gateway, &path, BOB);
                    client.session = Some(opened.id.clone());
                    gets.push((gateway, opened.what, client.listen().await));
                    // A newer one ends it.
                    break;
                }
            }
        }
        self.config.callers = callers(&reload.bob);
        for gateway in [0, 1] {
            if reload.at[gateway] {
                self.bob[gateway] = reload.bob.clone();
                self.gateways[gateway].reload(self.config.clone()).unwrap();
            }
        }
        for (gateway, what, mut events) in gets {
            if !self.leads(gateway, what) {
                is_over(&mut events).await;
            }
        }
        let (kept, lost): (Vec<_>, Vec<_>) = std::mem::take(&mut self.streams)
            .into_iter()
            .partition(|(what, _)| self.leads(0, *what));
        self.streams = kept;
        for (_, stream) in lost {
            stream.ended().await;
        }
    }

    /// Tries everything with everything.
    async fn try_all(&self) {
        let never = Opened {
            what: What::Session("none"),
            id: HeaderValue::from_static("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
        };
        for gateway in [0, 1] {
            for (path, to) in PATHS {
                for key in [BOB, ANN] {
                    let unknown = self.answers(gateway, path, key, &never).await;
                    for opened in &self.opened {
                        self.try_one(gateway, (path, to), key, opened, &unknown)
                            .await;
                    }
                }
            }
            for (what, endpoint) in &self.endpoints {
                self.try_stream(gateway, *what, endpoint).await;
            }
        }
    }

    /// What a call, a GET and a DELETE of something are answered. Whatever is refused runs nowhere.
    async fn answers(
        &self,
        gateway: usize,
        path: &str,
        key: &'static str,
        opened: &Opened,
    ) -> Vec<(u16, String)> {
        let mut client = self.client(gateway, path, key);
        client.session = Some(opened.id.clone());
        let requests = [
            client.post(&calling(opened.what, "a")),
            client.get(),
            client.delete(),
        ];
        let mut answers = Vec::new();
        for request in requests {
            let Answer { status, text, .. } = sent(request).await;
            answers.push((status.as_u16(), text));
        }
        answers
    }

    async fn try_one(
        &self,
        gateway: usize,
        (path, to): (&str, Option<&str>),
        key: &'static str,
        opened: &Opened,
        unknown: &[(u16, String)],
    ) {
        let bob = &self.bob[gateway];
        let is_there = match (opened.what, to) {
            (What::Session(server), None) => server == "a" || server == "b" || server == "p",
            (What::Session(server), Some(named)) => server == named,
            (What::Attachment(union), named) => named.unwrap_or_default() == union,
        };
        let is_its = key == BOB && is_there && self.leads(gateway, opened.what);
        let context = format!("{path} at {gateway} for {key}: {:?}, {bob:?}", opened.what);
        if !is_its {
            let before = self.all_calls();
            let answers = self.answers(gateway, path, key, opened).await;
            assert_eq!(answers, unknown, "{context}");
            let is_refused = |(status, _): &(u16, String)| matches!(status, 401 | 404);
            assert!(answers.iter().all(is_refused), "{context}: {answers:?}");
            assert_eq!(self.all_calls(), before, "{context}");
            return;
        }
        let mut client = self.client(gateway, path, key);
        client.session = Some(opened.id.clone());
        for server in SERVERS {
            let before = self.all_calls();
            let message = calling(opened.what, server);
            let is_sent =
                matches!(opened.what, What::Attachment(_)) || opened.what == What::Session(server);
            if !is_sent {
                continue;
            }
            let answer = client.send(&message).await;
            let context = format!("{context}: {server}: {}", answer.text);
            // The program lives in the first gateway, which asks as well.
            let may_use = bob.may_use(server) && (server != "p" || self.bob[0].may_use("p"));
            let ran = SERVERS
                .map(|one| usize::from(one == server && may_use && self.has(opened, server)));
            let now = self.all_calls();
            let ran_now: Vec<usize> = now
                .iter()
                .zip(&before)
                .map(|(now, before)| now - before)
                .collect();
            assert_eq!(ran_now, ran, "{context}");
        }
    }

    /// Posts a call to a stream of HTTP+SSE, through a gateway.
    async fn try_stream(&self, gateway: usize, what: What, endpoint: &Url) {
        let mut url = endpoint.clone();
        let port = self.gateways[gateway].listen().tcp().unwrap().port();
        url.set_port(Some(port)).unwrap();
        let open = self
            .streams
            .iter()
            .any(|(_, stream)| stream.endpoint == *endpoint);
        for key in [BOB, ANN] {
            let client = Client::at(url.to_string()).with_key(key);
            let before = self.all_calls();
            let server = match what {
                What::Session(server) => server,
                What::Attachment(_) => "a",
            };
            let answer = client.send(&calling(what, server)).await;
            let is_its = key == BOB && open && self.leads(gateway, what) && self.leads(0, what);
            let context = format!("{url} for {key}: {what:?}, {:?}: {}", self.bob, answer.text);
            if is_its {
                assert_eq!(answer.status, 202, "{context}");
                let mut ran = before;
                let number = SERVERS.iter().position(|one| *one == server).unwrap();
                ran[number] += usize::from(self.bob[0].may_use(server));
                until(&context, || self.all_calls() == ran).await;
                continue;
            }
            assert!(matches!(answer.status.as_u16(), 401 | 404), "{context}");
            assert_eq!(self.all_calls(), before, "{context}");
        }
    }
}

fn url(gateway: &Gateway, path: &str) -> String {
    format!("http://{}{path}", gateway.listen())
}

/// Ann may use everything, and bob what is said here.
fn callers(bob: &Bob) -> BTreeMap<bowline::config::CallerName, Caller> {
    let with = |key: &str| Caller::with_key(KeyHash::of(key.as_bytes()));
    let mut callers = BTreeMap::from([("ann".parse().unwrap(), with(ANN))]);
    let bob = match bob {
        Bob::Gone => return callers,
        Bob::AnotherKey => with("k-other"),
        Bob::May(servers) => Caller {
            servers: Some(servers.iter().map(|name| name.parse().unwrap()).collect()),
            ..with(BOB)
        },
    };
    callers.insert("bob".parse().unwrap(), bob);
    callers
}

/// A call that a server counts.
fn calling(what: What, server: &str) -> Value {
    let tool = if server == "p" { "bump" } else { "t" };
    let mut message = call(1);
    let name = match what {
        What::Session(_) => tool.to_owned(),
        What::Attachment(_) => format!("{server}__{tool}"),
    };
    message["params"] = json!({"name": name, "arguments": {"key": "here"}});
    message
}

async fn is_over(events: &mut Events) {
    while let Ok(Some(_)) = events.try_next().await {}
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_reaches_what_the_configuration_does_not_give_it() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..2 {
        let reloads = reloads().new_tree(&mut runner).unwrap().current();
        let Some(mut stage) = Box::pin(Stage::start()).await else {
            return;
        };
        for reload in &reloads {
            stage.reload(reload).await;
            stage.try_all().await;
            stage.open_streams().await;
        }
        // Nobody has ended anything meanwhile.
        let everything = Bob::May(SERVERS.into());
        let at = [true, true];
        stage
            .reload(&Reload {
                at,
                bob: everything,
            })
            .await;
        stage.try_all().await;
    }
}
