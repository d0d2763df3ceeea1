//! Small answers from untrusted servers: discovery, registration, tokens.
//!
//! The URLs come from servers and from authorization servers, so none is trusted, also not behind
//! a redirect: its addresses are looked up once, checked by [`Reach`], and exactly those addresses are
//! dialled, so that a name that resolves differently afterwards changes nothing. Name and certificate
//! stay the URL's. No cookies are sent, and time, size and redirects are limited.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bowline_wire::header_policy::{Passage, passes};
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, LOCATION, USER_AGENT};
use http::uri::{PathAndQuery, Scheme};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, request,
};
use thiserror::Error;
use url::Url;

use super::names::Names;
use super::{EgressError, Head, Origin, Pool, Reach, Tls, UpstreamBody, WireError};
use crate::body::{ReadError, Sent, read_limited};

/// For all of it: names, connections, redirects, the body.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// For one address, so that there is time for the next one.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const MAX_BODY: usize = 1024 * 1024;
const MAX_REDIRECTS: usize = 5;

const AGENT: &str = concat!("bowline/", env!("CARGO_PKG_VERSION"));

/// Sends requests on behalf of one server.
#[derive(Debug, Clone)]
pub struct Fetch {
    reach: Reach,
    tls: Tls,
    names: Names,
    /// What the operator configured for the server. Only the server's own origin sees it.
    configured: HeaderMap,
}

/// What to do with a redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirects {
    /// It is followed, if method and body can stay what they are.
    Follow,
    /// It is followed to the same origin; one to another origin is an error.
    WithinOrigin,
    /// It is the answer.
    Stop,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum FetchError {
    /// The URL is not one of the web, or names no host.
    #[error("the URL is not an http or https URL")]
    NotWeb,
    /// The URL carries credentials.
    #[error("the URL has a user name or password in it")]
    Userinfo,
    /// The URL is not encrypted, although the server is reached by https.
    #[error("the URL is http, and the server is reached by https")]
    Plain,
    /// The name has no address. The text is that of the next error, so that it does not show which names
    /// exist.
    #[error("{0} has no address that may be reached from here")]
    Unresolved(Box<str>, #[source] io::Error),
    /// The name has an address that must not be dialled.
    #[error("{0} has no address that may be reached from here")]
    OutOfReach(Box<str>, IpAddr),
    /// The request was not answered.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The redirect has no usable location.
    #[error("the redirect has no valid location")]
    BadRedirect,
    /// The redirect leads to another origin.
    #[error("a redirect leads to another origin")]
    LeavesOrigin,
    /// There are too many redirects.
    #[error("more than {MAX_REDIRECTS} redirects")]
    TooManyRedirects,
    /// The connection broke before the answer was complete.
    #[error("the answer broke off: {0}")]
    Broken(WireError),
    /// The answer is too large.
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    /// The answer took too long.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

// === impl Fetch ===

impl Fetch {
    /// Sends requests wherever `reach` allows, without configured headers.
    pub fn new(reach: Reach, tls: Tls) -> Self {
        Self {
            reach,
            tls,
            names: Names::system(),
            configured: HeaderMap::new(),
        }
    }

    /// The same with headers that the operator configured for the server: an origin that is not the
    /// server's own never sees them.
    pub fn with_headers(mut self, configured: HeaderMap) -> Self {
        self.configured = configured;
        self
    }

    #[cfg(test)]
    fn with_names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// Whether a URL may be requested at all, or be opened in a browser; its addresses are not checked yet.
    pub fn check(&self, url: &Uri) -> Result<(), FetchError> {
        self.origin(url).map(drop)
    }

    /// Sends a request, follows redirects if asked to, and reads the whole answer.
    pub async fn send(
        &self,
        request: Request<Vec<u8>>,
        redirects: Redirects,
    ) -> Result<Response<Vec<u8>>, FetchError> {
        // Boxed, because it is rare and large.
        let answering = Box::pin(self.send_unbounded(request, redirects));
        tokio::time::timeout(TIME_LIMIT, answering)
            .await
            .unwrap_or(Err(FetchError::TimedOut(TIME_LIMIT)))
    }

    async fn send_unbounded(
        &self,
        request: Request<Vec<u8>>,
        redirects: Redirects,
    ) -> Result<Response<Vec<u8>>, FetchError> {
        let (mut asked, body) = request.into_parts();
        let body = Bytes::from(body);
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.send_once(&asked, body.clone()).await?;
            let next = match redirects {
                Redirects::Follow | Redirects::WithinOrigin => redirect(&asked, &answer)?,
                Redirects::Stop => None,
            };
            let Some(next) = next else {
                return read(answer).await;
            };
            if !Origin::of(&next).is_same(&Origin::of(&asked.uri)) {
                if redirects == Redirects::WithinOrigin {
                    return Err(FetchError::LeavesOrigin);
                }
                asked.headers = without_credentials(&asked.headers);
            }
            asked.uri = next;
        }
        Err(FetchError::TooManyRedirects)
    }

    async fn send_once(
        &self,
        asked: &request::Parts,
        body: Bytes,
    ) -> Result<Response<UpstreamBody>, FetchError> {
        let origin = self.origin(&asked.uri)?;
        let addresses = self.addresses(&origin).await?;
        let mut failed = EgressError::Connect(io::ErrorKind::NotFound.into());
        for address in addresses {
            let request = self.write(asked, &origin, body.clone())?;
            let pool = Pool::new(origin.at(address), self.tls.clone());
            match pool.send(&request, CONNECT_LIMIT).await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.nobody_there() => failed = error,
                Err(error) => return Err(error.into()),
            }
        }
        Err(failed.into())
    }

    /// The origin of a URL that may be requested at all.
    fn origin(&self, url: &Uri) -> Result<Origin, FetchError> {
        let is_plain = url.scheme() == Some(&Scheme::HTTP);
        if !is_plain && url.scheme() != Some(&Scheme::HTTPS) {
            return Err(FetchError::NotWeb);
        }
        let authority = url.authority().ok_or(FetchError::NotWeb)?;
        if authority.as_str().contains('@') {
            return Err(FetchError::Userinfo);
        }
        if authority.host().is_empty() {
            return Err(FetchError::NotWeb);
        }
        if is_plain && !self.reach.allows_plain() {
            return Err(FetchError::Plain);
        }
        Ok(Origin::of(url))
    }

    /// The addresses of the origin now, if all of them may be dialled.
    async fn addresses(&self, origin: &Origin) -> Result<Vec<SocketAddr>, FetchError> {
        let unresolved = |error| FetchError::Unresolved(origin.host().into(), error);
        let addresses = self.names.resolve(origin).await.map_err(unresolved)?;
        if addresses.is_empty() {
            return Err(unresolved(io::ErrorKind::NotFound.into()));
        }
        if let Some(address) = self.reach.refused(&addresses) {
            tracing::warn!(host = origin.host(), %address, "address is not allowed");
            return Err(FetchError::OutOfReach(origin.host().into(), address));
        }
        match origin.https || self.reach.allows_plain_to(&addresses) {
            true => Ok(addresses),
            false => Err(FetchError::Plain),
        }
    }

    fn write(
        &self,
        asked: &request::Parts,
        origin: &Origin,
        body: Bytes,
    ) -> Result<super::Request, FetchError> {
        let target = asked.uri.path_and_query();
        let root = PathAndQuery::from_static("/");
        let mut head = Head::new(&asked.method, target.unwrap_or(&root));
        let authority = asked
            .uri
            .authority()
            .map_or("", |authority| authority.as_str());
        let host = HeaderValue::from_str(authority).map_err(|_| FetchError::NotWeb)?;
        head.add(&HOST, &host);
        head.add(&USER_AGENT, &HeaderValue::from_static(AGENT));
        head.add(&ACCEPT_ENCODING, &HeaderValue::from_static("identity"));
        for (name, value) in asked
            .headers
            .iter()
            .filter(|(name, _)| passes(name, Passage::Fetched))
        {
            head.add(name, value);
        }
        if origin.is_same(self.reach.server()) {
            let free = |name: &HeaderName| {
                passes(name, Passage::Fetched) && !asked.headers.contains_key(name)
            };
            for (name, value) in self.configured.iter().filter(|(name, _)| free(name)) {
                head.add(name, value);
            }
        }
        Ok(match body.is_empty() && asked.method == Method::GET {
            true => head.alone(),
            false => head.with(body, Sent::default()),
        })
    }
}

