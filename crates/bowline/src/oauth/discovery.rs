//! Who grants access to a server: what the server publishes about itself (RFC 9728), and what its
//! authorization server publishes (RFC 8414, OpenID Connect Discovery).
//!
//! Both documents are kept as they were published. Each must name what it was asked for: a server
//! that points to somebody else's document, or a document that claims another issuer, is how tokens
//! are led astray.

use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode, Uri};
use serde_json::{Map, Value};
use url::Url;

use super::authority::AuthorityError;
use super::challenge::Challenge;
use super::grant::Discovered;
use super::trust::Trust;
use crate::config::shown_url;
use crate::egress::{Fetch, Redirects};

type Document = Map<String, Value>;

/// How many of the authorization servers that a server names are tried: whoever writes that list has
/// the gateway knock at each.
const MAX_ISSUERS: usize = 4;

/// Finds who grants access to the server.
pub(super) async fn discover(
    server: &Url,
    fetch: &Fetch,
    trust: &Trust,
    challenge: Option<&Challenge>,
) -> Result<Discovered, AuthorityError> {
    let search = Search { server, fetch };
    let resource_metadata = search.resource_metadata(challenge).await?;
    let issuers = match &resource_metadata {
        Some(document) => strings(document, "authorization_servers"),
        None => Vec::new(),
    };
    let own = origin(server);
    let metadata = match (trust.issuer(), issuers.is_empty()) {
        (Some(pinned), false) if !issuers.iter().any(|it| is_same_issuer(it, pinned)) => {
            return Err(AuthorityError::AnotherIssuer);
        }
        (Some(pinned), is_unsaid) if !is_unsaid || !is_same_issuer(pinned, &own) => {
            let metadata = search.metadata(pinned).await?;
            metadata.ok_or(AuthorityError::NoSupport)?
        }
        (_, false) => search.first_of(&issuers).await?,
        // Before there were documents about servers, a server granted access to itself.
        (_, true) => match search.metadata(&own).await? {
            Some(document) => document,
            None => search.legacy(challenge, resource_metadata.is_some())?,
        },
    };
    check_offers(&metadata)?;
    for endpoint in ["authorization_endpoint", "token_endpoint"] {
        search.check_endpoint(&metadata, endpoint)?;
    }
    let published = resource_metadata
        .as_ref()
        .and_then(|it| text(it, "resource"));
    let found = Discovered {
        resource: published.map_or_else(|| shown_url(server.as_str()), str::to_owned),
        issuer: text(&metadata, "issuer").map_or(own, str::to_owned),
        scopes: scopes(challenge, resource_metadata.as_ref(), &metadata),
        metadata,
        resource_metadata,
    };
    trust.check(&found)?;
    Ok(found)
}

/// What is asked for: what the challenge says, else what the server publishes. Asked for anything at
/// all, an authorization server that knows how is also asked for a token to refresh with.
fn scopes(
    challenge: Option<&Challenge>,
    resource_metadata: Option<&Document>,
    metadata: &Document,
) -> Vec<String> {
    const OFFLINE: &str = "offline_access";
    let mut scopes = challenge.map_or_else(Vec::new, |challenge| challenge.scopes.clone());
    if scopes.is_empty() {
        scopes = resource_metadata.map_or_else(Vec::new, |it| strings(it, "scopes_supported"));
    }
    let knows = |scopes: &[String]| scopes.iter().any(|scope| scope == OFFLINE);
    if !scopes.is_empty() && !knows(&scopes) && knows(&strings(metadata, "scopes_supported")) {
        scopes.push(OFFLINE.to_owned());
    }
    scopes
}

/// A server and the way to it.
struct Search<'a> {
    server: &'a Url,
    fetch: &'a Fetch,
}

