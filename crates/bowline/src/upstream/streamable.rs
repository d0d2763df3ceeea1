//! Streamable HTTP towards an upstream.
//!
//! Every request is built from nothing: the configured headers, the leg's own id, version and
//! cookies, and the protocol's headers. No function here takes a client's headers; what of them
//! may pass is picked by [`Carried`].

use std::time::Duration;

use bowline_wire::id::UpstreamSessionId;
use bowline_wire::version::{Agreed, wants_header};
use bowline_wire::{header, media};
use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, COOKIE, HOST,
    USER_AGENT,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Body as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Carried, Endpoint, Upstream, UpstreamError, carried, is_fingerprint, is_suspect, redirect,
};
use crate::body::{Sent, read_limited};
use crate::config::{Server, Way};
use crate::egress::{EgressError, Head, Jar, Place, Request, UpstreamBody};
use crate::oauth::{Account, Bearer, Challenge, Verdict};

/// How Bowline introduces itself, unless the configuration says otherwise.
const AGENT: &str = concat!("bowline/", env!("CARGO_PKG_VERSION"));

/// How much of a body that nobody wants is read, and for how long.
const MAX_READ_OUT: usize = 64 * 1024;
const READ_OUT_TIMEOUT: Duration = Duration::from_millis(100);

/// How many redirects in a row are followed.
const MAX_REDIRECTS: usize = 5;

/// What ties a request to an upstream's session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) session_id: Option<&'a UpstreamSessionId>,
    pub(crate) version: Option<&'a Agreed>,
    pub(crate) jar: &'a Mutex<Jar>,
    /// What of the client's request goes along.
    pub(crate) carried: &'a Carried,
    /// The caller, where the server wants its callers signed in.
    pub(crate) account: Option<&'a Account>,
    /// The number of the sign-in that the session and the cookies belong to, if there are any: nothing of
    /// another sign-in goes along with them.
    pub(crate) sign_in: Option<u64>,
    pub(crate) repeat: Repeat,
}

/// Whether a message may be sent again although it may have run, where a redirect leads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    Safe,
    Unsafe,
}

/// What is asked, wherever a redirect may lead it.
struct Asking<'a> {
    method: Method,
    accept: Option<HeaderValue>,
    last_event_id: Option<&'a HeaderValue>,
    message: Option<(Bytes, Sent)>,
}

/// An answer's head, and its body still to be read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: UpstreamBody,
    /// Whether the request named a session, so that 404 means that the session is unknown.
    named_session: bool,
}

// === impl Link ===

impl Link<'_> {
    /// The same for a message that may run twice.
    pub(crate) fn safe(self) -> Self {
        Self {
            repeat: Repeat::Safe,
            ..self
        }
    }

    /// Whether what the request is to carry is of another sign-in, and so maybe of another account, than
    /// what it is tied to.
    fn is_anothers(&self, bearer: Option<&Bearer>) -> bool {
        self.sign_in.is_some_and(|own| match bearer {
            Some(bearer) => bearer.sign_in != own,
            // A server that asks for a token once would serve whoever has signed out since.
            None => self.account.is_some() && own != 0,
        })
    }
}

// === impl Upstream ===

impl Upstream {
    /// Posts one message.
    pub(crate) async fn post(
        &self,
        link: Link<'_>,
        message: Bytes,
        sent: Sent,
    ) -> Result<Answer, UpstreamError> {
        let accept = Some(HeaderValue::from_static(media::BOTH));
        let asking = Asking {
            method: Method::POST,
            accept,
            last_event_id: None,
            message: Some((message, sent)),
        };
        // Boxed: what sends a message is then small enough to come from the allocator's own cache.
        Box::pin(self.send(link, &asking)).await
    }

    /// Opens a stream.
    pub(crate) async fn get(
        &self,
        link: Link<'_>,
        last_event_id: Option<&HeaderValue>,
    ) -> Result<Answer, UpstreamError> {
        let accept = Some(HeaderValue::from_static(media::EVENT_STREAM));
        let asking = Asking {
            method: Method::GET,
            accept,
            last_event_id,
            message: None,
        };
        self.send(link, &asking).await
    }

    /// Ends the upstream's session.
    pub(crate) async fn delete(&self, link: Link<'_>) -> Result<Answer, UpstreamError> {
        let asking = Asking {
            method: Method::DELETE,
            accept: None,
            last_event_id: None,
            message: None,
        };
        self.send(link, &asking).await
    }

