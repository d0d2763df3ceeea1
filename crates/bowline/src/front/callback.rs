//! The listener of one sign-in that was started on this machine: it leads the browser to the authorization
//! server, and the browser returns to it.
//!
//! Others can reach it, too: pages in the same browser, other users of this machine. So an answer counts by
//! its state alone, and one without the right state changes nothing. The state is in the authorization URL,
//! and all users of a machine can read the arguments of a program. So the program that opens a browser gets
//! the address of this listener, which has no secret, and only processes of the same user are led on from
//! there. No request is logged or shown.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bowline_system::socket_owner;
use http::header::{LOCATION, REFERRER_POLICY};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

use crate::config::RedirectUri;
use crate::drain::Drain;
use crate::fault::Fault;
use crate::front::html::{end_page, no_store, page};
use crate::front::query::Query;
use crate::front::response::{ReplyBody, empty, refuse, refuse_connection};
use crate::guard::Guard;
use crate::listener::{self, Connection, ConnectionLimits, Door};
use crate::net::Peer;
use crate::oauth::{DeliveryError, DeliveryRoute, Flow, FlowId, Flows};

const PATH: &str = "/callback";
/// Where a browser is led on to the authorization server.
const START: &str = "/";

/// How long the browser may take to load its last page.
const FAREWELL: Duration = Duration::from_secs(2);

/// A listener for one flow. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Callback {
    address: SocketAddr,
    redirect_uri: RedirectUri,
    handler: Arc<CallbackHandler>,
    drain: Drain,
}

#[derive(Debug)]
struct CallbackHandler {
    flows: Arc<Flows>,
    /// The flow whose answer is expected, once there is one.
    flow: Mutex<Option<Flow>>,
}

/// The listener's door. It knows the connections of this process's own user, where the system says whose a
/// connection is.
struct KnowingDoor {
    listener: TcpListener,
    address: SocketAddr,
}

// === impl KnowingDoor ===

impl Door for KnowingDoor {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, peer) = self.listener.accept().await?;
        let own = socket_owner::own_user(peer, self.address);
        Ok((stream, own.map_or(Peer::Address(peer.ip()), Peer::User)))
    }

    fn prepare(stream: &TcpStream) -> io::Result<()> {
        TcpListener::prepare(stream)
    }
}

// === impl Callback ===

impl Callback {
    /// Listens on 127.0.0.1, on a free port.
    pub(crate) async fn listen(flows: &Arc<Flows>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let redirect_uri = format!("http://{address}{PATH}");
        let redirect_uri = redirect_uri.parse().map_err(io::Error::other)?;
        let handler = Arc::new(CallbackHandler {
            flows: Arc::clone(flows),
            flow: Mutex::default(),
        });
        let drain = Drain::new(FAREWELL);
        let opened = Arc::clone(&handler);
        let serve = move |request, connection: &Arc<Connection>| {
            let (handler, connection) = (Arc::clone(&opened), Arc::clone(connection));
            async move { handler.serve(&request, &connection).await }
        };
        let accept = listener::accept(
            KnowingDoor { listener, address },
            drain.clone(),
            ConnectionLimits::of_operators(),
            |why| refuse_connection(&why.fault()),
            serve,
        );
        drain.connections().spawn(accept);
        Ok(Self {
            address,
            redirect_uri,
            handler,
            drain,
        })
    }

    pub(crate) fn redirect_uri(&self) -> &RedirectUri {
        &self.redirect_uri
    }

    /// Accepts the answer to this flow from now on.
    pub(crate) fn expect(&self, flow: &Flow) {
        *self.handler.flow.lock() = Some(flow.clone());
    }

    /// The address that leads this user's browser on. It has no secret.
    pub(crate) fn start_url(&self) -> String {
        format!("http://{}{START}", self.address)
    }

    /// Lets the browser load its last page, and stops listening.
    pub(crate) async fn close(&self) {
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
    async fn serve(
        &self,
        request: &Request<Incoming>,
        connection: &Connection,
    ) -> Response<ReplyBody> {
        match self.route(request, connection).await {
            Ok(page) => page,
            Err(fault) => refuse(&fault, None),
        }
    }

    async fn route(
        &self,
        request: &Request<Incoming>,
        connection: &Connection,
    ) -> Result<Response<ReplyBody>, Fault> {
        Guard::loopback().check(request.uri(), request.headers())?;
        match (request.uri().path(), request.method()) {
            (START, &Method::GET) => Ok(self.lead_on(connection)),
            (PATH, &Method::GET) => self.came_back(request).await,
            (START | PATH, _) => Err(Fault::Method { allow: "GET" }),
            _ => Err(Fault::NoSuchPath),
        }
    }

    /// Leads a browser of this user to the authorization server.
    fn lead_on(&self, connection: &Connection) -> Response<ReplyBody> {
        if !matches!(connection.peer, Peer::User(_)) {
            return page(
                StatusCode::FORBIDDEN,
                "Use the link in the terminal",
                "<p>Whose browser this is cannot be told. Open the link that <code>bowline login</code> printed.</p>",
            );
        }
        let flow = self.flow.lock();
        let authorization = flow.as_ref().and_then(Flow::authorization);
        let location = authorization
            .and_then(|found| HeaderValue::try_from(&found.request.authorize_url).ok());
        let Some(mut location) = location else {
            return not_a_sign_in();
        };
        location.set_sensitive(true);
        let mut response = no_store(empty(StatusCode::SEE_OTHER));
        let headers = response.headers_mut();
        headers.insert(LOCATION, location);
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        response
    }

    async fn came_back(&self, request: &Request<Incoming>) -> Result<Response<ReplyBody>, Fault> {
        let Ok((state, delivery)) = Query::of(request.uri())?.into_delivery() else {
            return Ok(not_a_sign_in());
        };
        let id = FlowId::of(&state);
        if !self.flow.lock().as_ref().is_some_and(|flow| flow.id == id) {
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
