//! Streamable HTTP towards an upstream.
//!
//! Every request is built from nothing: the configured headers, the leg's own id, version and
//! cookies, and the protocol's headers. No function here takes a client's headers; what of them
//! may pass is picked by [`Carried`].

use bowline_wire::id::UpstreamSessionId;
use bowline_wire::{header, media, version};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, COOKIE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use parking_lot::Mutex;

use super::{Carried, Upstream, UpstreamError};
use crate::body::{Outgoing, Sent};
use crate::egress::{Jar, Place, UpstreamBody};

/// What ties a request to an upstream's session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link<'a> {
    pub(crate) session_id: Option<&'a UpstreamSessionId>,
    pub(crate) version: Option<&'a HeaderValue>,
    pub(crate) jar: &'a Mutex<Jar>,
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

// === impl Upstream ===

impl Upstream {
    /// Posts one message.
    pub(crate) async fn post(
        &self,
        link: Link<'_>,
        carried: &Carried,
        message: Bytes,
        sent: Sent,
    ) -> Result<Answer, UpstreamError> {
        let mut headers = self.headers_for(link, carried);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media::JSON));
        headers.insert(ACCEPT, HeaderValue::from_static(BOTH));
        let body = Outgoing::new(message, sent);
        self.send(link, carried, Method::POST, headers, body).await
    }

    /// Opens a stream.
    pub(crate) async fn get(
        &self,
        link: Link<'_>,
        carried: &Carried,
        last_event_id: Option<&HeaderValue>,
    ) -> Result<Answer, UpstreamError> {
        let mut headers = self.headers_for(link, carried);
        headers.insert(ACCEPT, HeaderValue::from_static(media::EVENT_STREAM));
        if let Some(id) = last_event_id {
            headers.insert(header::LAST_EVENT_ID, id.clone());
        }
        let body = Outgoing::empty();
        self.send(link, carried, Method::GET, headers, body).await
    }

    /// Ends the upstream's session.
    pub(crate) async fn delete(
        &self,
        link: Link<'_>,
        carried: &Carried,
    ) -> Result<Answer, UpstreamError> {
        let headers = self.headers_for(link, carried);
        let body = Outgoing::empty();
        self.send(link, carried, Method::DELETE, headers, body)
            .await
    }

    fn headers_for(&self, link: Link<'_>, carried: &Carried) -> HeaderMap {
        let mut headers = self.headers.clone();
        carried.add_to(&mut headers);
        headers.insert(HOST, self.host.clone());
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("bowline/", env!("CARGO_PKG_VERSION"))),
        );
        if let Some(id) = link.session_id {
            headers.insert(header::SESSION_ID, id.to_header());
        }
        if let Some(negotiated) = link.version
            && negotiated.to_str().is_ok_and(version::wants_header)
        {
            headers.insert(header::PROTOCOL_VERSION, negotiated.clone());
        }
        if let Some(cookies) = link.jar.lock().header(self.place()) {
            headers.insert(COOKIE, cookies);
        }
        headers
    }

    async fn send(
        &self,
        link: Link<'_>,
        carried: &Carried,
        method: Method,
        headers: HeaderMap,
        body: Outgoing,
    ) -> Result<Answer, UpstreamError> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = carried.target(&self.target).into();
        *request.headers_mut() = headers;
        let (head, body) = self.pool.send(request).await?.into_parts();
        if self.keeps_cookies() {
            link.jar.lock().store(&head.headers, self.place());
        }
        match head.status {
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(UpstreamError::Refused(status))
            }
            status if status.is_redirection() => Err(UpstreamError::Redirected(status)),
            status => Ok(Answer {
                status,
                headers: head.headers,
                body,
                named_session: link.session_id.is_some(),
            }),
        }
    }

    fn place(&self) -> Place<'_> {
        Place {
            https: self.origin.https,
            host: self.origin.host(),
            path: self.target.path(),
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

// === impl Answer ===

impl Answer {
    /// Whether the body is of this media type.
    pub(crate) fn is(&self, media: &str) -> bool {
        media::is(self.content_type(), media)
    }

    pub(crate) fn content_type(&self) -> Option<&HeaderValue> {
        self.headers.get(CONTENT_TYPE)
    }

    /// 404 to a request that named the upstream's session: by the protocol, the session is gone.
    pub(crate) fn denies_session(&self) -> bool {
        self.named_session && self.status == StatusCode::NOT_FOUND
    }
}

/// A POST may be answered by one message or by a stream.
const BOTH: &str = "application/json, text/event-stream";
