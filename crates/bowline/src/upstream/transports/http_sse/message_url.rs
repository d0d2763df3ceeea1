//! The URL for messages, as the `endpoint` event names it: relative or absolute, on the server's own origin.

use http::uri::PathAndQuery;
use url::Url;

use crate::upstream::endpoints::UrlAddress;
use crate::upstream::transports::error::SseError;

/// The longest URL that is accepted.
const MAX_LENGTH: usize = 8 * 1024;

/// The target that the event names, relative to the target of the GET. Another origin (scheme, host or port) is
/// refused: messages, cookies and credentials would go to a server that the operator did not name.
pub(super) fn resolve(
    named: &[u8],
    address: &UrlAddress,
    got: &PathAndQuery,
) -> Result<PathAndQuery, SseError> {
    let named = std::str::from_utf8(named).map_err(|_| SseError::BadEndpoint)?;
    let named = named.trim();
    let host = address.host.to_str().map_err(|_| SseError::BadEndpoint)?;
    let scheme = if address.origin.https {
        "https"
    } else {
        "http"
    };
    let base = Url::parse(&format!("{scheme}://{host}{got}"));
    let base = base.map_err(|_| SseError::BadEndpoint)?;
    if named.is_empty() || named.len() > MAX_LENGTH {
        return Err(SseError::BadEndpoint);
    }
    let url = base.join(named).map_err(|_| SseError::BadEndpoint)?;
    if url.origin() != base.origin() {
        return Err(SseError::OtherOrigin(
            url.origin().ascii_serialization().into(),
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(SseError::BadEndpoint);
    }
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    target.parse().map_err(|_| SseError::BadEndpoint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leg::Leg;

    fn resolved(named: &str) -> Result<String, String> {
        // An endpoint at http://127.0.0.1:9/
        let leg = Leg::idle();
        let address = leg.endpoint.address.url().unwrap();
        let got = PathAndQuery::from_static("/a/sse?key=1");
        let target = resolve(named.as_bytes(), address, &got);
        let target = target.map(|target| target.to_string());
        target.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn relative_and_absolute_within_the_origin_with_path_and_query_kept() {
        for (named, target) in [
            ("/messages?session_id=a%2Fb", "/messages?session_id=a%2Fb"),
            ("messages/?x", "/a/messages/?x"),
            ("../m", "/m"),
            ("?sessionId=1", "/a/sse?sessionId=1"),
            ("http://127.0.0.1:9/m?s=1#part", "/m?s=1"),
            ("HTTP://127.0.0.1:9/m", "/m"),
            ("//127.0.0.1:9/m", "/m"),
            (" /m\n", "/m"),
        ] {
            assert_eq!(resolved(named).as_deref(), Ok(target), "{named}");
        }
    }

    #[tokio::test]
    async fn another_origin_is_refused_by_its_name_alone() {
        for (named, origin) in [
            ("http://evil.example/m?token=secret", "http://evil.example"),
            ("https://127.0.0.1:9/m", "https://127.0.0.1:9"),
            ("http://127.0.0.1:10/m", "http://127.0.0.1:10"),
            ("//evil.example/m", "http://evil.example"),
            (
                "http://127.0.0.1:9@evil.example/secret",
                "http://evil.example",
            ),
            ("\\\\evil.example\\m", "http://evil.example"),
            ("javascript:alert(1)", "null"),
        ] {
            let error = resolved(named).unwrap_err();
            assert!(error.contains(&format!("({origin})")), "{named}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[tokio::test]
    async fn what_is_no_url_is_refused() {
        let long = format!("/{}", "x".repeat(MAX_LENGTH));
        for named in ["", " ", "http://", "http://user@127.0.0.1:9/m", &long] {
            assert!(resolved(named).is_err(), "{named}");
        }
    }
}
