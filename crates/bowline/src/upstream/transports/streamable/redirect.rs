//! Redirects: the target, if it may be followed, and what is remembered of permanent ones.
//!
//! 307 and 308 mean that the request was not processed and is to be sent unchanged to the target.
//! Servers also answer 301, 302 and 303 to a POST that they have processed (post-redirect-get).

use bowline_egress::Origin;
use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode, Uri, header};

use crate::upstream::endpoints::UrlAddress;

/// The longest redirect target that is remembered.
const MAX_REMEMBERED: usize = 2 * 1024;

/// Whether a redirect says that the request was not processed.
pub(super) fn says_not_processed(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    )
}

/// The part of a permanent redirect that holds for every request to the endpoint: the target
/// without the caller's own query.
pub(super) fn for_good(
    status: StatusCode,
    from: &PathAndQuery,
    to: &PathAndQuery,
    url: &UrlAddress,
    is_anonymous: bool,
) -> Option<PathAndQuery> {
    let is_permanent = matches!(
        status,
        StatusCode::MOVED_PERMANENTLY | StatusCode::PERMANENT_REDIRECT
    );
    if !is_permanent || to.as_str().len() > MAX_REMEMBERED {
        return None;
    }
    // If the request carried a caller's query or credentials, the target may be for that caller
    // only. A target that differs only in a trailing slash is not.
    let is_spelling = from.query() == to.query()
        && from.path().trim_end_matches('/') == to.path().trim_end_matches('/');
    match (is_anonymous, is_spelling, url.target.query()) {
        (true, _, _) => Some(to.clone()),
        (false, true, None) => to.path().parse().ok(),
        (false, true, Some(query)) => format!("{}?{query}", to.path()).parse().ok(),
        (false, false, _) => None,
    }
}

/// The target of a redirect within the endpoint's own origin (scheme, host and port). Redirects to
/// other origins are for the operator to configure: following them would send cookies and
/// configured credentials to an unintended server.
pub(super) fn target(
    status: StatusCode,
    headers: &HeaderMap,
    url: &UrlAddress,
    current: &PathAndQuery,
) -> Option<PathAndQuery> {
    let leads_on = matches!(
        status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let location = headers.get(header::LOCATION)?.to_str().ok()?;
    let location = location.split('#').next().unwrap_or_default();
    if !leads_on || location.is_empty() {
        return None;
    }
    if let Some(rest) = location.strip_prefix("//") {
        let scheme = if url.origin.https { "https" } else { "http" };
        return absolute(&format!("{scheme}://{rest}"), &url.origin);
    }
    if location.starts_with('/') {
        return location.parse().ok();
    }
    if location.contains("://") {
        return absolute(location, &url.origin);
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

/// A location relative to the current path. Dot segments are left to the server, which wrote them.
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
            leg.endpoint.address.url().unwrap(),
            &current,
        )
        .map(|target| target.to_string())
    }

    #[tokio::test]
    async fn within_the_origin() {
        for status in [301, 302, 303, 307, 308] {
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
        assert_eq!(follow(304, "/b"), None);
    }

    #[tokio::test]
    async fn what_is_for_good_is_remembered_without_what_was_the_callers() {
        // An endpoint at http://127.0.0.1:9/
        let leg = Leg::idle();
        let remembered = |status: u16, from: &str, to: &str, is_anonymous| {
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            let status = StatusCode::from_u16(status).unwrap();
            for_good(
                status,
                &from,
                &to,
                leg.endpoint.address.url().unwrap(),
                is_anonymous,
            )
            .map(|to| to.to_string())
        };
        for status in [301, 308] {
            let found = remembered(status, "/", "/b?y=2", true);
            assert_eq!(found.as_deref(), Some("/b?y=2"));
        }
        for status in [302, 303, 307] {
            assert_eq!(remembered(status, "/", "/b", true), None);
        }
        let spelled = remembered(301, "/mcp?tenant=a", "/mcp/?tenant=a", false);
        assert_eq!(
            spelled.as_deref(),
            Some("/mcp/"),
            "the tenant is one caller's"
        );
        assert_eq!(remembered(301, "/mcp", "/alice/mcp", false), None);
        assert_eq!(remembered(301, "/mcp?t=a", "/mcp/?t=b", false), None);
        let long = format!("/{}", "x".repeat(MAX_REMEMBERED));
        assert_eq!(remembered(301, "/", &long, true), None);
    }
}
