//! The listener to which the browser comes back from a sign-in that was begun on this machine.
//!
//! Whoever can reach it can knock at it: pages in the same browser, other users of this machine. So an
//! answer counts by its state alone, and one without it, or with another, changes nothing. Nothing of
//! what is asked is logged or shown.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::config::RedirectUri;
use crate::drain::Drain;
use crate::fault::Fault;
use crate::front::guard::Guard;
use crate::front::{Query, ReplyBody, end_page, page, refuse};
use crate::listener::{self, Crowd, Visit};
use crate::oauth::{Flow, FlowId, NotDelivered, SignIns, Via};

const PATH: &str = "/callback";

/// How long the browser may take to read its last page.
const FAREWELL: Duration = Duration::from_secs(2);

/// A listener for one flow. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Callback {
    redirect_uri: RedirectUri,
    door: Arc<Door>,
    drain: Drain,
}

#[derive(Debug)]
struct Door {
    sign_ins: Arc<SignIns>,
    /// The flow that is expected, once there is one.
    flow: Mutex<Option<FlowId>>,
}

// === impl Callback ===

impl Callback {
    /// Listens on 127.0.0.1, on a free port.
    pub(super) async fn listen(sign_ins: &Arc<SignIns>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let redirect_uri = format!("http://{}{PATH}", listener.local_addr()?);
        let redirect_uri = redirect_uri.parse().map_err(io::Error::other)?;
        let door = Arc::new(Door {
            sign_ins: Arc::clone(sign_ins),
            flow: Mutex::default(),
        });
        let drain = Drain::new(FAREWELL);
        let opened = Arc::clone(&door);
        let serve = move |request, _: &Arc<Visit>| {
            let door = Arc::clone(&opened);
            async move { door.serve(&request).await }
        };
        let accept = listener::accept(
            listener,
            drain.clone(),
            Crowd::of_operators(),
            |_| {},
            serve,
        );
        drain.connections().spawn(accept);
        Ok(Self {
            redirect_uri,
            door,
            drain,
        })
    }

    pub(super) fn redirect_uri(&self) -> &RedirectUri {
        &self.redirect_uri
    }

    /// From now on the answer to this flow is taken.
    pub(super) fn expect(&self, flow: &Flow) {
        *self.door.flow.lock() = Some(flow.id.clone());
    }

    /// Lets the browser read its last page, and stops listening.
    pub(super) async fn close(&self) {
        self.drain.begin();
        self.drain.close();
        drop(tokio::time::timeout(FAREWELL, self.drain.connections().wait()).await);
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        self.drain.begin();
        self.drain.close();
    }
}

// === impl Door ===

impl Door {
    async fn serve(&self, request: &Request<Incoming>) -> Response<ReplyBody> {
        match self.came_back(request).await {
            Ok(page) => page,
            Err(fault) => refuse(&fault, None),
        }
    }

    async fn came_back(&self, request: &Request<Incoming>) -> Result<Response<ReplyBody>, Fault> {
        Guard::loopback().check(request.uri(), request.headers())?;
        if request.uri().path() != PATH {
            return Err(Fault::NoSuchPath);
        }
        if request.method() != Method::GET {
            return Err(Fault::Method { allow: "GET" });
        }
        let Ok((state, delivery)) = Query::of(request.uri())?.into_delivery() else {
            return Ok(not_a_sign_in());
        };
        let id = FlowId::of(&state);
        if self.flow.lock().as_ref() != Some(&id) {
            return Ok(not_a_sign_in());
        }
        let delivered = self.sign_ins.deliver(&state, delivery, Via::Loopback).await;
        Ok(match delivered {
            Ok(end) => end_page(&end),
            // Its state is right, so it was taken already: a page that was loaded again.
            Err(NotDelivered::Unknown) => page(
                StatusCode::CONFLICT,
                "This sign-in is over",
                "<p>You can close this page.</p>",
            ),
            Err(NotDelivered::Issuer) => not_a_sign_in(),
            Err(NotDelivered::Pending(error)) => return Err(error.into()),
            Err(NotDelivered::GivenUp) => return Err(Fault::Stopping),
        })
    }
}

fn not_a_sign_in() -> Response<ReplyBody> {
    page(
        StatusCode::BAD_REQUEST,
        "Not a sign-in",
        "<p>This is not the answer to the sign-in that was begun here.</p>",
    )
}
