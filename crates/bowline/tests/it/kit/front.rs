//! A client of any transport, as a test of all of them uses it: it says messages, and hears what comes, on
//! whatever stream.

use bowline::Gateway;
use bowline::config::Config;
use bowline_testbed::haproxy::Haproxy;
use bowline_testbed::scripted::PATIENCE;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::client::{Client, read, sent};
use super::events::Events;
use super::gateway::config;
use super::heard::{Heard, answers, is_of};
use super::messages::{VERSION, ready};
use super::sse::{REVISION, Sse};
use super::wired::{Wired, initialize};

/// A client, and the gateway that serves it.
pub(crate) enum Front {
    Http(Box<OverHttp>),
    Stdio(Box<OverStdio>),
    Sse(Box<OverSse>),
}

/// Where a client finds its gateway: at the gateway itself, or at a load balancer that gives each request to the next
/// one of several.
pub(crate) struct Site {
    gateways: Vec<Gateway>,
    balancer: Option<Haproxy>,
}

/// A client on stdio and its bridge, with the gateways that the bridge connects to, if it has no server of its own.
pub(crate) struct OverStdio {
    client: Wired,
    site: Option<Site>,
}

/// A client of HTTP+SSE, and its gateways.
pub(crate) struct OverSse {
    site: Site,
    client: Sse,
}

/// A client of streamable HTTP that hears everything in one place.
pub(crate) struct OverHttp {
    site: Site,
    client: Client,
    heard: Heard,
    incoming: mpsc::UnboundedReceiver<Value>,
    hears: mpsc::UnboundedSender<Value>,
    /// What reads answers and the stream of a GET.
    reading: JoinSet<()>,
}

// === impl Front ===

impl Front {
    /// A client of streamable HTTP.
    pub(crate) fn http(site: Site) -> Self {
        let (hears, incoming) = mpsc::unbounded_channel();
        Self::Http(Box::new(OverHttp {
            client: Client::at(format!("{}/mcp/s", site.url())),
            site,
            heard: Heard::default(),
            incoming,
            hears,
            reading: JoinSet::new(),
        }))
    }

    /// A client on stdio.
    pub(crate) async fn stdio(config: Config) -> Self {
        let client = Wired::with(config).await;
        Self::Stdio(Box::new(OverStdio { client, site: None }))
    }

    /// A client on stdio whose bridge connects to these gateways.
    pub(crate) async fn connected(site: Site) -> Self {
        let url = format!("{}/mcp/s", site.url());
        let client = Wired::with(config(&[("s", &url)])).await;
        let site = Some(site);
        Self::Stdio(Box::new(OverStdio { client, site }))
    }

    /// A client of HTTP+SSE.
    pub(crate) async fn sse(site: Site) -> Self {
        let client = Sse::open_at(&format!("{}/sse/s", site.url()), None).await;
        Self::Sse(Box::new(OverSse { site, client }))
    }

    /// Opens the session, with these capabilities, and listens.
    pub(crate) async fn begin(&mut self, capabilities: &Value) -> Value {
        match self {
            Self::Http(http) => http.begin(capabilities).await,
            Self::Stdio(stdio) => stdio.client.begin_with(VERSION, capabilities).await,
            Self::Sse(sse) => sse.client.begin_with(REVISION, capabilities).await,
        }
    }

    /// Sends a message.
    pub(crate) async fn say(&mut self, message: &Value) {
        match self {
            Self::Http(http) => http.say(message),
            Self::Stdio(stdio) => stdio.client.say(message).await,
            Self::Sse(sse) => sse.client.say(message).await,
        }
    }

    /// Sends a request, and waits for its answer.
    pub(crate) async fn ask(&mut self, request: &Value) -> Value {
        self.say(request).await;
        self.answer_to(&request["id"]).await
    }

