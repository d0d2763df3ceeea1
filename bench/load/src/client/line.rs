//! A client of HTTP+SSE (2024-11-05): a stream that is the session, and a connection for its messages.

use anyhow::{Context as _, bail, ensure};
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio_util::task::TaskTracker;

use super::{
    Connection, INITIALIZED, MAX_ANSWER, Session, Target, ensure_status, initialize, read, request,
    request_of,
};
use crate::echo::{self, Tool};

/// One session. Its stream ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Line {
    stream: Incoming,
    pending: BytesMut,
    messages: Connection,
    session: Session,
    _stream: Connection,
}

impl Line {
    /// Opens a stream and the session on it.
    pub(crate) async fn open(
        target: &Target,
        number: usize,
        tasks: &TaskTracker,
    ) -> anyhow::Result<Self> {
        let mut connection = Connection::open(target.address, tasks).await?;
        let mut headers = target.headers();
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let get = request(Method::GET, &target.path, headers, String::new());
        let response = connection.send(get).await?;
        ensure_status(&response, StatusCode::OK)?;
        let mut line = Self {
            stream: response.into_body(),
            pending: BytesMut::new(),
            messages: Connection::open(target.address, tasks).await?,
            session: Session {
                path: target.path.clone(),
                headers: target.headers(),
                number,
            },
            _stream: connection,
        };
        let endpoint = line.event().await?;
        line.session.path = std::str::from_utf8(&endpoint)?.parse()?;
        line.post(initialize()).await?;
        let answer = line.event().await?;
        let answer = echo::message(&answer, 0).context("initialize got no answer")?;
        ensure!(answer["result"].is_object(), "initialize got no result");
        line.post(INITIALIZED.to_owned()).await?;
        Ok(line)
    }

    /// Calls the echo tool, and looks whether the answer is the one to this call.
    pub(crate) async fn call(&mut self, tool: Tool, id: u64) -> anyhow::Result<()> {
        let text = echo::text(self.session.number, id);
        self.post(echo::request(tool, id, &text)).await?;
        let answer = self.event().await?;
        if !echo::is_answer(tool, &answer, id, &text) {
            bail!("not the answer: {}", String::from_utf8_lossy(&answer));
        }
        Ok(())
    }

    async fn post(&mut self, body: String) -> anyhow::Result<()> {
        let headers = self.session.headers.clone();
        let post = request_of(Method::POST, &self.session, headers, body);
        let response = self.messages.send(post).await?;
        ensure_status(&response, StatusCode::ACCEPTED)?;
        read(response.into_body(), MAX_ANSWER).await?;
        Ok(())
    }

    /// The data of the next event that has any.
    async fn event(&mut self) -> anyhow::Result<Bytes> {
        loop {
            while let Some(end) = self.pending.windows(2).position(|two| two == b"\n\n") {
                let event = self.pending.split_to(end + 2).freeze();
                let mut lines = event.split(|byte| *byte == b'\n');
                if let Some(data) = lines.find_map(|line| line.strip_prefix(b"data: ")) {
                    return Ok(event.slice_ref(data));
                }
            }
            let frame = self.stream.frame().await.context("the stream ended")??;
            if let Ok(data) = frame.into_data() {
                self.pending.extend_from_slice(&data);
            }
        }
    }
}
