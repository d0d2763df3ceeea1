//! What a sign-in leaves behind: who was granted what, by whom, and the tokens that say so.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::secret::Secret;

/// What an authorization server publishes, and for which resource it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Discovered {
    /// What the access token is for (RFC 8707).
    pub(crate) resource: String,
    pub(crate) issuer: String,
    /// The authorization server's document, as published.
    pub(crate) metadata: serde_json::Map<String, serde_json::Value>,
    /// The resource's own document (RFC 9728), if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource_metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// What the challenge asked for, else what the resource's document names.
    pub(crate) scopes: Vec<String>,
}

/// Who Bowline is at an authorization server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientIdentity {
    pub(crate) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Secret>,
    /// How it shows its secret, where that was agreed on; else what the authorization server
    /// publishes decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) authentication: Option<Authentication>,
    pub(crate) redirect_uri: String,
}

/// How a client shows who it is at the token endpoint (RFC 7591, 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Authentication {
    ClientSecretBasic,
    ClientSecretPost,
    /// Not at all: a public client.
    None,
}

/// What a token endpoint answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) access_token: Secret,
    pub(crate) refresh_token: Option<Secret>,
    pub(crate) expires_in: Option<Duration>,
    /// What was granted; empty where the answer does not say.
    pub(crate) scopes: Vec<String>,
}

/// What a grant is kept under.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct GrantKey {
    /// The caller's name; empty for the local one, which no configured caller can be called.
    pub(crate) caller: String,
    pub(crate) issuer: String,
    pub(crate) resource: String,
    pub(crate) client_id: String,
}

/// What a caller was granted at a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) caller: String,
    pub(crate) found: Discovered,
    pub(crate) client: ClientIdentity,
    pub(crate) access_token: Secret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refresh_token: Option<Secret>,
    /// What was granted, as far as it is known.
    pub(crate) scopes: Vec<String>,
    /// When the access token came and when it ends, in seconds since 1970. By the clock of the
    /// gateway that got it: where another's is wrong, the server refuses and the token is renewed.
    pub(crate) obtained: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<i64>,
    /// Raised by a new sign-in, which may be another account's, and not by a refresh. Not below the
    /// date, so that it rises even where the last one was forgotten.
    pub(crate) sign_in: u64,
    /// How often it was refreshed since.
    pub(crate) refreshes: u64,
}

// === impl Grant ===

impl Grant {
    /// The grant of a new sign-in, made at `now`.
    pub(crate) fn new(
        caller: &str,
        (found, client): (Discovered, ClientIdentity),
        tokens: Tokens,
        sign_in: u64,
        now: i64,
    ) -> Self {
        Self {
            caller: caller.to_owned(),
            found,
            client,
            expires: end(&tokens, now),
            access_token: tokens.access_token,
            refresh_token: tokens.refresh_token,
            scopes: tokens.scopes,
            obtained: now,
            sign_in,
            refreshes: 0,
        }
    }

    /// The same grant after a refresh at `now`. What the answer does not mention stays.
    pub(crate) fn renewed(&self, tokens: Tokens, now: i64) -> Self {
        let scopes = match tokens.scopes.is_empty() {
            true => self.scopes.clone(),
            false => tokens.scopes.clone(),
        };
        Self {
            expires: end(&tokens, now),
            access_token: tokens.access_token,
            refresh_token: tokens.refresh_token.or_else(|| self.refresh_token.clone()),
            scopes,
            obtained: now,
            refreshes: self.refreshes + 1,
            ..self.clone()
        }
    }

    /// Whether it came before another of the same key. A vault may be put back to what it was; a
    /// grant is not.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        (self.sign_in, self.refreshes) < (other.sign_in, other.refreshes)
    }

    pub(crate) fn key(&self) -> GrantKey {
        GrantKey {
            caller: self.caller.clone(),
            issuer: self.found.issuer.clone(),
            resource: self.found.resource.clone(),
            client_id: self.client.id.clone(),
        }
    }
}

fn end(tokens: &Tokens, now: i64) -> Option<i64> {
    let life = tokens.expires_in?.as_secs();
    Some(now.saturating_add(i64::try_from(life).unwrap_or(i64::MAX)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::oauth) fn found() -> (Discovered, ClientIdentity) {
        let found = Discovered {
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
        (found, client)
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
            found(),
            tokens(access, refresh, Some(3600)),
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
        assert_eq!(third.expires, Some(i64::MAX));
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
}
