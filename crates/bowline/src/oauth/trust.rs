//! Which authorization server is trusted for a server, and where its endpoints may be.
//!
//! Metadata could name the endpoints of two authorization servers: people would sign in at an honest one, and
//! their code would go to the other (mix-up). So endpoints have to be at the issuer's own origin, or where
//! the operator allows. A discovery is checked at every use and not only when it is made: it may have been
//! stored before the operator changed the configuration.

use bowline_egress::Origin;
use http::Uri;
use url::Url;

use super::auth_server_error::AuthServerError;
use super::grant::Discovery;
use crate::config::ServerOAuth;

/// The endpoints that are used.
const ENDPOINTS: [&str; 4] = [
    "authorization_endpoint",
    "token_endpoint",
    "registration_endpoint",
    "revocation_endpoint",
];

/// The operator's settings for the authorization server of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    issuer: Option<Box<str>>,
    elsewhere: Vec<Origin>,
    unlisted_pkce: bool,
}

// === impl Trust ===

impl Trust {
    pub(crate) fn of(oauth: &ServerOAuth) -> Self {
        let origins = oauth.endpoints_elsewhere.iter();
        let origins = origins.filter_map(|origin| Some(Origin::of(&origin.parse().ok()?)));
        Self {
            issuer: oauth.issuer.as_deref().map(Into::into),
            elsewhere: origins.collect(),
            unlisted_pkce: oauth.unlisted_pkce,
        }
    }

    /// Whether an authorization server whose metadata lists no PKCE methods is taken for one that has S256.
    pub(super) fn allows_unlisted_pkce(&self) -> bool {
        self.unlisted_pkce
    }

    /// The only issuer that is accepted, if the operator configured one.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.issuer.as_deref()
    }

    /// Whether an issuer is accepted.
    pub(super) fn accepts(&self, issuer: &str) -> bool {
        self.issuer()
            .is_none_or(|pinned| is_same_issuer(pinned, issuer))
    }

    /// Checks that the issuer is accepted, and that its endpoints are at allowed origins.
    pub(super) fn check(&self, discovery: &Discovery) -> Result<(), AuthServerError> {
        if !self.accepts(&discovery.issuer) {
            return Err(AuthServerError::AnotherIssuer);
        }
        self.check_endpoints(discovery)
    }

    /// Checks that an issuer's endpoints are at allowed origins. Tokens are revoked where they were issued, also if
    /// that issuer is not accepted any more.
    pub(super) fn check_endpoints(&self, discovery: &Discovery) -> Result<(), AuthServerError> {
        for (name, origin) in endpoints(discovery) {
            let origin = origin.ok_or(AuthServerError::Malformed(name))?;
            let is_own = origin_of(&discovery.issuer).is_some_and(|issuer| issuer.is_same(&origin));
            if !is_own
                && !self
                    .elsewhere
                    .iter()
                    .any(|allowed| allowed.is_same(&origin))
            {
                tracing::warn!(
                    issuer = discovery.issuer,
                    endpoint = name,
                    host = origin.host(),
                    "authorization server endpoint refused: another origin than its issuer"
                );
                return Err(AuthServerError::Elsewhere(name));
            }
        }
        Ok(())
    }
}

