//! stdio towards an upstream: a process for each session, which speaks one JSON-RPC message per line.
//!
//! The pipe is the session. A message of which no byte was written did not run; after the first byte nobody
//! knows. There are no event ids, so nothing can be resumed.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use bowline_egress::Sent;
use bowline_wire::message::{Kind, Message};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::conversation::Issued;
#[cfg(feature = "planted")]
use super::error::Status;
use super::error::{End, LiveError, ProcessError, UpstreamError};
use super::event_source::EventSource;
use super::link::StdioLink;
use super::opening::{InitializeAnswer, Initialized};
use super::outcome::{Listening, Outcome, Pulse, Whole};
use super::process::{Counted, Process};
use crate::caller::Caller;
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::upstream::Upstream;
use crate::upstream::endpoints::Endpoint;
use crate::upstream::policy::budget::{errand, start};

/// How many processes of one server start at the same time, at least. Beyond that it is one for each core,
/// because a start is mostly work.
const FEWEST_STARTS: usize = 4;

/// The turn of a session to be opened at an endpoint. A server that is a process starts a few at a time.
#[derive(Debug)]
pub(crate) struct Turn {
    _start: Option<OwnedSemaphorePermit>,
}

/// How many processes of one server start at the same time.
pub(in crate::upstream) fn starts() -> Arc<Semaphore> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    Arc::new(Semaphore::new(cores.max(FEWEST_STARTS)))
}

// === impl Upstream ===

impl Upstream {
    /// Waits until a session may be opened at this endpoint. Each server has turns of its own, so that one
    /// which starts slowly holds up no other.
    pub(crate) async fn turn(
        &self,
        endpoint: &Endpoint,
        limit: Duration,
    ) -> Result<Turn, UpstreamError> {
        if endpoint.address.url().is_some() {
            return Ok(Turn { _start: None });
        }
        let waiting = Arc::clone(&self.starts).acquire_owned();
        match tokio::time::timeout(limit, waiting).await {
            Ok(start) => Ok(Turn { _start: start.ok() }),
            Err(_) => Err(ProcessError::StartsTaken.into()),
        }
    }

    /// Starts a process and sends it an `initialize`.
    pub(super) async fn stdio_initialize(
        &self,
        link: StdioLink<'_>,
        caller: &Caller,
        message: Bytes,
        sent: Sent,
    ) -> Result<Initialized, UpstreamError> {
        let endpoint = link.endpoint;
        if let Some(ailment) = endpoint.health.ailment()
            && ailment.unreachable
            && ailment.until > Instant::now()
        {
            return Err(UpstreamError::Unavailable(ailment));
        }
        let request = Message::parse(message).map_err(|_| UpstreamError::BadInitialize)?;
        match self.start(link, caller, &request, sent).await {
            Ok((process, body)) => {
                endpoint.health.answered();
                Ok(Initialized::Answered {
                    issued: Ok(Issued::Process(process)),
                    answer: InitializeAnswer::Held(Whole::own(body)),
                })
            }
            Err(error) => {
                #[cfg(feature = "planted")]
                if planted::has(Bug::FailedStartIsFinal) {
                    return Err(UpstreamError::Refused(Status::FORBIDDEN));
                }
                if error.is_absence() {
                    self.metrics.process_failed(&self.name);
                    self.note_unreachable(endpoint, &error.to_string());
                }
                Err(error)
            }
        }
    }

    /// What a process does that ends soon after it has answered `initialize`: that was a failed start.
    fn at_early_death(&self, endpoint: &Endpoint) -> impl FnOnce(&End) + Send + use<> {
        let (health, metrics) = (Arc::clone(&endpoint.health), Arc::clone(&self.metrics));
        let (server, endpoint) = (self.name.clone(), endpoint.address.to_string());
        move |end| {
            #[cfg(feature = "planted")]
            if planted::has(Bug::YoungIsWell) {
                return;
            }
            metrics.process_failed(&server);
            let reason = format!("its process exited soon after it had started: {end}");
            if health.died_young(reason.as_str()) {
                tracing::warn!(%server, %endpoint, reason, "endpoint is unreachable");
            }
        }
    }

