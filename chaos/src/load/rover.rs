//! A session's client that asks another gateway each time.

use std::io;
use std::sync::Arc;

use bowline_testbed::client::{Answer, Client};
use serde_json::Value;

use super::Speaks;
use crate::gateway::{Gateways, Life};
use crate::server::Target;

/// A client of one session with a connection to every gateway, which it uses in turn.
#[derive(Debug)]
pub(crate) struct Rover {
    gateways: Arc<Gateways>,
    target: Target,
    /// One for each gateway, and in which of its lives it was used last.
    clients: Vec<(Client, Life)>,
    turn: usize,
    /// The gateway that was asked last.
    asked: usize,
}

/// Why nothing was answered.
#[derive(Debug)]
pub(super) enum Failure {
    /// The gateway was not there, so nothing was sent.
    NotThere,
    /// The gateway was killed in the middle.
    Orphaned,
    /// The gateway broke the connection.
    Broken(String),
}

impl Rover {
    /// A client of this name that begins with the gateway whose turn it is.
    pub(super) fn new(
        gateways: &Arc<Gateways>,
        target: Target,
        turn: usize,
        name: &str,
        version: &'static str,
    ) -> anyhow::Result<Self> {
        let clients = gateways.all().iter().map(|gateway| {
            let client = Client::new(&gateway.url(target))?;
            let client = client.named(name).speaking(version);
            Ok((client, gateway.life()))
        });
        Ok(Self {
            clients: clients.collect::<anyhow::Result<_>>()?,
            gateways: Arc::clone(gateways),
            target,
            turn,
            asked: 0,
        })
    }

    /// The same with an `initialize` of about so many bytes.
    pub(super) fn weighing(self, bytes: usize) -> Self {
        let clients = self.clients.into_iter();
        let weighing = |(client, life): (Client, Life)| (client.weighing(bytes), life);
        Self {
            clients: clients.map(weighing).collect(),
            ..self
        }
    }

    /// A client in the same session with connections of its own.
    pub(super) fn twin(&self) -> Self {
        let clients = self.clients.iter();
        Self {
            gateways: Arc::clone(&self.gateways),
            target: self.target,
            clients: clients
                .map(|(client, life)| (client.twin(), *life))
                .collect(),
            turn: self.turn,
            asked: self.asked,
        }
    }

    /// Opens a session for all gateways; how that was answered.
    pub(super) async fn open(&mut self) -> Result<Answer, Failure> {
        let (place, life) = self.next();
        let opener = &mut self.clients[place].0;
        let opened = opener.open().await;
        let session = opener.twin();
        let orphaned = self.gateways.all()[place].died_since(life);
        let answer = opened.map_err(|error| Failure::new(&error, orphaned))?;
        for (gateway, (client, _)) in self.gateways.all().iter().zip(&mut self.clients) {
            // Its URL was good before.
            if let Ok(moved) = session.moved_to(&gateway.url(self.target)) {
                *client = moved;
            }
        }
        Ok(answer)
    }

    /// Ends the session at the next gateway.
    pub(super) async fn delete(&mut self) -> Result<Answer, Failure> {
        let (place, life) = self.next();
        let answer = self.clients[place].0.delete().await;
        let orphaned = self.gateways.all()[place].died_since(life);
        answer.map_err(|error| Failure::new(&error, orphaned))
    }

    /// Sends a message to the next gateway and reads all that answers it.
    pub(super) async fn send(&mut self, message: &Value) -> Result<Answer, Failure> {
        let (place, life) = self.next();
        let answer = self.clients[place].0.send(message).await;
        let orphaned = self.gateways.all()[place].died_since(life);
        match answer {
            Ok(answer) if answer.cut.is_some() && orphaned => Err(Failure::Orphaned),
            Ok(answer) => Ok(answer),
            Err(error) => Err(Failure::new(&error, orphaned)),
        }
    }

    pub(super) fn has_several_gateways(&self) -> bool {
        self.clients.len() > 1
    }

    /// Which gateway is asked next.
    pub(super) fn upcoming(&self) -> usize {
        self.turn % self.clients.len()
    }

    /// Listens on the GET stream of the next gateway: its status, and why it ended if that was no
    /// clean end.
    pub(super) async fn listen(&mut self, mut heard: impl FnMut(Value)) -> Result<u16, Failure> {
        let (place, life) = self.next();
        let mut connection = self.clients[place].0.twin();
        let ended = async {
            let mut events = connection.listen(None).await?;
            while let Some(event) = events.next().await? {
                heard(event.message);
            }
            anyhow::Ok(events.head.status.as_u16())
        };
        let ended = ended.await;
        let orphaned = self.gateways.all()[place].died_since(life);
        ended.map_err(|error| Failure::new(&error, orphaned))
    }

    /// Whose turn it is, and in which life. Connections from an earlier one are dropped: whether a
    /// request was sent on one of them could not be told.
    fn next(&mut self) -> (usize, Life) {
        let place = awake(&self.gateways, &mut self.turn);
        let life = self.gateways.all()[place].life();
        self.asked = place;
        let (client, last) = &mut self.clients[place];
        if *last != life {
            (*client, *last) = (client.twin(), life);
        }
        (place, life)
    }
}

impl Speaks for Rover {
    async fn open(&mut self) -> Result<Answer, Failure> {
        Self::open(self).await
    }

    async fn send(&mut self, message: &Value) -> Result<Answer, Failure> {
        Self::send(self, message).await
    }

    fn twin(&self) -> Self {
        Self::twin(self)
    }

    fn latest(&self) -> usize {
        self.asked
    }
}

/// The gateway whose turn it is, but for one that has been stopped for a while.
pub(super) fn awake(gateways: &Gateways, turn: &mut usize) -> usize {
    let all = gateways.all();
    for _ in 0..all.len() {
        let place = *turn % all.len();
        *turn += 1;
        if !all[place].is_left_out() {
            return place;
        }
    }
    *turn % all.len()
}

impl Failure {
    pub(super) fn new(error: &anyhow::Error, orphaned: bool) -> Self {
        let cause = error.downcast_ref::<io::Error>();
        let refused = cause.is_some_and(|cause| cause.kind() == io::ErrorKind::ConnectionRefused);
        match (refused, orphaned) {
            (true, true) => Self::NotThere,
            (false, true) => Self::Orphaned,
            (_, false) => Self::Broken(format!("{error:#}")),
        }
    }
}
