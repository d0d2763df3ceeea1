//! The Streamable HTTP transport.
//!
//! Every request is built from scratch: the configured headers, the leg's own id, version and
//! cookies, and the protocol's headers. No function here takes a client's headers;
//! [`Carried`](crate::upstream::Carried) selects those that may pass.

pub(super) mod aside;
mod asking;
mod examine;
mod fingerprint;
mod held;
mod initialize;
mod listen;
mod messages;
mod redirect;
pub(super) mod refusal;

use std::sync::Arc;

use bowline_wire::media;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, WWW_AUTHENTICATE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Body as _;
use tokio::time::Instant;

use self::aside::Aside;
pub(super) use self::asking::Asking;
pub(crate) use self::fingerprint::{is_lie, may_lie};
use super::answer::Answer;
use super::error::{LiveError, UpstreamError};
use super::judge::is_about_credentials;
use super::link::{HttpLink, Repeat};
use crate::config::{Server, Target};
use crate::oauth::{Bearer, Challenge, Verdict};
use crate::upstream::Upstream;
use bowline_egress::{CookieUrl, EgressError, Request, Sent, UpstreamBody, WireError};

/// How many redirects in a row are followed.
const MAX_REDIRECTS: usize = 5;

/// How a request was sent that was answered with 401 or 403.
struct Denied<'a> {
    message: Option<&'a Bytes>,
    bearer: Option<&'a Arc<Bearer>>,
    may_retry: bool,
}

// === impl Upstream ===

impl Upstream {
    /// Posts one message.
    async fn post(
        &self,
        link: HttpLink<'_>,
        server: &Server,
        message: Bytes,
        sent: Sent,
    ) -> Result<Answer, UpstreamError> {
        let accept = Some(HeaderValue::from_static(media::BOTH));
        let asking = Asking {
            method: Method::POST,
            accept,
            last_event_id: None,
            message: Some((message, sent)),
            landed: None,
            aside: None,
        };
        // Boxed, so that the sending future is small enough for the allocator's cache.
        Box::pin(self.send(link, server, &asking)).await
    }

    /// Opens a stream.
    async fn get(
        &self,
        link: HttpLink<'_>,
        last_event_id: Option<&HeaderValue>,
    ) -> Result<Answer, UpstreamError> {
        let accept = Some(HeaderValue::from_static(media::EVENT_STREAM));
        let asking = Asking {
            method: Method::GET,
            accept,
            last_event_id,
            message: None,
            landed: None,
            aside: None,
        };
        self.send(link, &self.config(), &asking).await
    }

    /// Ends the upstream session.
    pub(super) async fn http_end(&self, link: HttpLink<'_>) -> Result<(), UpstreamError> {
        let asking = Asking {
            method: Method::DELETE,
            accept: None,
            last_event_id: None,
            message: None,
            landed: None,
            aside: None,
        };
        self.send(link, &self.config(), &asking).await.map(drop)
    }

