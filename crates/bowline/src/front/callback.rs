//! The listener of one sign-in that was started on this machine: it leads the browser to the authorization
//! server, and the browser returns to it.
//!
//! Others can reach it, too: pages in the same browser, other users of this machine. So an answer counts by
//! its state alone, and one without the right state changes nothing. The state is in the authorization URL,
//! and all users of a machine can read the arguments of a program. So the program that opens a browser gets
//! the address of this listener, which has no secret, and only processes of the same user are led on from
//! there. No request is logged or shown.

use std::collections::HashSet;
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
use tokio::sync::mpsc;

use crate::drain::Drain;
use crate::fault::Fault;
use crate::front::access::is_subresource;
use crate::front::pages::html::{end_page, page};
use crate::front::query::Query;
use crate::front::response::{ReplyBody, empty, no_store, refuse, refuse_connection};
use crate::guard::Guard;
use crate::listener::{self, Addresses, Connection, ConnectionLimits, Door, Opened, OwnPeers};
use crate::net::Peer;
use crate::oauth::{DeliveryError, DeliveryRoute, Flow, FlowId, Flows, Loopback, LoopbackAddress};

const PATH: &str = "/callback";
/// Where a browser is led on to the authorization server.
const START: &str = "/";

/// How long the browser may take to load its last page.
const FAREWELL: Duration = Duration::from_secs(2);

/// A listener for one flow. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Callback {
    address: SocketAddr,
    handler: Arc<CallbackHandler>,
    drain: Drain,
}

#[derive(Debug)]
struct CallbackHandler {
    own_peers: Arc<OwnPeers>,
    /// The flow whose answer is expected, once there is one.
    expected: Mutex<Option<(Arc<Flows>, Flow)>>,
}

/// The listeners of a process's flows.
#[derive(Debug)]
pub(crate) struct Callbacks {
    /// The listener for the next flow, once its address was given out.
    next: Mutex<Option<Callback>>,
    started: mpsc::UnboundedSender<Started>,
    opens_browser: bool,
}

/// A flow that was started, and its listener.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) flow: Flow,
    pub(crate) callback: Callback,
}

/// The listener's door. It can tell the connections of this process's own user, where the system says whose a
/// connection is.
struct KnowingDoor {
    listener: TcpListener,
    own_peers: Arc<OwnPeers>,
}

// === impl KnowingDoor ===

impl Door for KnowingDoor {
    type Stream = TcpStream;
    type Open = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, peer) = self.listener.accept().await?;
        Ok((stream, Peer::Local(peer)))
    }

    async fn own_peers(&self) -> Addresses {
        self.own_peers.now().await
    }

    fn open(&self, stream: TcpStream) -> impl Future<Output = Opened<TcpStream>> + Send + use<> {
        self.listener.open(stream)
    }
}

// === impl Callback ===

impl Callback {
    /// Listens on 127.0.0.1, on a free port.
    fn listen() -> io::Result<Self> {
        Self::listen_with(socket_owner::own_peers)
    }

    /// `own_peers`: which peers of a listener are the own user's.
    fn listen_with(
        own_peers: impl Fn(SocketAddr) -> HashSet<SocketAddr> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let own_peers = Arc::new(OwnPeers::new(address, own_peers));
        let handler = Arc::new(CallbackHandler {
            own_peers: Arc::clone(&own_peers),
            expected: Mutex::default(),
        });
        let drain = Drain::new(FAREWELL);
        let opened = Arc::clone(&handler);
        let serve = move |request, connection: &Arc<Connection>| {
            let (handler, connection) = (Arc::clone(&opened), Arc::clone(connection));
            async move { handler.serve(&request, &connection).await }
        };
        let accept = listener::accept(
            KnowingDoor {
                listener,
                own_peers,
            },
            drain.clone(),
            ConnectionLimits::of_operators(),
            |why| refuse_connection(&why.fault()),
            serve,
        );
        drain.connections().spawn(accept);
        Ok(Self {
            address,
            handler,
            drain,
        })
    }

    /// Accepts the answer to this flow from now on.
    pub(crate) fn expect(&self, flows: &Arc<Flows>, flow: &Flow) {
        *self.handler.expected.lock() = Some((Arc::clone(flows), flow.clone()));
    }

    fn loopback_address(&self) -> LoopbackAddress {
        let origin = format!("http://{}", self.address);
        LoopbackAddress {
            redirect_uri: format!("{origin}{PATH}"),
            start_url: socket_owner::IS_KNOWN.then(|| format!("{origin}{START}")),
        }
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

// === impl Callbacks ===

impl Callbacks {
    /// Listeners for flows, and the flows that are started. `opens_browser`: whoever receives them shows them in
    /// a browser.
    pub(crate) fn new(opens_browser: bool) -> (Arc<Self>, mpsc::UnboundedReceiver<Started>) {
        let (started, receiver) = mpsc::unbounded_channel();
        let callbacks = Self {
            next: Mutex::default(),
            started,
            opens_browser,
        };
        (Arc::new(callbacks), receiver)
    }
}

impl Loopback for Callbacks {
    fn address(&self) -> io::Result<LoopbackAddress> {
        let mut next = self.next.lock();
        let callback = match next.take() {
            Some(callback) => callback,
            None => Callback::listen()?,
        };
        Ok(next.insert(callback).loopback_address())
    }

    fn started(&self, flow: &Flow) {
        if let Some(callback) = self.next.lock().take() {
            let flow = flow.clone();
            // If nobody receives it, the process is about to end.
            self.started.send(Started { flow, callback }).ok();
        }
    }

    fn opens_browser(&self) -> bool {
        self.opens_browser
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
        // A page of another site could have an image or a frame go all the way, unseen.
        if is_subresource(request.headers()) {
            return Err(Fault::Origin);
        }
        match (request.uri().path(), request.method()) {
            (START, &Method::GET) => Ok(self.lead_on(connection.peer).await),
            (PATH, &Method::GET) => self.came_back(request).await,
            (START | PATH, _) => Err(Fault::Method { allow: "GET" }),
            _ => Err(Fault::NoSuchPath),
        }
    }

    /// Leads a browser of this user to the authorization server.
    async fn lead_on(&self, peer: Peer) -> Response<ReplyBody> {
        let is_own = match peer {
            Peer::Local(address) => self.own_peers.now().await.contains(&address),
            Peer::Address(_) | Peer::User(_) => false,
        };
        if !is_own {
            return page(
                StatusCode::FORBIDDEN,
                "Use the link in the terminal",
                "<p>Whose browser this is cannot be told. Open the link that Bowline printed.</p>",
            );
        }
        let expected = self.expected.lock();
        let authorization = expected.as_ref().and_then(|(_, flow)| flow.authorization());
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
        let expected = self.expected.lock().clone();
        let Some((flows, flow)) = expected else {
            return Ok(not_a_sign_in());
        };
        if flow.id != id {
            flows.note_stray();
            return Ok(wrong_state());
        }
        let delivered = flows.deliver(&state, delivery, DeliveryRoute::Loopback);
        Ok(match delivered.await {
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

fn wrong_state() -> Response<ReplyBody> {
    page(
        StatusCode::BAD_REQUEST,
        "Not a sign-in",
        "<p>The <code>state</code> in this address is not that of the sign-in that was started here, which \
         still waits.</p>",
    )
}

fn not_a_sign_in() -> Response<ReplyBody> {
    page(
        StatusCode::BAD_REQUEST,
        "Not a sign-in",
        "<p>This is not the answer to the sign-in that was started here.</p>",
    )
}

#[cfg(test)]
mod tests;
