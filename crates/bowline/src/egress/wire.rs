//! One connection to an endpoint, driven by whoever waits for something of it.
//!
//! hyper wants a connection to be polled. A task of its own would have to be woken to take every
//! request and would wake its client's task to hand over every part of an answer; polled by the
//! client's task itself, a request and its answer cost no wake-ups at all. A connection that rests
//! is not polled; whether its server closed it meanwhile shows when it is to be used again.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};

use crate::body::Outgoing;

/// The most of one answer that is read ahead of a slow reader.
const READ_BUFFER: usize = 64 * 1024;

/// A connection.
pub(super) struct Wire {
    sender: SendRequest<Outgoing>,
    /// `None` once the connection has ended.
    driver: Option<Driver>,
}

type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Wire {
    /// Begins to speak HTTP on an open connection.
    pub(super) async fn new<I>(io: I) -> Result<Self, hyper::Error>
    where
        I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(READ_BUFFER)
            .handshake(io)
            .await?;
        let driver = Box::pin(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "upstream connection ended");
            }
        });
        Ok(Self {
            sender,
            driver: Some(driver),
        })
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Outgoing>>> {
        let Self { sender, driver } = self;
        let mut answer = std::pin::pin!(sender.try_send_request(request));
        poll_fn(|cx| {
            poll_driver(driver, cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Waits until another request can be sent; `false` if none ever can.
    pub(super) async fn is_ready(&mut self) -> bool {
        poll_fn(|cx| {
            // First the connection: its server may have closed it while it rested.
            poll_driver(&mut self.driver, cx);
            self.sender.poll_ready(cx)
        })
        .await
        .is_ok()
    }

    /// Whether the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.driver.is_none() || self.sender.is_closed()
    }

    /// Lets the connection read and write.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        poll_driver(&mut self.driver, cx);
    }
}

fn poll_driver(driver: &mut Option<Driver>, cx: &mut Context<'_>) {
    if let Some(running) = driver
        && let Poll::Ready(()) = running.as_mut().poll(cx)
    {
        *driver = None;
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire")
            .field("closed", &self.is_closed())
            .finish()
    }
}