    /// Sends a request and stores the cookies of the answer. Follows redirects within the
    /// endpoint's own origin, if the redirect says that the request did not run, or if it is safe
    /// to repeat. One whose body is the request's own answer says that it ran.
    pub(super) async fn send(
        &self,
        link: HttpLink<'_>,
        server: &Server,
        asking: &Asking<'_>,
    ) -> Result<Answer, UpstreamError> {
        let (url, http) = (link.url, link.http);
        let mut target = link.target();
        let mut bearer = token_of_session(link, server).await?;
        let mut may_retry = true;
        for _ in 0..=MAX_REDIRECTS {
            let cookie_url = CookieUrl {
                https: url.origin.https,
                host: url.origin.host(),
                path: target.path(),
            };
            let request = asking.request(link, server, &target, cookie_url, bearer.as_deref());
            let sending = self.dispatch(link, server, request, asking.aside.as_ref());
            let (head, body) = sending.await?.into_parts();
            if head.status.is_redirection() {
                note_move(link, &head, &target);
            }
            if let Some(bearer) = &bearer
                && head.status.is_success()
            {
                bearer.note_accepted();
            }
            if self.keeps_cookies() {
                http.jar.lock().store(&head.headers, cookie_url);
            }
            match head.status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    let denied = Denied {
                        message: asking.message.as_ref().map(|(message, _)| message),
                        bearer: bearer.as_ref(),
                        may_retry,
                    };
                    let mut answer = answered(link, head, body)?;
                    match Box::pin(self.denied(link, server, &mut answer, denied)).await? {
                        // The request was refused before it ran, so it is retried once.
                        Some(other) => (bearer, may_retry) = (Some(other), false),
                        None => return Ok(answer),
                    }
                }
                status if status.is_redirection() => {
                    let next = redirect::target(status, &head.headers, url, &target);
                    if let Some((message, _)) = &asking.message
                        && link.repeat == Repeat::Unsafe
                    {
                        let mut answer = answered(link, head, body)?;
                        let recovery = &server.recovery;
                        let is_empty = answer.read(recovery).await?.bytes.is_empty();
                        if !is_empty && answer.is_own(message, recovery).await? {
                            return Ok(answer);
                        }
                        if !redirect::says_not_processed(status) {
                            return Err(UpstreamError::RedirectedAfter(status));
                        }
                    }
                    target = next.ok_or(UpstreamError::Redirected(status))?;
                    if let Some(landed) = asking.landed {
                        *landed.lock() = target.clone();
                    }
                }
                _ => return answered(link, head, body),
            }
        }
        Err(UpstreamError::TooManyRedirects(MAX_REDIRECTS))
    }

    /// Handles a 401 or 403: returns the token for a retry, if that may help.
    async fn denied(
        &self,
        link: HttpLink<'_>,
        server: &Server,
        answer: &mut Answer,
        denied: Denied<'_>,
    ) -> Result<Option<Arc<Bearer>>, UpstreamError> {
        let Some(account) = link.account else {
            return Ok(None);
        };
        if let Some(message) = denied.message
            && !answer.has_challenge()
            && answer.is_own(message, &server.recovery).await?
        {
            return Ok(None);
        }
        let challenge = Challenge::in_headers(&answer.headers);
        let judging = account.judge(answer.status, challenge, denied.bearer, denied.may_retry);
        match judging.await? {
            Verdict::Retry(other) if !link.may_carry(Some(&other)) => {
                Err(UpstreamError::SessionLost)
            }
            Verdict::Retry(other) => Ok(Some(other)),
            Verdict::SignIn(wanted) => Err(UpstreamError::SignIn(wanted)),
            Verdict::Refused => Ok(None),
        }
    }

    /// Sends one request to one endpoint and records the endpoint's health.
    async fn dispatch(
        &self,
        link: HttpLink<'_>,
        server: &Server,
        request: Request,
        aside: Option<&Aside<'_>>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let endpoint = link.endpoint;
        if let Some(ailment) = endpoint.health.ailment()
            && ailment.unreachable
            && ailment.until > Instant::now()
        {
            return Err(UpstreamError::Unavailable(ailment));
        }
        // A load balancer's address stands for several servers: the failure of one says nothing
        // about the others.
        let is_one_server = matches!(server.target, Target::Endpoints(_));
        let (pool, timeout) = (&link.url.pool, server.connect_timeout);
        let home = *link.http.home.lock();
        let answer = match aside {
            None => pool.send_home(&request, timeout, home).await,
            Some(aside) => Box::pin(aside.send(pool, request, timeout, home)).await,
        };
        match answer {
            Ok(answer) => {
                let peer = answer.body().peer();
                // A failure is no sign that the session is there.
                if peer != home && (home.is_none() || answer.status().is_success()) {
                    *link.http.home.lock() = peer;
                }
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
            Err(EgressError::NotSent(WireError::Withheld)) => Err(LiveError::Unsure.into()),
            // Running out of sockets says nothing about the endpoint.
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

/// The caller's token for a request of this session, if callers sign in. The request is not sent if the session was
/// opened with other credentials than those that there are now.
async fn token_of_session(
    link: HttpLink<'_>,
    server: &Server,
) -> Result<Option<Arc<Bearer>>, UpstreamError> {
    if link.credentials.is_some_and(|it| !it.continue_at(server)) {
        return Err(UpstreamError::SessionLost);
    }
    let bearer = match link.account {
        Some(account) => account.bearer().await?,
        None => None,
    };
    match link.may_carry(bearer.as_deref()) {
        true => Ok(bearer),
        false => Err(UpstreamError::SessionLost),
    }
}

/// Handles an answer that is not followed elsewhere.
fn answered(
    link: HttpLink<'_>,
    head: http::response::Parts,
    body: UpstreamBody,
) -> Result<Answer, UpstreamError> {
    let status = head.status;
    let is_demand = is_about_credentials(status) && head.headers.contains_key(WWW_AUTHENTICATE);
    if let Some(coding) = coding(&head.headers)
        && !is_demand
        && !body.is_end_stream()
    {
        return Err(UpstreamError::Compressed(status, coding));
    }
    let named_session = link.names_session();
    let is_refusal = status.is_client_error() || status.is_server_error();
    if is_refusal && !named_session && !is_about_credentials(status) {
        // The target of the redirect may no longer exist. If it does, the configured target
        // redirects again.
        link.url.forget_move();
    }
    Ok(Answer {
        status,
        headers: head.headers,
        body,
        named_session,
        held: None,
    })
}

/// Remembers a permanent redirect, so that requests that are not safe to repeat do not meet it.
fn note_move(link: HttpLink<'_>, head: &http::response::Parts, from: &PathAndQuery) {
    let (status, endpoint) = (head.status, link.endpoint);
    if link.message_url.is_some() {
        return;
    }
    // The jar does not have the cookies of this answer yet: these are what the request carried.
    let is_anonymous = link.http.session_id.is_none()
        && link.account.is_none()
        && link.carried.is_empty()
        && link.http.jar.lock().is_empty();
    let moved_to = redirect::target(status, &head.headers, link.url, from)
        .and_then(|to| redirect::for_good(status, from, &to, link.url, is_anonymous));
    if let Some(target) = moved_to {
        tracing::info!(endpoint = %endpoint.address, %status, "endpoint redirects permanently");
        link.url.move_to(target);
    }
}

/// The compression of a body, although Bowline did not ask for any.
fn coding(headers: &HeaderMap) -> Option<Box<str>> {
    let coding = headers.get(CONTENT_ENCODING)?.to_str().unwrap_or("?");
    (!coding.is_empty() && !coding.eq_ignore_ascii_case("identity")).then(|| coding.into())
}
