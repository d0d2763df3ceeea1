//! A grant: what a caller was granted at a server, by which authorization server, and its tokens.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::secret::Secret;

/// The longest lifetime of an access token that is believed: some thirty years. What is beyond is no date that
/// can be shown.
pub(super) const MAX_LIFE: Duration = Duration::from_secs(1_000_000_000);

/// The longest access token and refresh token that are kept. Requests carry the one, and the vault is written as a whole.
pub(super) const MAX_TOKEN: usize = 16 * 1024;

/// The most bytes of granted scopes that are kept.
const MAX_SCOPES: usize = 16 * 1024;

/// What discovery found: an authorization server, its metadata, and the resource it protects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Discovery {
    /// The resource that the access token is for (RFC 8707).
    pub(crate) resource: String,
    pub(crate) issuer: String,
    /// The authorization server's metadata, as published.
    pub(crate) metadata: serde_json::Map<String, serde_json::Value>,
    /// The protected resource's metadata (RFC 9728), if it publishes any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource_metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// The scopes that the challenge asked for, else those in the resource's metadata.
    pub(crate) scopes: Vec<String>,
}

/// The client that Bowline is at an authorization server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientIdentity {
    pub(crate) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Secret>,
    /// How the client authenticates, if the registration says so; else the authorization server's metadata
    /// decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) authentication: Option<Authentication>,
    pub(crate) redirect_uri: String,
}

/// How a client authenticates at the token endpoint (RFC 7591, 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Authentication {
    ClientSecretBasic,
    ClientSecretPost,
    /// A public client, without authentication.
    None,
}

/// A token endpoint's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) access_token: Secret,
    pub(crate) refresh_token: Option<Secret>,
    pub(crate) expires_in: Option<Duration>,
    /// The granted scopes; empty if the response does not name them.
    pub(crate) scopes: Vec<String>,
}

/// What a sign-in brought: tokens, who issued them, and to which client.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    pub(crate) discovery: Discovery,
    pub(crate) client: ClientIdentity,
    pub(crate) tokens: Tokens,
}

/// What a grant is stored under.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct GrantKey {
    /// The caller's identity; empty for the local caller, because no configured caller has an empty name.
    pub(crate) caller: String,
    pub(crate) issuer: String,
    pub(crate) resource: String,
    pub(crate) client_id: String,
}

/// What a caller was granted at a resource, with the tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) caller: String,
    #[serde(rename = "found")]
    pub(crate) discovery: Discovery,
    pub(crate) client: ClientIdentity,
    pub(crate) access_token: Secret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refresh_token: Option<Secret>,
    /// The granted scopes, as far as they are known.
    pub(crate) scopes: Vec<String>,
    /// When the access token was issued and when it expires, in seconds since 1970, by the clock of the
    /// gateway that got it. If another gateway's clock is wrong, the server refuses the token and it is
    /// refreshed.
    pub(crate) obtained: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<i64>,
    /// The number of the sign-in. A new sign-in raises it, because it may be for another account; a refresh
    /// does not. It is at least the Unix time, so that it rises even if the last number was lost.
    pub(crate) sign_in: u64,
    /// How often the tokens were refreshed since that sign-in.
    pub(crate) refreshes: u64,
}

/// Something that was issued is too long to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the authorization server issued {what} of more than {limit} bytes, which Bowline does not keep; have it put \
     fewer claims or scopes into its tokens"
)]
pub(crate) struct TooLong {
    what: &'static str,
    limit: usize,
}

// === impl Tokens ===

impl Tokens {
    /// Checks that they are not too long to be kept.
    pub(super) fn check(self) -> Result<Self, TooLong> {
        let refresh = self.refresh_token.as_ref().map(Secret::expose);
        let scopes: usize = self.scopes.iter().map(|scope| scope.len() + 1).sum();
        for (what, length, limit) in [
            (
                "an access token",
                self.access_token.expose().len(),
                MAX_TOKEN,
            ),
            ("a refresh token", refresh.map_or(0, str::len), MAX_TOKEN),
            ("scopes", scopes, MAX_SCOPES),
        ] {
            if length > limit {
                return Err(TooLong { what, limit });
            }
        }
        Ok(self)
    }
}

// === impl ClientIdentity ===

impl ClientIdentity {
    /// A client that authenticates in the way that the authorization server publishes.
    pub(crate) fn new(id: &str, secret: Option<Secret>, redirect_uri: &str) -> Self {
        Self {
            id: id.to_owned(),
            secret,
            authentication: None,
            redirect_uri: redirect_uri.to_owned(),
        }
    }
}

// === impl Grant ===