    async fn start(
        &self,
        link: StdioLink<'_>,
        caller: &Caller,
        request: &Message,
        sent: Sent,
    ) -> Result<(Arc<Process>, Bytes), UpstreamError> {
        let place = self.process_places.of_caller(caller).take();
        let place = place.ok_or_else(|| ProcessError::TooMany(self.process_places.exhausted()))?;
        let counted = Counted::among(&self.running);
        let holds = (place, counted);
        let early_death = self.at_early_death(link.endpoint);
        let process =
            Process::start(&self.channels, &self.name, link.command, holds, early_death).await?;
        let limit = start(&self.config().recovery);
        let asking = process.ask(request, sent, limit);
        match tokio::time::timeout(limit, asking).await {
            Ok(Ok(body)) => Ok((process, body)),
            Ok(Err(LiveError::Ended { end, .. })) => Err(ProcessError::ExitedAtStart(end).into()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(ProcessError::Silent(limit, process.last_words()).into()),
        }
    }

    /// Sends a request. What answers it is one message, or a stream if anything else comes first.
    pub(super) async fn stdio_request(
        &self,
        link: StdioLink<'_>,
        message: &Message,
        sent: Sent,
    ) -> Result<Outcome, UpstreamError> {
        let process = link.stdio.get(self.owners())?;
        let incoming = process.send(message, sent, self.patience()).await?;
        let answering = Outcome::of_live(incoming);
        #[cfg(feature = "planted")]
        let answering =
            planted::impatient(Bug::StoppedIsGone, answering, || UpstreamError::SessionLost);
        answering.await
    }

    /// Sends what has no answer.
    pub(super) async fn stdio_notify(
        &self,
        link: StdioLink<'_>,
        message: Bytes,
        sent: Sent,
    ) -> Result<(), UpstreamError> {
        let message = Message::parse(message).map_err(|_| UpstreamError::AnotherId)?;
        let process = link.stdio.get(self.owners())?;
        Ok(process.tell(&message, sent, self.patience()).await?)
    }

    /// Sends something of Bowline's own, and waits for its answer if it has one.
    pub(super) async fn stdio_say(
        &self,
        link: StdioLink<'_>,
        message: Bytes,
    ) -> Result<(), UpstreamError> {
        let process = link.stdio.get(self.owners())?;
        let message = Message::parse(message).map_err(|_| UpstreamError::AnotherId)?;
        let (sent, patience) = (Sent::default(), self.patience());
        match message.kind() {
            Kind::Request => drop(process.ask(&message, sent, patience).await?),
            Kind::Notification | Kind::Response => process.tell(&message, sent, patience).await?,
        }
        Ok(())
    }

    /// Asks whether the process lives and answers.
    pub(super) async fn stdio_ping(&self, link: StdioLink<'_>, ping: &Message) -> Pulse {
        link.stdio.look(self.owners(), self.look_limit()).await;
        let asked = match link.stdio.get(self.owners()) {
            Ok(process) => process.ask(ping, Sent::default(), self.patience()).await,
            Err(error) => Err(error),
        };
        Pulse::of_live(asked.map_err(UpstreamError::from))
    }

    /// A call got no answer in time: a process that does not answer a ping either is ended.
    pub(super) async fn stdio_doubt(&self, link: StdioLink<'_>, ping: &Message) {
        if let Ok(process) = link.stdio.get(self.owners()) {
            process.end_if_it_hangs(ping, self.patience()).await;
        }
    }

    /// What the server says unasked. There are no event ids after which anything could be resumed.
    pub(super) async fn stdio_listen(
        &self,
        link: StdioLink<'_>,
    ) -> Result<Listening, UpstreamError> {
        let incoming = link.stdio.get(self.owners())?.listen().await?;
        Ok(Listening::Events(EventSource::Live(incoming)))
    }

    /// Ends the process.
    pub(super) async fn stdio_end(&self, link: StdioLink<'_>) -> Result<(), UpstreamError> {
        link.stdio.get(self.owners())?.end().await;
        Ok(())
    }

    /// How long a process may leave a message unread before it is given up.
    fn patience(&self) -> Duration {
        errand(&self.config().recovery)
    }
}
