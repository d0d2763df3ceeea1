//! The challenge in a server's `WWW-Authenticate` header.
//!
//! A header can hold several challenges, and there can be several headers; a comma separates challenges as
//! well as the parameters of one (RFC 9110, 11.6.1). So this is a parser, and not a search for a name, which
//! would also match inside quotes.

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;
use serde::{Deserialize, Serialize};

const SPACE: [char; 2] = [' ', '\t'];

/// A server's challenge for a bearer token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Challenge {
    /// The URL of the protected resource metadata (RFC 9728, 5.1).
    pub(crate) resource_metadata: Option<String>,
    /// The scopes that the request needs; each once, in the server's order.
    pub(crate) scopes: Vec<String>,
    /// What was wrong with the token that was sent (RFC 6750, 3.1).
    pub(crate) error: Option<TokenError>,
}

/// What was wrong with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TokenError {
    /// It has expired, was revoked, or is not a token of this server.
    Invalid,
    /// It is valid, but lacks a scope for this request.
    InsufficientScope,
    /// Anything else.
    Other,
}

/// One challenge of any scheme.
struct RawChallenge<'a> {
    scheme: &'a str,
    parameters: Vec<(&'a str, String)>,
}

// === impl Challenge ===

impl Challenge {
    /// The challenge for a bearer token, if the response has one. Of several, the first that names the
    /// resource metadata.
    pub(crate) fn in_headers(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(WWW_AUTHENTICATE).iter();
        let mut bearers: Vec<Self> = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(parse)
            .filter(|challenge| challenge.scheme.eq_ignore_ascii_case("bearer"))
            .map(|challenge| Self::from(&challenge))
            .collect();
        let telling = bearers
            .iter()
            .position(|bearer| bearer.resource_metadata.is_some());
        match bearers.is_empty() {
            true => None,
            false => Some(bearers.swap_remove(telling.unwrap_or_default())),
        }
    }
}

impl From<&RawChallenge<'_>> for Challenge {
    fn from(raw: &RawChallenge<'_>) -> Self {
        Self {
            resource_metadata: raw.get("resource_metadata").map(str::to_owned),
            scopes: split_scopes(raw.get("scope").unwrap_or_default()),
            error: raw.get("error").map(|code| match code {
                "invalid_token" => TokenError::Invalid,
                "insufficient_scope" => TokenError::InsufficientScope,
                _ => TokenError::Other,
            }),
        }
    }
}

/// The scopes of a list, each once, in their order.
pub(super) fn split_scopes(list: &str) -> Vec<String> {
    let mut scopes: Vec<String> = Vec::new();
    for scope in list.split_ascii_whitespace() {
        if !scopes.iter().any(|known| known == scope) {
            scopes.push(scope.to_owned());
        }
    }
    scopes
}

// === impl RawChallenge ===

impl RawChallenge<'_> {
    /// A parameter, the first of its name.
    fn get(&self, name: &str) -> Option<&str> {
        let found = self
            .parameters
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// All challenges of one header, up to the first syntax error.
fn parse(header: &str) -> Vec<RawChallenge<'_>> {
    let mut challenges: Vec<RawChallenge<'_>> = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let Some((name, after)) = take_token(rest) else {
            return challenges;
        };
        let Some(value) = after.trim_start_matches(SPACE).strip_prefix('=') else {
            challenges.push(RawChallenge {
                scheme: name,
                parameters: Vec::new(),
            });
            rest = skip_token68(after);
            continue;
        };
        let Some((value, after)) = take_value(value.trim_start_matches(SPACE)) else {
            return challenges;
        };
        // Without a challenge before it, the parameter is ignored.
        if let Some(challenge) = challenges.last_mut() {
            challenge.parameters.push((name, value));
        }
        rest = after;
    }
}

/// A token (RFC 9110, 5.6.2) and what follows it.
fn take_token(text: &str) -> Option<(&str, &str)> {
    let is_of_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let end = text.find(|c| !is_of_token(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// A parameter's value. URLs are not tokens, but some servers send them without quotes.
fn take_value(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        return take_quoted(quoted);
    }
    let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].to_owned(), &text[end..]))
}

fn take_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            _ => value.push(character),
        }
    }
    // The quote never ends: the rest cannot be parsed.
    None
}