impl Grant {
    /// The grant of a new sign-in, made at `now`.
    pub(crate) fn new(caller: &str, credentials: Credentials, sign_in: u64, now: i64) -> Self {
        let Credentials {
            discovery,
            client,
            tokens,
        } = credentials;
        Self {
            caller: caller.to_owned(),
            discovery,
            client,
            expires: expiry(&tokens, now),
            access_token: tokens.access_token,
            refresh_token: tokens.refresh_token,
            scopes: tokens.scopes,
            obtained: now,
            sign_in,
            refreshes: 0,
        }
    }

    /// The same grant after a refresh at `now`. What the response does not mention stays.
    pub(crate) fn renewed(&self, tokens: Tokens, now: i64) -> Self {
        let scopes = match tokens.scopes.is_empty() {
            true => self.scopes.clone(),
            false => tokens.scopes.clone(),
        };
        Self {
            expires: expiry(&tokens, now),
            access_token: tokens.access_token,
            refresh_token: tokens.refresh_token.or_else(|| self.refresh_token.clone()),
            scopes,
            obtained: now,
            refreshes: self.refreshes + 1,
            ..self.clone()
        }
    }

    /// Whether this grant is older than another of the same key. A vault may be restored from a backup; a
    /// grant must not go back.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        (self.sign_in, self.refreshes) < (other.sign_in, other.refreshes)
    }

    pub(crate) fn key(&self) -> GrantKey {
        GrantKey {
            caller: self.caller.clone(),
            issuer: self.discovery.issuer.clone(),
            resource: self.discovery.resource.clone(),
            client_id: self.client.id.clone(),
        }
    }
}

fn expiry(tokens: &Tokens, now: i64) -> Option<i64> {
    let life = tokens.expires_in?.min(MAX_LIFE).as_secs();
    Some(now.saturating_add(i64::try_from(life).unwrap_or(i64::MAX)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::oauth) fn credentials(tokens: Tokens) -> Credentials {
        let discovery = Discovery {
            resource: "https://mcp.example/mcp".to_owned(),
            issuer: "https://login.example".to_owned(),
            metadata: serde_json::Map::new(),
            resource_metadata: None,
            scopes: vec!["files".to_owned()],
        };
        let client = ClientIdentity {
            id: "bowline".to_owned(),
            secret: Some(Secret::new("client-secret")),
            authentication: None,
            redirect_uri: "http://127.0.0.1/callback".to_owned(),
        };
        Credentials {
            discovery,
            client,
            tokens,
        }
    }

    pub(in crate::oauth) fn tokens(
        access: &str,
        refresh: Option<&str>,
        life: Option<u64>,
    ) -> Tokens {
        Tokens {
            access_token: Secret::new(access),
            refresh_token: refresh.map(Secret::new),
            expires_in: life.map(Duration::from_secs),
            scopes: Vec::new(),
        }
    }

    pub(in crate::oauth) fn grant(access: &str, refresh: Option<&str>) -> Grant {
        Grant::new(
            "alice",
            credentials(tokens(access, refresh, Some(3600))),
            1,
            1000,
        )
    }

    #[test]
    fn a_refresh_keeps_what_its_answer_does_not_mention() {
        let mut first = grant("one", Some("refresh-one"));
        first.scopes = vec!["files".to_owned()];
        let second = first.renewed(tokens("two", None, None), 2000);
        let expected = Grant {
            access_token: Secret::new("two"),
            obtained: 2000,
            expires: None,
            refreshes: 1,
            ..first.clone()
        };
        assert_eq!(second, expected);
        assert!(first.is_before(&second) && !second.is_before(&first));
        let mut answer = tokens("three", Some("refresh-three"), Some(u64::MAX));
        answer.scopes = vec!["files".to_owned(), "mail".to_owned()];
        let third = second.renewed(answer, 3000);
        assert_eq!(third.refresh_token, Some(Secret::new("refresh-three")));
        assert_eq!(third.expires, Some(3000 + 1_000_000_000));
        assert_eq!(third.scopes, ["files", "mail"]);
        assert_eq!((third.sign_in, third.key()), (1, first.key()));
    }

    #[test]
    fn its_debug_output_shows_no_secret() {
        let shown = format!("{:#?}", grant("access-secret", Some("refresh-secret")));
        for secret in ["access-secret", "refresh-secret", "client-secret"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(shown.contains("alice"));
    }

    #[test]
    fn it_survives_being_written() {
        for grant in [grant("one", Some("refresh")), grant("one", None)] {
            let written = serde_json::to_vec(&grant).unwrap();
            assert_eq!(serde_json::from_slice::<Grant>(&written).unwrap(), grant);
        }
    }

    /// A vault outlives the names in the code.
    #[test]
    fn what_is_stored_keeps_its_names() {
        let written = serde_json::to_value(grant("one", Some("refresh"))).unwrap();
        let names: Vec<_> = written.as_object().unwrap().keys().collect();
        assert_eq!(
            names,
            [
                "access_token",
                "caller",
                "client",
                "expires",
                "found",
                "obtained",
                "refresh_token",
                "refreshes",
                "scopes",
                "sign_in"
            ]
        );
    }
}
