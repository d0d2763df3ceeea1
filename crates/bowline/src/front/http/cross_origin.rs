//! CORS: browsers are told that pages of an allowed origin may send requests and read the responses. Pages
//! of other origins are told nothing.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, VARY,
};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};

use crate::front::response;
use crate::front::response::ReplyBody;

/// What a page may read of an answer besides its body: every header that means something to a client.
const READABLE: &str = "Mcp-Session-Id, Bowline-Session, Retry-After, WWW-Authenticate, Allow";

/// How many seconds a browser need not ask again.
const MAX_AGE: &str = "600";

/// The origin of a page that is let in.
#[derive(Debug)]
pub(super) struct AllowedOrigin {
    origin: HeaderValue,
}

impl AllowedOrigin {
    /// A page of this origin, which was let in. A copy: the header is a part of the connection's read
    /// buffer.
    pub(super) fn of(origin: &str) -> Option<Self> {
        let origin = HeaderValue::from_str(origin).ok()?;
        Some(Self { origin })
    }

    /// The answer to a browser that asks whether the page may send a request.
    pub(super) fn preflight(&self, head: &Parts) -> Option<Response<ReplyBody>> {
        let is_one = head.method == Method::OPTIONS
            && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if !is_one {
            return None;
        }
        let mut response = response::empty(StatusCode::NO_CONTENT);
        self.allow_reading(&mut response);
        let headers = response.headers_mut();
        let methods = HeaderValue::from_static("GET, POST, DELETE");
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
        // Whichever they are: which of them go on to a server is decided where they would.
        if let Some(wanted) = head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        Some(response)
    }

    /// Lets the page read an answer. Cookies are none of its business.
    pub(super) fn allow_reading(&self, response: &mut Response<ReplyBody>) {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.origin.clone());
        let readable = HeaderValue::from_static(READABLE);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, readable);
        headers.insert(VARY, HeaderValue::from_static("Origin"));
    }
}
