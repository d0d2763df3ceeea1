//! The client that counts: one tool call after the other in one session. If its session is gone it opens
//! another one at the next call, as the specification wants it, and begins to count anew.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, COOKIE, HOST, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::http::send;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const VERSION: &str = "2025-11-25";

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A client of one server.
#[derive(Debug)]
pub(super) struct Client {
    name: &'static str,
    address: SocketAddr,
    path: &'static str,
    session: Option<HeaderValue>,
    opened: u32,
    sent: u64,
    keeps_cookies: bool,
    cookie: Option<HeaderValue>,
}

/// A call that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) number: u64,
    pub(super) replica: usize,
    /// It is the first of its session.
    pub(super) is_first: bool,
    pub(super) took: Duration,
}

// === impl Client ===

impl Client {
    /// A client that has no session yet.
    pub(super) fn new(name: &'static str, address: SocketAddr, path: &'static str) -> Self {
        Self {
            name,
            address,
            path,
            session: None,
            opened: 0,
            sent: 0,
            keeps_cookies: true,
            cookie: None,
        }
    }

    /// How many sessions it has opened.
    pub(super) fn opened(&self) -> u32 {
        self.opened
    }

    /// From now on it keeps no cookies.
    pub(super) fn drop_cookies(&mut self) {
        self.keeps_cookies = false;
        self.cookie = None;
    }

    /// Counts one more. An error is what a person would be shown.
    pub(super) async fn count(&mut self) -> anyhow::Result<Counted> {
        let began = Instant::now();
        let is_first = self.session.is_none();
        let counted = match is_first {
            true => self.open().await,
            false => Ok(()),
        };
        let counted = match counted {
            Ok(()) => self.call().await,
            Err(error) => Err(error),
        };
        // Whatever went wrong, this client knows no better than to start over.
        let (number, replica) = counted.inspect_err(|_| self.session = None)?;
        Ok(Counted {
            number,
            replica,
            is_first,
            took: began.elapsed(),
        })
    }

    async fn open(&mut self) -> anyhow::Result<()> {
        let client = json!({"name": self.name, "version": env!("CARGO_PKG_VERSION")});
        let params = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": client});
        let (headers, _) = self.request("initialize", &params).await?;
        let id = headers.get(SESSION_ID);
        self.session = Some(id.context("there is no session id in the answer")?.clone());
        self.opened += 1;
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        refused(&self.post(&initialized).await?)
    }

    async fn call(&mut self) -> anyhow::Result<(u64, usize)> {
        let conversation = format!("{}-{}", self.name, self.opened);
        let params = json!({"name": "count", "arguments": {"conversation": conversation}});
        let (_, result) = self.request("tools/call", &params).await?;
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        let (number, replica) = text.split_once(" by ").context("another answer")?;
        Ok((number.parse()?, replica.parse()?))
    }

    async fn request(
        &mut self,
        method: &str,
        params: &Value,
    ) -> anyhow::Result<(HeaderMap, Value)> {
        self.sent += 1;
        let id = self.sent;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let answer = self.post(&message).await?;
        refused(&answer)?;
        let mut body: Value = serde_json::from_slice(answer.body())?;
        if let Some(error) = body.get("error") {
            bail!("{}: {}", error["code"], words(error));
        }
        Ok((answer.into_parts().0.headers, body["result"].take()))
    }

    async fn post(&mut self, message: &Value) -> anyhow::Result<Response<Bytes>> {
        let mut request = Request::post(self.path)
            .header(HOST, self.address.to_string())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        if let Some(id) = &self.session {
            request = request
                .header(SESSION_ID, id)
                .header(PROTOCOL_VERSION, VERSION);
        }
        if let Some(cookie) = &self.cookie {
            request = request.header(COOKIE, cookie);
        }
        let request = request.body(Full::from(message.to_string()))?;
        let answer = timeout(TIMEOUT, send(self.address, request)).await;
        let answer = answer.context("no answer")??;
        if self.keeps_cookies
            && let Some(cookie) = answer.headers().get(SET_COOKIE)
        {
            let pair = cookie.to_str()?.split(';').next().unwrap_or_default();
            self.cookie = Some(HeaderValue::try_from(pair)?);
        }
        Ok(answer)
    }
}

/// An error with the words of the answer, if it is no success.
fn refused(answer: &Response<Bytes>) -> anyhow::Result<()> {
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    bail!("{}: {}", status.as_u16(), words_or(&body["error"], status))
}

fn words(error: &Value) -> &str {
    error["message"].as_str().unwrap_or_default()
}

fn words_or(error: &Value, status: StatusCode) -> &str {
    let reason = status.canonical_reason().unwrap_or_default();
    error["message"].as_str().unwrap_or(reason)
}
