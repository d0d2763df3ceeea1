//! The listener to which the browser returns from a sign-in that was started on this machine.
//!
//! Others can reach it, too: pages in the same browser, other users of this machine. So an answer counts by
//! its state alone, and one without the right state changes nothing. No request is logged or shown.

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
use crate::front::html::{end_page, page};
use crate::front::query::Query;
use crate::front::response::{ReplyBody, refuse, refuse_connection};
use crate::guard::Guard;
use crate::listener::{self, Connection, ConnectionLimits};
use crate::oauth::{DeliveryError, DeliveryRoute, Flow, FlowId, Flows};

const PATH: &str = "/callback";

/// How long the browser may take to load its last page.
const FAREWELL: Duration = Duration::from_secs(2);

/// A listener for one flow. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Callback {
    redirect_uri: RedirectUri,
    handler: Arc<CallbackHandler>,
    drain: Drain,
}

#[derive(Debug)]
struct CallbackHandler {
    flows: Arc<Flows>,
    /// The flow whose answer is expected, once there is one.
    flow: Mutex<Option<FlowId>>,
}

// === impl Callback ===

impl Callback {
    /// Listens on 127.0.0.1, on a free port.
    pub(super) async fn listen(flows: &Arc<Flows>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let redirect_uri = format!("http://{}{PATH}", listener.local_addr()?);
        let redirect_uri = redirect_uri.parse().map_err(io::Error::other)?;
        let handler = Arc::new(CallbackHandler {
            flows: Arc::clone(flows),
            flow: Mutex::default(),
        });
        let drain = Drain::new(FAREWELL);
        let opened = Arc::clone(&handler);
        let serve = move |request, _: &Arc<Connection>| {
            let handler = Arc::clone(&opened);
            async move { handler.serve(&request).await }
        };
        let accept = listener::accept(
            listener,
            drain.clone(),
            ConnectionLimits::of_operators(),
            |why| refuse_connection(&why.fault()),
            serve,
        );
        drain.connections().spawn(accept);
        Ok(Self {
            redirect_uri,
            handler,
            drain,
        })
    }

    pub(super) fn redirect_uri(&self) -> &RedirectUri {
        &self.redirect_uri
    }

    /// Accepts the answer to this flow from now on.
    pub(super) fn expect(&self, flow: &Flow) {
        *self.handler.flow.lock() = Some(flow.id.clone());
    }

    /// Lets the browser load its last page, and stops listening.
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

// === impl CallbackHandler ===

impl CallbackHandler {
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
        let delivered = self
            .flows
            .deliver(&state, delivery, DeliveryRoute::Loopback)
            .await;
        Ok(match delivered {
            Ok(end) => end_page(&end),
            // Its state is right, so its answer was taken before: the page was loaded again.
            Err(DeliveryError::UnknownFlow) => page(
                StatusCode::CONFLICT,
                "This sign-in is over",
                "<p>You can close this page.</p>",
            ),
            Err(DeliveryError::IssuerMismatch) => not_a_sign_in(),
            Err(DeliveryError::Store(error)) => return Err(error.into()),
            Err(DeliveryError::Aborted) => return Err(Fault::Stopping),
        })
    }
}

fn not_a_sign_in() -> Response<ReplyBody> {
    page(
        StatusCode::BAD_REQUEST,
        "Not a sign-in",
        "<p>This is not the answer to the sign-in that was started here.</p>",
    )
}
