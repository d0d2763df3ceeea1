//! Streamable HTTP towards an upstream.
//!
//! Every request is built from nothing: the configured headers, the leg's own id, version and
//! cookies, and the protocol's headers. No function here takes a client's headers; what of them
//! may pass is picked by [`Carried`].

mod answer;
mod asking;
mod fingerprint;
mod held;
mod initialize;
mod listen;
mod messages;
mod passing;
mod redirect;
pub(super) mod refusal;

use std::sync::Arc;

use bowline_wire::media;
use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Body as _;
use tokio::time::Instant;

use self::answer::MAX_READ_OUT;
pub(crate) use self::answer::{Answer, poll_data};
use self::asking::Asking;
use self::fingerprint::{is_fingerprint, is_suspect};
pub(crate) use self::fingerprint::{is_lie, may_lie};
pub(crate) use self::initialize::{Declination, InitializeAnswer, Initialized};
pub(crate) use self::listen::{Listening, NotListened};
pub(crate) use self::passing::Passing;
use super::{Endpoint, Link, Repeat, Upstream, UpstreamError};
use crate::config::{Server, Way};
use crate::oauth::{Bearer, Challenge, Verdict};
use bowline_egress::{EgressError, Place, Request, Sent, UpstreamBody, read_limited};

/// How many redirects in a row are followed.
const MAX_REDIRECTS: usize = 5;

/// A 401 or 403, and what the request was sent with.
struct Denied<'a> {
    head: &'a http::response::Parts,
    body: UpstreamBody,
    bearer: Option<&'a Arc<Bearer>>,
    may_go_again: bool,
}

// === impl Upstream ===

impl Upstream {
    /// Posts one message.
    async fn post(
        &self,
        link: Link<'_>,
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
        };
        // Boxed: what sends a message is then small enough to come from the allocator's own cache.
        Box::pin(self.send(link, server, &asking)).await
    }

    /// Opens a stream.
    async fn get(
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
        self.send(link, &self.config(), &asking).await
    }

    /// Ends the upstream's session.
    pub(super) async fn http_end(&self, link: Link<'_>) -> Result<(), UpstreamError> {
        let asking = Asking {
            method: Method::DELETE,
            accept: None,
            last_event_id: None,
            message: None,
        };
        self.send(link, &self.config(), &asking).await.map(drop)
    }

    /// Sends a request and takes the cookies of its answer, following redirects that stay within
    /// the endpoint's own origin, if they say that nothing ran or it may run twice.
    async fn send(
        &self,
        link: Link<'_>,
        server: &Server,
        asking: &Asking<'_>,
    ) -> Result<Answer, UpstreamError> {
        let endpoint = link.endpoint;
        let (url, http) = (endpoint.address.url(), link.conversation.as_http());
        let mut target = link.carried.target(&url.current_target());
        // What was opened with a caller's token does not go on with the configured one, nor the other way
        // round: the operator may have changed the one for the other since.
        if link.sign_in.is_some() && link.account.is_some() != server.oauth.is_some() {
            return Err(UpstreamError::SessionLost);
        }
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
                https: url.origin.https,
                host: url.origin.host(),
                path: target.path(),
            };
            let request = asking.request(link, server, &target, place, bearer.as_deref());
            let (head, body) = self
                .dispatch(endpoint, server, &request)
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
                http.jar.lock().store(&head.headers, place);
            }
            match head.status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    let denied = Denied {
                        head: &head,
                        body,
                        bearer: bearer.as_ref(),
                        may_go_again,
                    };
                    let other = Box::pin(self.denied(link, denied)).await?;
                    // Refused before it ran, so the message may go again; once.
                    (bearer, may_go_again) = (Some(other), false);
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
                _ => return answered(link, head, body),
            }
        }
        Err(UpstreamError::TooManyRedirects(MAX_REDIRECTS))
    }

    /// A 401 or 403: the bearer with which the message may be sent again, or what it means.
    async fn denied(
        &self,
        link: Link<'_>,
        denied: Denied<'_>,
    ) -> Result<Arc<Bearer>, UpstreamError> {
        let status = denied.head.status;
        if let Some(account) = link.account {
            let challenge = Challenge::in_headers(&denied.head.headers);
            let judging = account.judge(status, challenge, denied.bearer, denied.may_go_again);
            match judging.await? {
                Verdict::Retry(other) if link.is_anothers(Some(&other)) => {
                    return Err(UpstreamError::SessionLost);
                }
                Verdict::Retry(other) => return Ok(other),
                Verdict::SignIn(wanted) => return Err(UpstreamError::SignIn(wanted)),
                Verdict::Refused => {}
            }
        }
        // The server's own refusal, unless the operator says that it means a lost session.
        let server = self.config();
        let prints = &server.recovery.fingerprints;
        if link.conversation.session_id().is_some() && is_suspect(prints, status) {
            let body = read_limited(denied.body, MAX_READ_OUT).await;
            if is_fingerprint(prints, status, &body.unwrap_or_default()) {
                return Err(UpstreamError::Fingerprint(status));
            }
        }
        Err(UpstreamError::Refused(status))
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
        match endpoint
            .address
            .url()
            .pool
            .send(request, server.connect_timeout)
            .await
        {
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

/// An answer that is neither a redirect nor a 401 or 403.
fn answered(
    link: Link<'_>,
    head: http::response::Parts,
    body: UpstreamBody,
) -> Result<Answer, UpstreamError> {
    let status = head.status;
    if let Some(coding) = coding(&head.headers)
        && !body.is_end_stream()
    {
        return Err(UpstreamError::Compressed(status, coding));
    }
    let named_session = link.conversation.session_id().is_some();
    if !status.is_success() && !named_session {
        // What it had moved to may no longer be there: the configured target says so again, if it is.
        link.endpoint.address.url().forget_move();
    }
    Ok(Answer {
        status,
        headers: head.headers,
        body,
        named_session,
    })
}

/// Remembers a redirect that is for good, so that what may not run twice does not meet it.
fn note_move(link: Link<'_>, head: &http::response::Parts, from: &PathAndQuery) {
    let (status, endpoint) = (head.status, link.endpoint);
    // The cookies of this answer are not taken yet: these are what the request carried.
    let is_anybodys = link.conversation.session_id().is_none()
        && link.account.is_none()
        && link.carried.is_empty()
        && link.conversation.jar().lock().is_empty();
    let moved_to = redirect::target(status, &head.headers, endpoint, from)
        .and_then(|to| redirect::for_good(status, from, &to, endpoint, is_anybodys));
    if let Some(target) = moved_to {
        tracing::info!(endpoint = %endpoint.address, %status, "endpoint has moved within its origin");
        endpoint.address.url().move_to(target);
    }
}

/// How a body is compressed, although nobody asked for that.
fn coding(headers: &HeaderMap) -> Option<Box<str>> {
    let coding = headers.get(CONTENT_ENCODING)?.to_str().unwrap_or("?");
    (!coding.is_empty() && !coding.eq_ignore_ascii_case("identity")).then(|| coding.into())
}