/// The rest after a scheme's token68 (`Negotiate abc==`), if there is one.
fn skip_token68(text: &str) -> &str {
    let lump = text.trim_start_matches(SPACE);
    let is_of_lump = |c: char| c.is_ascii_alphanumeric() || "-._~+/".contains(c);
    let end = lump.find(|c| !is_of_lump(c)).unwrap_or(lump.len());
    let after = lump[end..].trim_start_matches('=');
    let ends_here = after.trim_start_matches(SPACE);
    match end > 0 && (ends_here.is_empty() || ends_here.starts_with(',')) {
        true => after,
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn challenge(values: &[&str]) -> Option<Challenge> {
        let headers = values.iter().map(|value| {
            let value = HeaderValue::from_str(value).unwrap();
            (WWW_AUTHENTICATE, value)
        });
        Challenge::in_headers(&headers.collect())
    }

    fn metadata(value: &str) -> Option<String> {
        challenge(&[value])?.resource_metadata
    }

    #[test]
    fn all_that_a_server_says() {
        let said = challenge(&[
            r#"Bearer realm="mcp", error="insufficient_scope", scope="a b a  c", resource_metadata="https://h/p", error_description="no, \"really\"""#,
        ]);
        assert_eq!(
            said,
            Some(Challenge {
                resource_metadata: Some("https://h/p".to_owned()),
                scopes: vec!["a".to_owned(), "b".to_owned(), "c".to_owned()],
                error: Some(TokenError::InsufficientScope),
            })
        );
        let expired = challenge(&[r#"Bearer error="invalid_token""#]).unwrap();
        assert_eq!(expired.error, Some(TokenError::Invalid));
        let strange = challenge(&[r#"Bearer error="invalid_request""#]).unwrap();
        assert_eq!(strange.error, Some(TokenError::Other));
    }

    #[test]
    fn a_bearer_challenge_may_say_nothing() {
        for bare in [
            "Bearer",
            "bearer ",
            "Bearer,",
            "Basic, Bearer",
            "Bearer abc==",
        ] {
            assert_eq!(challenge(&[bare]), Some(Challenge::default()), "{bare}");
        }
    }

    #[test]
    fn case_and_space_make_no_difference() {
        for said in [
            r#"BEARER Resource_Metadata="https://h/p""#,
            r#"bearer resource_metadata = "https://h/p""#,
            "Bearer resource_metadata=https://h/p",
            "Bearer\tresource_metadata=https://h/p ,scope=a",
            r#",, Bearer , ,resource_metadata="https://h/p","#,
        ] {
            assert_eq!(metadata(said).as_deref(), Some("https://h/p"), "{said}");
        }
        let with_query = metadata("Bearer resource_metadata=https://h/p?a=b, scope=a");
        assert_eq!(with_query.as_deref(), Some("https://h/p?a=b"));
    }

    #[test]
    fn parameters_belong_to_their_own_challenge() {
        for said in [
            r#"Basic realm="a", resource_metadata="https://evil/", Bearer resource_metadata="https://h/p""#,
            r#"Bearer resource_metadata="https://h/p", DPoP algs="ES256", resource_metadata="https://evil/""#,
            r#"Negotiate YWJj==, Bearer resource_metadata="https://h/p""#,
            r#"Negotiate, Bearer resource_metadata="https://h/p", Basic realm="b""#,
            r#"resource_metadata="https://evil/", Bearer resource_metadata="https://h/p""#,
            r#"Bearer resource_metadata="https://h/p", resource_metadata="https://evil/""#,
        ] {
            assert_eq!(metadata(said).as_deref(), Some("https://h/p"), "{said}");
        }
        assert_eq!(challenge(&[r#"Basic realm="Bearer scope=x""#]), None);
        assert_eq!(challenge(&[]), None);
    }

    #[test]
    fn nothing_inside_quotes_is_a_parameter() {
        let said = r#"Bearer realm="x, resource_metadata=https://evil/ \", scope=\"y", scope="a""#;
        let said = challenge(&[said]).unwrap();
        assert_eq!(said.resource_metadata, None);
        assert_eq!(said.scopes, ["a"]);
    }

    #[test]
    fn what_makes_no_sense_ends_it() {
        assert_eq!(challenge(&[r#"Basic bearer="never ends"#]), None);
        let said = r#"Bearer scope="a", resource_metadata="https://h/p"#;
        let said = challenge(&[said]).unwrap();
        assert_eq!((said.scopes.len(), said.resource_metadata), (1, None));
        let escape = challenge(&["Bearer scope=\"a\\"]).unwrap();
        assert_eq!(escape, Challenge::default());
    }

    proptest::proptest! {
        #[test]
        fn no_header_is_too_strange(header in "[ -~\t]{0,80}") {
            for challenge in parse(&header) {
                assert!(!challenge.scheme.is_empty());
            }
        }
    }

    #[test]
    fn of_several_the_one_that_tells_more() {
        let said = challenge(&[
            r#"Basic realm="x""#,
            r#"Bearer scope="a""#,
            r#"Digest qop="auth", Bearer scope="b", resource_metadata="https://h/p""#,
        ]);
        assert_eq!(said.unwrap().scopes, ["b"]);
        let silent = challenge(&[r#"Bearer scope="a""#, r#"Bearer scope="b""#]);
        assert_eq!(silent.unwrap().scopes, ["a"]);
    }
}