/// What of a request may be seen by an origin that it was not meant for.
fn without_credentials(headers: &HeaderMap) -> HeaderMap {
    let harmless = [ACCEPT, CONTENT_TYPE].into_iter();
    let kept = harmless.filter_map(|name| Some((name.clone(), headers.get(name)?.clone())));
    kept.collect()
}

/// Where a redirect leads, if the answer is one that can be followed.
fn redirect<B>(asked: &request::Parts, answer: &Response<B>) -> Result<Option<Uri>, FetchError> {
    let follows = match answer.status() {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        // These would turn a POST into a GET.
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => {
            asked.method == Method::GET
        }
        _ => false,
    };
    let Some(location) = answer.headers().get(LOCATION).filter(|_| follows) else {
        return Ok(None);
    };
    let next = location.to_str().ok().and_then(|location| {
        let here = Url::parse(&asked.uri.to_string()).ok()?;
        let mut there = here.join(location).ok()?;
        there.set_fragment(None);
        there.as_str().parse().ok()
    });
    next.map(Some).ok_or(FetchError::BadRedirect)
}

async fn read(answer: Response<UpstreamBody>) -> Result<Response<Vec<u8>>, FetchError> {
    let (head, body) = answer.into_parts();
    let body = read_limited(body, MAX_BODY)
        .await
        .map_err(|error| match error {
            ReadError::TooLarge(limit) => FetchError::TooLarge(limit),
            ReadError::Broken(error) => FetchError::Broken(error),
        })?;
    Ok(Response::from_parts(head, body.into()))
}

#[cfg(test)]
mod tests;
