//! Redirects: where one leads, if it may be followed.

use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode, Uri, header};

use super::Endpoint;
use crate::egress::Origin;

/// The target of a redirect that keeps method and body and stays within the endpoint's own origin
/// (scheme, host and port). Everything else is the operator's to configure: following it would send
/// cookies and configured credentials where nobody meant them to go.
pub(super) fn target(
    status: StatusCode,
    headers: &HeaderMap,
    endpoint: &Endpoint,
    current: &PathAndQuery,
) -> Option<PathAndQuery> {
    let keeps_method = matches!(
        status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let location = headers.get(header::LOCATION)?.to_str().ok()?;
    let location = location.split('#').next().unwrap_or_default();
    if !keeps_method || location.is_empty() {
        return None;
    }
    if let Some(rest) = location.strip_prefix("//") {
        let scheme = if endpoint.origin.https {
            "https"
        } else {
            "http"
        };
        return absolute(&format!("{scheme}://{rest}"), &endpoint.origin);
    }
    if location.starts_with('/') {
        return location.parse().ok();
    }
    if location.contains("://") {
        return absolute(location, &endpoint.origin);
    }
    relative(location, current.path())
}

fn absolute(location: &str, origin: &Origin) -> Option<PathAndQuery> {
    let url: Uri = location.parse().ok()?;
    let there = Origin::of(&url);
    let is_web = matches!(url.scheme_str(), Some("http" | "https"));
    let names_user = url.authority()?.as_str().contains('@');
    if !is_web || names_user || !there.is_same(origin) {
        return None;
    }
    url.path_and_query().cloned()
}

/// A location beside the current path. Dots are left to the server, as it was the one to write them.
fn relative(location: &str, current: &str) -> Option<PathAndQuery> {
    let directory = current.rfind('/').map_or("/", |last| &current[..=last]);
    format!("{directory}{location}").parse().ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::leg::Leg;

    fn follow(status: u16, location: &str) -> Option<String> {
        // An endpoint at http://127.0.0.1:9/
        let leg = Leg::idle();
        let headers =
            HeaderMap::from_iter([(header::LOCATION, HeaderValue::from_str(location).unwrap())]);
        let current = PathAndQuery::from_static("/a/mcp?x=1");
        target(
            StatusCode::from_u16(status).unwrap(),
            &headers,
            &leg.endpoint,
            &current,
        )
        .map(|target| target.to_string())
    }

    #[tokio::test]
    async fn within_the_origin() {
        for status in [301, 302, 307, 308] {
            assert_eq!(follow(status, "/b?y=2").as_deref(), Some("/b?y=2"));
        }
        assert_eq!(follow(307, "other").as_deref(), Some("/a/other"));
        assert_eq!(
            follow(307, "http://127.0.0.1:9/b#part").as_deref(),
            Some("/b")
        );
        assert_eq!(follow(307, "//127.0.0.1:9/b").as_deref(), Some("/b"));
    }

    #[tokio::test]
    async fn nowhere_else() {
        for location in [
            "http://127.0.0.1:10/b",
            "https://127.0.0.1:9/b",
            "http://evil.example/b",
            "//evil.example/b",
            "http://user@127.0.0.1:9/b",
            "http://127.0.0.1:9@evil.example/",
            "javascript://127.0.0.1:9/b",
            "",
        ] {
            assert_eq!(follow(307, location), None, "{location}");
        }
        assert_eq!(follow(303, "/b"), None, "a GET is not what was asked");
        assert_eq!(follow(304, "/b"), None);
    }
}