/// The hosts besides the issuer's own at which it has endpoints, each once.
pub(crate) fn hosts_elsewhere(discovery: &Discovery) -> Vec<String> {
    let issuer = origin_of(&discovery.issuer);
    let mut hosts = Vec::new();
    for origin in endpoints(discovery).filter_map(|(_, origin)| origin) {
        let is_own = issuer.as_ref().is_some_and(|own| own.is_same(&origin));
        let host = origin.host().to_owned();
        if !is_own && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

/// Whether two issuers are the same. A slash after the host alone makes no difference.
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

/// The endpoints in the metadata; without an origin if it is ambiguous.
fn endpoints(discovery: &Discovery) -> impl Iterator<Item = (&'static str, Option<Origin>)> {
    ENDPOINTS.into_iter().filter_map(|name| {
        let endpoint = discovery.metadata.get(name)?;
        Some((name, endpoint.as_str().and_then(origin_of)))
    })
}

/// The origin of a URL, if it is unambiguous: a browser opens it and Bowline connects to it, and each parses
/// it differently.
fn origin_of(url: &str) -> Option<Origin> {
    let dialled = Origin::of(&url.parse::<Uri>().ok()?);
    let opened = Origin::of(&Url::parse(url).ok()?.as_str().parse().ok()?);
    dialled.is_same(&opened).then_some(dialled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::oauth::grant::tests::{credentials, tokens};

    fn published(endpoints: &[(&str, &str)]) -> Discovery {
        let mut discovery = credentials(tokens("", None, None)).discovery;
        for (name, url) in endpoints {
            discovery.metadata.insert((*name).to_owned(), json!(url));
        }
        discovery
    }

    fn trust(issuer: Option<&str>, elsewhere: &[&str]) -> Trust {
        Trust::of(&ServerOAuth {
            issuer: issuer.map(str::to_owned),
            endpoints_elsewhere: elsewhere.iter().map(|&it| it.to_owned()).collect(),
            ..ServerOAuth::default()
        })
    }

    #[test]
    fn endpoints_are_at_their_issuer() {
        for own in [
            "https://login.example/token",
            "https://LOGIN.example:443/a/b?c",
        ] {
            for name in ENDPOINTS {
                let discovery = published(&[(name, own)]);
                assert!(trust(None, &[]).check(&discovery).is_ok(), "{name} {own}");
                assert!(hosts_elsewhere(&discovery).is_empty());
            }
        }
        for other in [
            "http://login.example/token",
            "https://login.example:8443/token",
            "https://evil.example/token",
            "https://login.example.evil.example/",
            "https://login.example@evil.example/",
            "https://evil.example/https://login.example/",
            "https://login.example\\@evil.example/",
            "https://evil.example\\.login.example/",
            "https://login.example%2eevil.example/",
            "https://login.example./token",
            "https://ｌogin.example/token",
            "//login.example/token",
            "/token",
            "",
        ] {
            for name in ENDPOINTS {
                let discovery = published(&[(name, other)]);
                let refused = trust(None, &["https://other.example"]).check(&discovery);
                assert!(
                    matches!(
                        refused,
                        Err(AuthServerError::Elsewhere(it) | AuthServerError::Malformed(it))
                            if it == name
                    ),
                    "{other}: {refused:?}"
                );
            }
        }
    }

    #[test]
    fn the_operator_may_allow_other_origins() {
        let discovery = published(&[
            ("token_endpoint", "https://token.example/token"),
            ("revocation_endpoint", "https://token.example:8443/revoke"),
        ]);
        assert!(
            trust(None, &["https://token.example"])
                .check(&discovery)
                .is_err()
        );
        let allowed = ["https://Token.example/", "https://token.example:8443"];
        assert!(trust(None, &allowed).check(&discovery).is_ok());
        assert_eq!(hosts_elsewhere(&discovery), ["token.example"]);
    }

    #[test]
    fn a_pinned_issuer_is_the_only_one() {
        let discovery = published(&[]);
        for (pinned, is_good) in [
            ("https://login.example", true),
            ("https://login.example/", true),
            ("https://login.example/tenant", false),
            ("https://other.example", false),
        ] {
            assert_eq!(
                trust(Some(pinned), &[]).check(&discovery).is_ok(),
                is_good,
                "{pinned}"
            );
        }
    }

    #[test]
    fn issuers_are_compared_as_they_are_written() {
        assert!(is_same_issuer("https://h", "https://h/"));
        assert!(is_same_issuer("https://h/t", "https://h/t"));
        for (one, other) in [
            ("https://h/t", "https://h/t/"),
            ("https://h", "https://H"),
            ("https://h", "https://h:443"),
            ("https://h", "http://h"),
            ("https://h", "https://h//"),
            ("https://h", "https://evil"),
        ] {
            assert!(!is_same_issuer(one, other), "{one} {other}");
        }
    }
}