impl Search<'_> {
    /// What the server publishes about itself: where its challenge says, else where it is usual.
    async fn resource_metadata(
        &self,
        challenge: Option<&Challenge>,
    ) -> Result<Option<Document>, AuthorityError> {
        let mut places = Vec::new();
        if let Some(named) = challenge.and_then(|it| it.resource_metadata.as_deref()) {
            let named = self.server.join(named);
            places.push(named.map_err(|_| AuthorityError::Malformed("resource_metadata"))?);
        }
        for place in well_known(self.server, "oauth-protected-resource") {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        let describes_server = |document: &Document| match text(document, "resource") {
            Some(resource) if is_within(self.server, resource) => Ok(true),
            Some(_) => Err(AuthorityError::ResourceMismatch),
            // Something else that happens to be there.
            None => Ok(false),
        };
        self.first_at(&places, describes_server).await
    }

    /// The document of the first of these authorization servers that has a good one.
    async fn first_of(&self, issuers: &[String]) -> Result<Document, AuthorityError> {
        let mut failed = None;
        for issuer in issuers.iter().take(MAX_ISSUERS) {
            match self.metadata(issuer).await {
                Ok(Some(document)) => return Ok(document),
                Ok(None) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.unwrap_or(AuthorityError::NoSupport))
    }

    /// What an authorization server publishes.
    async fn metadata(&self, issuer: &str) -> Result<Option<Document>, AuthorityError> {
        let url = match Url::parse(issuer) {
            Ok(url) if url.query().is_none() && url.fragment().is_none() => url,
            _ => return Err(AuthorityError::Malformed("issuer")),
        };
        let claims_issuer = |document: &Document| match text(document, "issuer") {
            Some(claimed) if is_same_issuer(claimed, issuer) => Ok(true),
            _ => Err(AuthorityError::IssuerMismatch),
        };
        self.first_at(&metadata_places(&url), claims_issuer).await
    }

    /// The first good document at any of these places. If there is none, because of what was wrong
    /// with the first that there was, that is why.
    async fn first_at(
        &self,
        places: &[Url],
        is_good: impl Fn(&Document) -> Result<bool, AuthorityError>,
    ) -> Result<Option<Document>, AuthorityError> {
        let mut failed = None;
        for place in places {
            let judged = match self.document(place).await {
                Ok(None) => continue,
                Ok(Some(document)) => is_good(&document).map(|is_good| (document, is_good)),
                Err(trouble @ AuthorityError::Unavailable(_)) => Err(trouble),
                Err(error) => return Err(error),
            };
            match judged {
                Ok((document, true)) => return Ok(Some(document)),
                Ok((_, false)) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// The endpoints of 2025-03-26, for a server that wants a bearer token and publishes nothing.
    fn legacy(
        &self,
        challenge: Option<&Challenge>,
        has_metadata: bool,
    ) -> Result<Document, AuthorityError> {
        let wants_bearer = challenge.is_some_and(|it| it.resource_metadata.is_none());
        if has_metadata || !wants_bearer {
            return Err(AuthorityError::NoSupport);
        }
        let origin = origin(self.server);
        let endpoints = [
            ("authorization_endpoint", "authorize"),
            ("token_endpoint", "token"),
            ("registration_endpoint", "register"),
        ];
        let mut document: Document = endpoints
            .into_iter()
            .map(|(name, path)| (name.to_owned(), format!("{origin}/{path}").into()))
            .collect();
        // That revision demands it of every server.
        document.insert(METHODS.to_owned(), Value::from(vec![S256]));
        Ok(document)
    }

    /// A JSON object at this place. `None` where nothing of the kind is published; a server that is
    /// in trouble has not said that.
    async fn document(&self, place: &Url) -> Result<Option<Document>, AuthorityError> {
        let uri: Uri = place
            .as_str()
            .parse()
            .map_err(|_| AuthorityError::Malformed("metadata URL"))?;
        let mut request = Request::new(Vec::new());
        *request.uri_mut() = uri;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(ACCEPT, json);
        let answer = self.fetch.send(request, Redirects::Follow).await?;
        match answer.status() {
            StatusCode::OK => Ok(serde_json::from_slice(answer.body()).ok()),
            status if is_trouble(status) => Err(AuthorityError::Unavailable(status)),
            _ => Ok(None),
        }
    }

    fn check_endpoint(
        &self,
        document: &Document,
        name: &'static str,
    ) -> Result<(), AuthorityError> {
        let url = text(document, name).filter(|url| !url.contains('#'));
        let url = url.and_then(|url| url.parse().ok());
        let url: Uri = url.ok_or(AuthorityError::Malformed(name))?;
        Ok(self.fetch.check(&url)?)
    }
}

/// Whether a status tells of a passing trouble rather than of what was asked.
pub(super) fn is_trouble(status: StatusCode) -> bool {
    let passing = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    status.is_server_error() || passing.contains(&status)
}

const METHODS: &str = "code_challenge_methods_supported";
const S256: &str = "S256";
const RESPONSES: &str = "response_types_supported";

/// Whether the authorization server does what every sign-in needs: codes, and PKCE with S256. The
/// latter has to be said (RFC 8414 leaves it open, MCP does not).
fn check_offers(metadata: &Document) -> Result<(), AuthorityError> {
    let offers = |name, what| strings(metadata, name).iter().any(|it| it == what);
    if metadata.contains_key(RESPONSES) && !offers(RESPONSES, "code") {
        return Err(AuthorityError::Malformed(RESPONSES));
    }
    match offers(METHODS, S256) {
        true => Ok(()),
        false => Err(AuthorityError::NoS256),
    }
}

/// Where a document about a URL is published: its path behind the well-known one, and the root.
fn well_known(url: &Url, name: &str) -> Vec<Url> {
    let path = url.path().trim_matches('/');
    let mut places = Vec::new();
    if !path.is_empty() {
        places.push(at(url, &format!("/.well-known/{name}/{path}")));
    }
    places.push(at(url, &format!("/.well-known/{name}")));
    places
}

/// Where an authorization server's document is published, in the order of the specification.
fn metadata_places(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_matches('/');
    let (oauth, oidc) = (
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
    );
    match path.is_empty() {
        true => vec![at(issuer, oauth), at(issuer, oidc)],
        false => vec![
            at(issuer, &format!("{oauth}/{path}")),
            at(issuer, &format!("{oidc}/{path}")),
            at(issuer, &format!("/{path}{oidc}")),
        ],
    }
}

/// Another path of the same origin.
fn at(url: &Url, path: &str) -> Url {
    let mut place = url.clone();
    place.set_query(None);
    place.set_fragment(None);
    place.set_path(path);
    place
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Whether the server is the resource or lies within it: same origin, and a path that is the same or
/// goes on behind a slash.
fn is_within(server: &Url, resource: &str) -> bool {
    let Ok(resource) = Url::parse(resource) else {
        return false;
    };
    let is_plain = resource.fragment().is_none()
        && resource.username().is_empty()
        && resource.password().is_none()
        && (resource.query().is_none() || resource.query() == server.query());
    let rest = server
        .path()
        .strip_prefix(resource.path().trim_end_matches('/'));
    let same_path = server.path() == resource.path()
        || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    is_plain && resource.origin() == server.origin() && same_path
}

/// Whether two issuers are the same. A slash after a host alone makes no difference, as nobody can
/// say whether it belongs there.
pub(super) fn is_same_issuer(one: &str, other: &str) -> bool {
    let bare = |issuer: &str| {
        let bare = issuer.strip_suffix('/').unwrap_or(issuer);
        match bare.split_once("://") {
            Some((_, host)) if !host.contains('/') => bare.to_owned(),
            _ => issuer.to_owned(),
        }
    };
    bare(one) == bare(other)
}

fn text<'a>(document: &'a Document, name: &str) -> Option<&'a str> {
    document.get(name)?.as_str()
}

/// A list of texts; what is not a text is left out.
pub(super) fn strings(document: &Document, name: &str) -> Vec<String> {
    let list = document.get(name).and_then(Value::as_array);
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
