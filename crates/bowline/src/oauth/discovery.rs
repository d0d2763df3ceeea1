//! Discovery of a server's authorization server: the protected resource metadata (RFC 9728), and the
//! authorization server metadata (RFC 8414, OpenID Connect Discovery).
//!
//! Both documents are kept as published. Each must name the resource or issuer that it was requested for:
//! otherwise a server could use another server's metadata, or metadata could claim another issuer, and tokens
//! would go to the wrong place.

use bowline_egress::{Fetch, Redirects};
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode, Uri};
use serde_json::{Map, Value};
use url::Url;

use super::auth_server_error::AuthServerError;
use super::challenge::Challenge;
use super::grant::Discovery;
use super::trust::{Trust, is_same_issuer};
use crate::config::shown_url;

type Document = Map<String, Value>;

/// How many of the authorization servers in a server's metadata are tried: the gateway connects to each.
const MAX_ISSUERS: usize = 4;

/// The largest document that is kept: each sign-in has a copy, and the vault is written as a whole.
const MAX_DOCUMENT: usize = 64 * 1024;

/// Discovers the authorization server of a server.
pub(super) async fn discover(
    server: &Url,
    fetch: &Fetch,
    trust: &Trust,
    challenge: Option<&Challenge>,
) -> Result<Discovery, AuthServerError> {
    let search = Search { server, fetch };
    let resource_metadata = search.resource_metadata(challenge).await?;
    let issuers = match &resource_metadata {
        Some(document) => strings(document, "authorization_servers"),
        None => Vec::new(),
    };
    let own = origin(server);
    let metadata = match (trust.issuer(), issuers.is_empty()) {
        (Some(pinned), false) if !issuers.iter().any(|it| is_same_issuer(it, pinned)) => {
            return Err(AuthServerError::AnotherIssuer);
        }
        (Some(pinned), is_unsaid) if !is_unsaid || !is_same_issuer(pinned, &own) => {
            let metadata = search.metadata(pinned).await?;
            metadata.ok_or(AuthServerError::NoSupport)?
        }
        (_, false) => search.first_of(&issuers).await?,
        // Before RFC 9728, a server was its own authorization server.
        (_, true) => match search.metadata(&own).await? {
            Some(document) => document,
            None => search.legacy(challenge, resource_metadata.is_some())?,
        },
    };
    check_offers(&metadata, trust)?;
    for endpoint in ["authorization_endpoint", "token_endpoint"] {
        search.check_endpoint(&metadata, endpoint)?;
    }
    let published = resource_metadata
        .as_ref()
        .and_then(|it| text(it, "resource"));
    let discovery = Discovery {
        resource: published.map_or_else(|| shown_url(server.as_str()), str::to_owned),
        issuer: text(&metadata, "issuer").map_or(own, str::to_owned),
        scopes: scopes(challenge, resource_metadata.as_ref(), &metadata),
        metadata,
        resource_metadata,
    };
    trust.check(&discovery)?;
    Ok(discovery)
}

/// The scopes to ask for: those of the challenge, else those that the server publishes. If there are any and
/// the authorization server supports `offline_access`, that one is added, to get a refresh token.
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

/// A server, and how to fetch its metadata.
struct Search<'a> {
    server: &'a Url,
    fetch: &'a Fetch,
}

