//! The task that serves the connection to one supervisor process, and waits for its end.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rustix::net::Shutdown;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::Child as SupervisorProcess;
use tokio::sync::{mpsc, oneshot};

use super::table::Table;
use crate::descendants;
use crate::protocol::{self, Event};
use crate::socket;

/// A program that does not say by then that it is a supervisor is none.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// One supervisor process.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: UnixStream,
    pub(super) process: SupervisorProcess,
    pub(super) table: Arc<Table>,
    pub(super) tag: String,
}

/// What is sent to a supervisor.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// A request, and the descriptors that belong to it.
    Frame(Vec<u8>, Vec<OwnedFd>),
    /// Nothing follows: the supervisor ends all children, and exits.
    Close,
}

impl Connection {
    /// Serves until the supervisor has exited.
    pub(super) async fn serve(
        self,
        mut outgoing: mpsc::UnboundedReceiver<Outgoing>,
        ready: oneshot::Sender<()>,
    ) {
        let mut received = BytesMut::new();
        let first = self.event(&mut received);
        let first = tokio::time::timeout(READY_WITHIN, first).await;
        if !matches!(first, Ok(Ok(Some(Event::Ready)))) {
            drop(ready);
            self.finish(true).await;
            return;
        }
        // Who started this may have given up. Then there is no sender either, and the supervisor ends.
        if ready.send(()).is_err() {
            tracing::debug!("nobody waits for the supervisor");
        }
        let closed = {
            let mut writing = pin!(write(&self.stream, &mut outgoing));
            let mut reading = pin!(self.read(&mut received));
            tokio::select! {
                read = &mut reading => read,
                written = &mut writing => match written {
                    Ok(()) => reading.await,
                    Err(error) => Err(error),
                },
            }
        };
        if let Err(error) = &closed {
            tracing::warn!(%error, "the connection to the supervisor of child processes broke");
        }
        self.finish(closed.is_err()).await;
    }

    /// Passes on what the supervisor reports, until it closes.
    async fn read(&self, received: &mut BytesMut) -> io::Result<()> {
        while let Some(event) = self.event(received).await? {
            self.table.report(event);
        }
        Ok(())
    }

    /// The next event.
    async fn event(&self, received: &mut BytesMut) -> io::Result<Option<Event>> {
        loop {
            if let Some(frame) = protocol::next_frame(received).map_err(io::Error::other)? {
                return Event::decode(&frame).map(Some).map_err(io::Error::other);
            }
            self.stream.readable().await?;
            match self.stream.try_read_buf(received) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for the supervisor's exit, and kills what it left.
    async fn finish(mut self, kill: bool) {
        self.table.close();
        if kill && let Err(error) = self.process.start_kill() {
            tracing::debug!(%error, "the supervisor exited");
        }
        drop(self.stream);
        let exited = self.process.wait().await;
        let left = self.table.left();
        match exited {
            Ok(status) if status.success() && left.is_empty() => {}
            status => {
                let status = status.map_or_else(|error| error.to_string(), |it| it.to_string());
                tracing::warn!(
                    status,
                    "the supervisor of child processes died; its children are killed"
                );
                descendants::kill_left_behind(&self.tag, left).await;
            }
        }
        self.table.clean_up();
    }
}

/// Sends requests until there is none left to wait for; then the supervisor sees the end.
async fn write(
    stream: &UnixStream,
    outgoing: &mut mpsc::UnboundedReceiver<Outgoing>,
) -> io::Result<()> {
    while let Some(Outgoing::Frame(frame, mut descriptors)) = outgoing.recv().await {
        let mut rest = &*frame;
        while !rest.is_empty() {
            let send = || socket::send(stream, rest, &descriptors);
            let sent = stream.async_io(Interest::WRITABLE, send).await?;
            descriptors.clear();
            rest = &rest[sent..];
        }
    }
    rustix::net::shutdown(stream, Shutdown::Write)?;
    Ok(())
}
