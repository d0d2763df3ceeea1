//! Which authorization server a server's callers are sent to, and where its endpoints may be.
//!
//! Whoever writes an authorization server's document could name the endpoints of two: people would
//! sign in at an honest one, and their code would go to the other. So endpoints are at the issuer's
//! own origin, or where the operator says. What was found is judged wherever it is used, and not only
//! where it was found: it may lie in a store since before the operator said something else.

use http::Uri;
use url::Url;

use super::authority::AuthorityError;
use super::discovery::is_same_issuer;
use super::grant::Discovered;
use crate::config::ServerOAuth;
use crate::egress::Origin;

/// The endpoints that are used.
const ENDPOINTS: [&str; 4] = [
    "authorization_endpoint",
    "token_endpoint",
    "registration_endpoint",
    "revocation_endpoint",
];

/// What the operator says of the authorization server of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    issuer: Option<Box<str>>,
    elsewhere: Vec<Origin>,
}

// === impl Trust ===

impl Trust {
    pub(crate) fn of(oauth: &ServerOAuth) -> Self {
        let origins = oauth.endpoints_elsewhere.iter();
        let origins = origins.filter_map(|origin| Some(Origin::of(&origin.parse().ok()?)));
        Self {
            issuer: oauth.issuer.as_deref().map(Into::into),
            elsewhere: origins.collect(),
        }
    }

    /// The one authorization server that is asked, if the operator named one.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.issuer.as_deref()
    }

    /// Whether this is the authorization server that is meant, and its endpoints are where they may
    /// be.
    pub(super) fn check(&self, found: &Discovered) -> Result<(), AuthorityError> {
        let pinned = self.issuer();
        if pinned.is_some_and(|pinned| !is_same_issuer(pinned, &found.issuer)) {
            return Err(AuthorityError::AnotherIssuer);
        }
        for (name, origin) in endpoints(found) {
            let origin = origin.ok_or(AuthorityError::Malformed(name))?;
            let is_own = origin_of(&found.issuer).is_some_and(|issuer| issuer.is_same(&origin));
            if !is_own
                && !self
                    .elsewhere
                    .iter()
                    .any(|allowed| allowed.is_same(&origin))
            {
                tracing::warn!(
                    issuer = found.issuer,
                    endpoint = name,
                    host = origin.host(),
                    "an authorization server's endpoint is at another origin than its issuer"
                );
                return Err(AuthorityError::Elsewhere(name));
            }
        }
        Ok(())
    }
}

/// The hosts besides the issuer's own at which it has endpoints, each once.
pub(crate) fn hosts_elsewhere(found: &Discovered) -> Vec<String> {
    let issuer = origin_of(&found.issuer);
    let mut hosts = Vec::new();
    for origin in endpoints(found).filter_map(|(_, origin)| origin) {
        let is_own = issuer.as_ref().is_some_and(|own| own.is_same(&origin));
        let host = origin.host().to_owned();
        if !is_own && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

/// The endpoints that a document has; without an origin where it is not clear which it would be.
fn endpoints(found: &Discovered) -> impl Iterator<Item = (&'static str, Option<Origin>)> {
    ENDPOINTS.into_iter().filter_map(|name| {
        let endpoint = found.metadata.get(name)?;
        Some((name, endpoint.as_str().and_then(origin_of)))
    })
}

/// The origin of a URL, if everybody agrees on it: a browser opens it, and we dial it, and each reads
/// it in a way of its own.
fn origin_of(url: &str) -> Option<Origin> {
    let dialled = Origin::of(&url.parse::<Uri>().ok()?);
    let opened = Origin::of(&Url::parse(url).ok()?.as_str().parse().ok()?);
    dialled.is_same(&opened).then_some(dialled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::oauth::grant::tests::found;

    fn published(endpoints: &[(&str, &str)]) -> Discovered {
        let (mut found, _) = found();
        for (name, url) in endpoints {
            found.metadata.insert((*name).to_owned(), json!(url));
        }
        found
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
                let found = published(&[(name, own)]);
                assert!(trust(None, &[]).check(&found).is_ok(), "{name} {own}");
                assert!(hosts_elsewhere(&found).is_empty());
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
                let found = published(&[(name, other)]);
                let refused = trust(None, &["https://other.example"]).check(&found);
                assert!(
                    matches!(
                        refused,
                        Err(AuthorityError::Elsewhere(it) | AuthorityError::Malformed(it))
                            if it == name
                    ),
                    "{other}: {refused:?}"
                );
            }
        }
    }

    #[test]
    fn the_operator_may_allow_other_origins() {
        let found = published(&[
            ("token_endpoint", "https://token.example/token"),
            ("revocation_endpoint", "https://token.example:8443/revoke"),
        ]);
        assert!(
            trust(None, &["https://token.example"])
                .check(&found)
                .is_err()
        );
        let allowed = ["https://Token.example/", "https://token.example:8443"];
        assert!(trust(None, &allowed).check(&found).is_ok());
        assert_eq!(hosts_elsewhere(&found), ["token.example"]);
    }

    #[test]
    fn a_pinned_issuer_is_the_only_one() {
        let found = published(&[]);
        for (pinned, is_good) in [
            ("https://login.example", true),
            ("https://login.example/", true),
            ("https://login.example/tenant", false),
            ("https://other.example", false),
        ] {
            assert_eq!(
                trust(Some(pinned), &[]).check(&found).is_ok(),
                is_good,
                "{pinned}"
            );
        }
    }
}