impl Search<'_> {
    /// The protected resource metadata: at the URL in the challenge, else at the well-known URLs.
    async fn resource_metadata(
        &self,
        challenge: Option<&Challenge>,
    ) -> Result<Option<Document>, AuthServerError> {
        let mut places = Vec::new();
        if let Some(named) = challenge.and_then(|it| it.resource_metadata.as_deref()) {
            let named = self.server.join(named);
            places.push(named.map_err(|_| AuthServerError::Malformed("resource_metadata"))?);
        }
        for place in well_known(self.server, "oauth-protected-resource") {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        let describes_server = |document: &Document| match text(document, "resource") {
            Some(resource) if is_within(self.server, resource) => Ok(true),
            Some(_) => Err(AuthServerError::ResourceMismatch),
            // Some other document.
            None => Ok(false),
        };
        self.first_at(&places, describes_server).await
    }

    /// The metadata of the first of these authorization servers that has a valid document.
    async fn first_of(&self, issuers: &[String]) -> Result<Document, AuthServerError> {
        let mut failed = None;
        for issuer in issuers.iter().take(MAX_ISSUERS) {
            match self.metadata(issuer).await {
                Ok(Some(document)) => return Ok(document),
                Ok(None) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.unwrap_or(AuthServerError::NoSupport))
    }

    /// The metadata of an authorization server.
    async fn metadata(&self, issuer: &str) -> Result<Option<Document>, AuthServerError> {
        let url = match Url::parse(issuer) {
            Ok(url) if url.query().is_none() && url.fragment().is_none() => url,
            _ => return Err(AuthServerError::Malformed("issuer")),
        };
        let claims_issuer = |document: &Document| match text(document, "issuer") {
            Some(claimed) if is_same_issuer(claimed, issuer) => Ok(true),
            _ => Err(AuthServerError::IssuerMismatch),
        };
        self.first_at(&metadata_places(&url), claims_issuer).await
    }

    /// The first valid document at any of these URLs. If all are invalid, the error is that of the first.
    async fn first_at(
        &self,
        places: &[Url],
        is_good: impl Fn(&Document) -> Result<bool, AuthServerError>,
    ) -> Result<Option<Document>, AuthServerError> {
        let mut failed = None;
        for place in places {
            let judged = match self.document(place).await {
                Ok(None) => continue,
                Ok(Some(document)) => is_good(&document).map(|is_good| (document, is_good)),
                Err(trouble @ AuthServerError::Unavailable(_)) => Err(trouble),
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

    /// The default endpoints of MCP 2025-03-26, for a server that wants a bearer token and publishes no
    /// metadata.
    fn legacy(
        &self,
        challenge: Option<&Challenge>,
        has_metadata: bool,
    ) -> Result<Document, AuthServerError> {
        let wants_bearer = challenge.is_some_and(|it| it.resource_metadata.is_none());
        if has_metadata || !wants_bearer {
            return Err(AuthServerError::NoSupport);
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
        // That revision requires PKCE of every server.
        document.insert(METHODS.to_owned(), Value::from(vec![S256]));
        Ok(document)
    }

    /// The JSON object at this URL. `None` if there is none; a temporary error is an error.
    async fn document(&self, place: &Url) -> Result<Option<Document>, AuthServerError> {
        let uri: Uri = place
            .as_str()
            .parse()
            .map_err(|_| AuthServerError::Malformed("metadata URL"))?;
        let mut request = Request::new(Vec::new());
        *request.uri_mut() = uri;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(ACCEPT, json);
        let answer = self.fetch.send(request, Redirects::Follow).await?;
        match answer.status() {
            StatusCode::OK => match serde_json::from_slice(answer.body()) {
                Ok(_) if answer.body().len() > MAX_DOCUMENT => {
                    let limit = MAX_DOCUMENT;
                    Err(AuthServerError::DocumentTooLarge { limit })
                }
                document => Ok(document.ok()),
            },
            status if is_trouble(status) => Err(AuthServerError::Unavailable(status)),
            _ => Ok(None),
        }
    }

    fn check_endpoint(
        &self,
        document: &Document,
        name: &'static str,
    ) -> Result<(), AuthServerError> {
        let url = text(document, name).filter(|url| !url.contains('#'));
        let url = url.and_then(|url| url.parse().ok());
        let url: Uri = url.ok_or(AuthServerError::Malformed(name))?;
        Ok(self.fetch.check(&url)?)
    }
}

/// Whether a status means a temporary error.
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

/// Checks that the authorization server supports the code flow and PKCE with S256. The metadata has to name
/// the latter, unless the operator knows better: RFC 8414 leaves that open, MCP does not.
fn check_offers(metadata: &Document, trust: &Trust) -> Result<(), AuthServerError> {
    let offers = |name, what| strings(metadata, name).iter().any(|it| it == what);
    if metadata.contains_key(RESPONSES) && !offers(RESPONSES, "code") {
        return Err(AuthServerError::Malformed(RESPONSES));
    }
    match (offers(METHODS, S256), metadata.contains_key(METHODS)) {
        (true, _) => Ok(()),
        (false, true) => Err(AuthServerError::NoS256),
        (false, false) if trust.allows_unlisted_pkce() => Ok(()),
        (false, false) => Err(AuthServerError::UnlistedPkce),
    }
}

/// The well-known URLs of a document: with the path of the URL appended, and at the root.
fn well_known(url: &Url, name: &str) -> Vec<Url> {
    let path = url.path().trim_matches('/');
    let mut places = Vec::new();
    if !path.is_empty() {
        places.push(at(url, &format!("/.well-known/{name}/{path}")));
    }
    places.push(at(url, &format!("/.well-known/{name}")));
    places
}

/// The well-known URLs of an authorization server's metadata, in the order of the specification.
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

/// The URL of another path at the same origin.
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