    /// Waits for the answer to this id.
    pub(crate) async fn answer_to(&mut self, id: &Value) -> Value {
        match self {
            Self::Http(http) => http.hear_where(answers(id)).await,
            Self::Stdio(stdio) => stdio.client.answer_to(id).await,
            Self::Sse(sse) => sse.client.answer_to(id).await,
        }
    }

    /// Waits for a request or a notification of this method.
    pub(crate) async fn hear_of(&mut self, method: &str) -> Value {
        match self {
            Self::Http(http) => http.hear_where(is_of(method)).await,
            Self::Stdio(stdio) => stdio.client.hear_of(method).await,
            Self::Sse(sse) => sse.client.hear_of(method).await,
        }
    }

    /// Ends the session, and waits until that is done.
    pub(crate) async fn end(self) {
        match self {
            Self::Http(http) => {
                assert_eq!(sent(http.client.delete()).await.status, 204);
                http.site.stop().await;
            }
            Self::Stdio(mut stdio) => {
                stdio.client.close();
                stdio.client.ended().await;
                if let Some(site) = stdio.site {
                    site.stop().await;
                }
            }
            Self::Sse(sse) => {
                drop(sse.client);
                sse.site.stop().await;
            }
        }
    }
}

// === impl Site ===

impl Site {
    /// One gateway.
    pub(crate) async fn alone(config: Config) -> Self {
        Self {
            gateways: vec![Gateway::start(config).await.unwrap()],
            balancer: None,
        }
    }

    /// Three gateways behind a load balancer that knows nothing of sessions.
    pub(crate) async fn spread(config: &Config) -> Self {
        let mut gateways = Vec::new();
        for _ in 0..3 {
            gateways.push(Gateway::start(config.clone()).await.unwrap());
        }
        let addresses = gateways.iter().map(|one| one.listen().tcp().unwrap());
        let addresses: Vec<_> = addresses.collect();
        let balancer = Haproxy::in_turn(&addresses).await.unwrap();
        Self {
            gateways,
            balancer: Some(balancer),
        }
    }

    fn url(&self) -> String {
        match &self.balancer {
            Some(balancer) => format!("http://{}", balancer.address()),
            None => format!("http://{}", self.gateways[0].listen()),
        }
    }

    async fn stop(self) {
        for gateway in self.gateways {
            gateway.stop().await;
        }
    }
}

// === impl OverHttp ===

impl OverHttp {
    async fn begin(&mut self, capabilities: &Value) -> Value {
        let opened = self
            .client
            .initialize_as(&initialize(VERSION, capabilities))
            .await;
        assert_eq!(self.client.send(&ready()).await.status, 202);
        let (mut events, hears) = (self.client.listen().await, self.hears.clone());
        self.reading
            .spawn(async move { relay(&mut events, &hears).await });
        opened.json()
    }

    fn say(&mut self, message: &Value) {
        let (post, hears) = (self.client.post(message), self.hears.clone());
        self.reading.spawn(async move {
            let response = post.send().await.unwrap();
            let content_type = response.headers().get("content-type").cloned();
            if content_type.is_some_and(|content_type| content_type == "text/event-stream") {
                return relay(&mut Events::new(response), &hears).await;
            }
            let answer = read(response).await;
            if answer.status != 202 {
                drop(hears.send(answer.json()));
            }
        });
    }

    async fn hear_where(&mut self, is_meant: impl Fn(&Value) -> bool) -> Value {
        let next = async || {
            let heard = tokio::time::timeout(3 * PATIENCE, self.incoming.recv()).await;
            heard.expect("a message in time")
        };
        self.heard.find(is_meant, next).await
    }
}

/// Passes on what a stream says, until it ends.
async fn relay(events: &mut Events, hears: &mpsc::UnboundedSender<Value>) {
    while let Ok(Some(event)) = events.try_next().await {
        let data = event.data().unwrap_or_default();
        if let Ok(message) = serde_json::from_slice(&data) {
            drop(hears.send(message));
        }
    }
}
