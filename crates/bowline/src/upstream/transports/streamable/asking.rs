//! Builds requests from the configuration, the leg's own id, version and cookies, the protocol's
//! headers, and what [`Carried`](crate::upstream::policy::Carried) selected from the client's request.

use bowline_wire::header_policy::{Passage, passes};
use bowline_wire::version::wants_header;
use bowline_wire::{header, media};
use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, USER_AGENT,
};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method};
use parking_lot::Mutex;

use super::aside::Aside;
use crate::config::Server;
use crate::oauth::Bearer;
use crate::upstream::transports::link::HttpLink;
use bowline_egress::{CookieUrl, Head, Request, Sent};

/// The default `User-Agent`.
const AGENT: &str = concat!("bowline/", env!("CARGO_PKG_VERSION"));

/// A request before its target is known: redirects may change that.
pub(in crate::upstream::transports) struct Asking<'a> {
    pub(in crate::upstream::transports) method: Method,
    pub(in crate::upstream::transports) accept: Option<HeaderValue>,
    pub(in crate::upstream::transports) last_event_id: Option<&'a HeaderValue>,
    pub(in crate::upstream::transports) message: Option<(Bytes, Sent)>,
    /// The target that answered, where that matters and redirects changed it.
    pub(in crate::upstream::transports) landed: Option<&'a Mutex<PathAndQuery>>,
    /// It is sent in a task of its own.
    pub(in crate::upstream::transports) aside: Option<Aside<'a>>,
}

// === impl Asking ===

impl Asking<'_> {
    pub(super) fn request(
        &self,
        link: HttpLink<'_>,
        server: &Server,
        target: &PathAndQuery,
        cookie_url: CookieUrl<'_>,
        bearer: Option<&Bearer>,
    ) -> Request {
        let mut head = Head::new(&self.method, target);
        head.add(&HOST, &link.url.host);
        let configured = server.headers.iter();
        for (name, value) in configured.filter(|(name, _)| passes(name, Passage::Configured)) {
            head.add(name, value);
        }
        if !server.headers.contains_key(USER_AGENT) {
            head.add(&USER_AGENT, &HeaderValue::from_static(AGENT));
        }
        link.carried.add_to(&mut head);
        if let Some(bearer) = bearer {
            head.add(&AUTHORIZATION, bearer.header());
        }
        // Bodies are inspected, and some are rewritten: none may be compressed.
        head.add(&ACCEPT_ENCODING, &HeaderValue::from_static("identity"));
        if let Some(accept) = &self.accept {
            head.add(&ACCEPT, accept);
        }
        if let Some(id) = &link.http.session_id {
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
        if let Some(cookies) = link.http.jar.lock().header(cookie_url) {
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