    /// Sends a request and takes the cookies of its answer, following redirects that stay within
    /// the endpoint's own origin, if they say that nothing ran or it may run twice.
    async fn send(&self, link: Link<'_>, asking: &Asking<'_>) -> Result<Answer, UpstreamError> {
        let endpoint = link.endpoint;
        let server = self.server();
        let mut target = link.carried.target(&endpoint.current_target());
        let mut bearer = match link.account {
            Some(account) => account.bearer().await?,
            None => None,
        };
        if link.is_anothers(bearer.as_deref()) {
            return Err(UpstreamError::SessionLost);
        }
        let mut may_go_again = true;
        for _ in 0..=MAX_REDIRECTS {
            let place = Place {
                https: endpoint.origin.https,
                host: endpoint.origin.host(),
                path: target.path(),
            };
            let request = asking.request(link, &server, &target, place, bearer.as_deref());
            let (head, body) = self
                .dispatch(endpoint, &server, &request)
                .await?
                .into_parts();
            if head.status.is_redirection() {
                note_move(link, &head, &target);
            }
            if let Some(bearer) = &bearer
                && head.status.is_success()
            {
                bearer.note_accepted();
            }
            if self.keeps_cookies() {
                link.jar.lock().store(&head.headers, place);
            }
            match head.status {
                status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                    if let Some(account) = link.account {
                        let challenge = Challenge::in_headers(&head.headers);
                        let judging =
                            account.judge(status, challenge, bearer.as_ref(), may_go_again);
                        match Box::pin(judging).await? {
                            Verdict::Again(other) if link.is_anothers(Some(&other)) => {
                                return Err(UpstreamError::SessionLost);
                            }
                            Verdict::Again(other) => {
                                // Refused before it ran, so the message may go again; once.
                                (bearer, may_go_again) = (Some(other), false);
                                continue;
                            }
                            Verdict::SignIn(wanted) => return Err(UpstreamError::SignIn(wanted)),
                            Verdict::Refused => {}
                        }
                    }
                    return Err(Box::pin(self.refused(link, status, body)).await);
                }
                status if status.is_redirection() => {
                    let next = redirect::target(status, &head.headers, endpoint, &target);
                    if asking.method == Method::POST
                        && link.repeat == Repeat::Unsafe
                        && !redirect::says_not_processed(status)
                    {
                        return Err(UpstreamError::RedirectedAfter(status));
                    }
                    target = next.ok_or(UpstreamError::Redirected(status))?;
                }
                status => {
                    if let Some(coding) = coding(&head.headers)
                        && !body.is_end_stream()
                    {
                        return Err(UpstreamError::Compressed(status, coding));
                    }
                    let is_nowhere = matches!(
                        status,
                        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE
                    );
                    if is_nowhere && link.session_id.is_none() {
                        // What it had moved to is no longer there.
                        endpoint.forget_move();
                    }
                    return Ok(Answer {
                        status,
                        headers: head.headers,
                        body,
                        named_session: link.session_id.is_some(),
                    });
                }
            }
        }
        Err(UpstreamError::TooManyRedirects(MAX_REDIRECTS))
    }

    /// What a refusal is: the server's, unless the operator says that it means a lost session.
    async fn refused(
        &self,
        link: Link<'_>,
        status: StatusCode,
        body: UpstreamBody,
    ) -> UpstreamError {
        let server = self.server();
        let prints = &server.recovery.fingerprints;
        if link.session_id.is_some() && is_suspect(prints, status) {
            let body = read_limited(body, MAX_READ_OUT).await.unwrap_or_default();
            if is_fingerprint(prints, status, &body) {
                return UpstreamError::Fingerprint(status);
            }
        }
        UpstreamError::Refused(status)
    }

    /// Sends one request to one endpoint and notes how the endpoint took it.
    async fn dispatch(
        &self,
        endpoint: &Endpoint,
        server: &Server,
        request: &Request,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        if let Some(ailment) = endpoint.health.ailment()
            && ailment.unreachable
            && ailment.until > Instant::now()
        {
            return Err(UpstreamError::Unavailable(ailment));
        }
        // Behind a balancer's address are several servers: one that fails says nothing of the rest.
        let is_one_server = matches!(server.way, Way::Endpoints(_));
        match endpoint.pool.send(request, server.connect_timeout).await {
            Ok(answer) => {
                match answer.status() {
                    status @ (StatusCode::BAD_GATEWAY
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT) => {
                        if is_one_server {
                            self.note_failure(endpoint, &format!("it answered {status}"));
                        }
                    }
                    _ => endpoint.health.answered(),
                }
                Ok(answer)
            }
            // Running out of sockets says nothing of the endpoint.
            Err(error @ EgressError::OutOfSockets(_)) => Err(error.into()),
            Err(error) => {
                if error.nobody_there() {
                    self.note_unreachable(endpoint, &error.to_string());
                } else if is_one_server {
                    self.note_failure(endpoint, &error.to_string());
                }
                Err(error.into())
            }
        }
    }

    #[cfg(not(feature = "planted"))]
    const fn keeps_cookies(&self) -> bool {
        true
    }

    #[cfg(feature = "planted")]
    const fn keeps_cookies(&self) -> bool {
        !self.planted.forget_cookies
    }
}

