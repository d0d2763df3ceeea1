//! A session's client that speaks HTTP+SSE: its stream is at one gateway, and each of its messages goes to the
//! next one. When the stream ends, it opens another session.

mod line;

use std::sync::Arc;
use std::time::Duration;

use bowline_testbed::client::{Answer, Client};
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{sleep, timeout};

use self::line::Line;
use super::rover::{Failure, awake};
use super::{Speaks, listen};
use crate::gateway::Gateways;
use crate::history::Recorder;
use crate::server::Server;

/// The revision whose transport this is.
const VERSION: &str = "2024-11-05";
/// How long it waits before it tries again what was refused and did not run.
const AGAIN: Duration = Duration::from_millis(100);
/// How long it waits for the answer to a message that may not have arrived.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client of one session at a time.
#[derive(Debug)]
pub(super) struct OverSse {
    gateways: Arc<Gateways>,
    recorder: Arc<Recorder>,
    session: usize,
    /// The stream, which its twins share.
    line: Arc<Mutex<Option<Arc<Line>>>>,
    turn: usize,
    /// The gateway that was asked last.
    asked: usize,
}

impl OverSse {
    pub(super) fn new(gateways: &Arc<Gateways>, recorder: &Arc<Recorder>, session: usize) -> Self {
        Self {
            gateways: Arc::clone(gateways),
            recorder: Arc::clone(recorder),
            session,
            line: Arc::default(),
            turn: session,
            asked: 0,
        }
    }

    /// The stream that is open, or a new one.
    async fn line(&mut self) -> Result<Arc<Line>, Failure> {
        let shared = Arc::clone(&self.line);
        let mut shared = shared.lock().await;
        if let Some(line) = shared.as_ref().filter(|line| !line.has_ended()) {
            return Ok(Arc::clone(line));
        }
        let (line, _) = self.open_line().await?;
        *shared = Some(Arc::clone(&line));
        Ok(line)
    }

    /// Opens a stream at the next gateway and the session on it; how that was answered.
    async fn open_line(&mut self) -> Result<(Arc<Line>, Answer), Failure> {
        let place = self.next();
        let gateway = &self.gateways.all()[place];
        let life = gateway.life();
        let failed = |error: &anyhow::Error| Failure::new(error, gateway.died_since(life));
        let url = gateway.sse_url(Server::of(self.session));
        let stream = async { Client::new(&url)?.listen(None).await };
        let mut events = stream.await.map_err(|error| failed(&error))?;
        let first = events.next().await;
        let endpoint = match first.map_err(|error| failed(&error.into()))? {
            Some(first) if events.head.status == 200 => first.data,
            _ => return Err(self.refused().await),
        };
        let line = Line::start(
            events,
            endpoint,
            (place, life),
            self.session,
            &self.recorder,
        );
        let initialize = json!({"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": {
            "protocolVersion": VERSION, "capabilities": {},
            "clientInfo": {"name": listen::name(self.session), "version": "1"},
        }});
        let answer = self.exchange(&line, &initialize).await?;
        if answer
            .to(&json!("open"))
            .is_none_or(|it| it.get("result").is_none())
        {
            return Err(self.refused().await);
        }
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.post(&line, &initialized).await?;
        Ok((line, answer))
    }

    /// What was refused did not run, and may succeed later.
    async fn refused(&self) -> Failure {
        sleep(AGAIN).await;
        Failure::NotThere
    }

    /// Sends a message and reads all that answers it on the stream.
    async fn exchange(&mut self, line: &Line, message: &Value) -> Result<Answer, Failure> {
        let mut incoming = line.expect(message);
        let posted = match self.post(line, message).await {
            Ok(posted) => posted,
            Err(failure) => {
                line.give_up(message);
                return Err(failure);
            }
        };
        let patience = match posted.status.as_u16() {
            202 => Duration::MAX,
            // The way to the stream's gateway broke. If the message arrived, its answer comes.
            502 if self.gateways.unrest() > 0 => PATIENCE,
            // Nothing was accepted: the stream's gateway is gone, or was gone for the others.
            404 if line.was_struck(&self.gateways) => {
                line.give_up(message);
                line.end();
                return Err(Failure::NotThere);
            }
            503 => {
                line.give_up(message);
                return Err(self.refused().await);
            }
            _ => return Ok(posted),
        };
        let read = timeout(patience, read(line, &mut incoming, message)).await;
        let Ok(read) = read else {
            line.give_up(message);
            return Err(Failure::Orphaned);
        };
        match read {
            Some(messages) => Ok(Answer {
                // It came on a stream, as an answer with 200 would.
                status: 200.try_into().unwrap_or(posted.status),
                messages,
                ..posted
            }),
            None if line.was_orphaned(&self.gateways) => Err(Failure::Orphaned),
            None => Err(Failure::Broken("its stream ended".to_owned())),
        }
    }

    /// Sends a message to the next gateway, on a connection of its own.
    async fn post(&mut self, line: &Line, message: &Value) -> Result<Answer, Failure> {
        let place = self.next();
        let gateway = &self.gateways.all()[place];
        let life = gateway.life();
        let url = format!("{}{}", gateway.origin(), line.endpoint());
        let posted = async { Client::new(&url)?.send(message).await };
        let posted = posted.await;
        let orphaned = gateway.died_since(life);
        match posted {
            Ok(answer) if answer.cut.is_some() && orphaned => Err(Failure::Orphaned),
            Ok(answer) => Ok(answer),
            Err(error) => Err(Failure::new(&error, orphaned)),
        }
    }

    fn next(&mut self) -> usize {
        self.asked = awake(&self.gateways, &mut self.turn);
        self.asked
    }
}

impl Speaks for OverSse {
    async fn open(&mut self) -> Result<Answer, Failure> {
        let shared = Arc::clone(&self.line);
        let mut shared = shared.lock().await;
        let (line, answer) = self.open_line().await?;
        *shared = Some(line);
        Ok(answer)
    }

    async fn send(&mut self, message: &Value) -> Result<Answer, Failure> {
        let line = self.line().await?;
        self.exchange(&line, message).await
    }

    fn twin(&self) -> Self {
        Self {
            gateways: Arc::clone(&self.gateways),
            recorder: Arc::clone(&self.recorder),
            session: self.session,
            line: Arc::clone(&self.line),
            turn: self.turn,
            asked: self.asked,
        }
    }

    fn latest(&self) -> usize {
        self.asked
    }
}

/// Reads what comes for a request, to its answer; `None` if the stream ends before.
async fn read(
    line: &Line,
    incoming: &mut mpsc::UnboundedReceiver<Value>,
    request: &Value,
) -> Option<Vec<Value>> {
    let mut messages = Vec::new();
    loop {
        let message = tokio::select! {
            biased;
            message = incoming.recv() => message?,
            () = line.ended() => return None,
        };
        let is_answer = message.get("method").is_none() && message["id"] == request["id"];
        messages.push(message);
        if is_answer {
            return Some(messages);
        }
    }
}