/// Remembers a redirect that is for good, so that what may not run twice does not meet it.
fn note_move(link: Link<'_>, head: &http::response::Parts, from: &PathAndQuery) {
    let (status, endpoint) = (head.status, link.endpoint);
    // The cookies of this answer are not taken yet: these are what the request carried.
    let is_anybodys =
        link.account.is_none() && link.carried.is_empty() && link.jar.lock().is_empty();
    let moved_to = redirect::target(status, &head.headers, endpoint, from)
        .and_then(|to| redirect::for_good(status, from, &to, endpoint, is_anybodys));
    if let Some(target) = moved_to {
        tracing::info!(endpoint = %endpoint.origin, %status, "endpoint has moved within its origin");
        endpoint.move_to(target);
    }
}

/// How a body is compressed, although nobody asked for that.
fn coding(headers: &HeaderMap) -> Option<Box<str>> {
    let coding = headers.get(CONTENT_ENCODING)?.to_str().unwrap_or("?");
    (!coding.is_empty() && !coding.eq_ignore_ascii_case("identity")).then(|| coding.into())
}

// === impl Asking ===

impl Asking<'_> {
    fn request(
        &self,
        link: Link<'_>,
        server: &Server,
        target: &PathAndQuery,
        place: Place<'_>,
        bearer: Option<&Bearer>,
    ) -> Request {
        let mut head = Head::new(&self.method, target);
        head.add(&HOST, &link.endpoint.host);
        let configured = server.headers.iter();
        for (name, value) in configured.filter(|(name, _)| !carried::is_fixed(name)) {
            head.add(name, value);
        }
        if !server.headers.contains_key(USER_AGENT) {
            head.add(&USER_AGENT, &HeaderValue::from_static(AGENT));
        }
        link.carried.add_to(&mut head);
        if let Some(bearer) = bearer {
            head.add(&AUTHORIZATION, bearer.header());
        }
        // Bodies are looked into, and some are rewritten: none may come compressed.
        head.add(&ACCEPT_ENCODING, &HeaderValue::from_static("identity"));
        if let Some(accept) = &self.accept {
            head.add(&ACCEPT, accept);
        }
        if let Some(id) = link.session_id {
            head.add_session(id);
        }
        if let Some(negotiated) = link.version
            && wants_header(negotiated.as_str())
        {
            head.add(&header::PROTOCOL_VERSION, negotiated.as_header());
        }
        if let Some(id) = self.last_event_id {
            head.add(&header::LAST_EVENT_ID, id);
        }
        if let Some(cookies) = link.jar.lock().header(place) {
            head.add(&COOKIE, &cookies);
        }
        match &self.message {
            None => head.alone(),
            Some((message, sent)) => {
                head.add(&CONTENT_TYPE, &HeaderValue::from_static(media::JSON));
                head.with(message.clone(), sent.clone())
            }
        }
    }
}

// === impl Answer ===

impl Answer {
    /// Whether the body is of this media type.
    pub(crate) fn is(&self, media: &str) -> bool {
        media::is(self.content_type(), media)
    }

    pub(crate) fn content_type(&self) -> Option<&HeaderValue> {
        self.headers.get(CONTENT_TYPE)
    }

    /// Reads a small body out, so that the connection can be used again.
    pub(crate) async fn read_out(self) {
        if !self.body.is_end_stream() {
            let rest = read_limited(self.body, MAX_READ_OUT);
            drop(Box::pin(tokio::time::timeout(READ_OUT_TIMEOUT, rest)).await);
        }
    }

    /// Whether the request named the upstream's session.
    pub(crate) fn named_session(&self) -> bool {
        self.named_session
    }

    /// 404 to a request that named the upstream's session: by the protocol, the session is gone.
    pub(crate) fn denies_session(&self) -> bool {
        self.named_session && self.status == StatusCode::NOT_FOUND
    }
}
