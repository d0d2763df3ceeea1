//! The cookie that ties a sign-in to one browser: the one that continued from the start page.

use std::time::Duration;

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue, Uri};

use crate::oauth::{FlowId, Secret};

/// One per flow, because a browser may be in several, and cookies know no ports.
const PREFIX: &str = "bowline-sign-in-";

/// The cookie of one flow.
#[derive(Debug)]
pub(super) struct BrowserCookie {
    name: String,
    /// Its attributes besides the age.
    attributes: String,
}

impl BrowserCookie {
    /// That of a flow whose pages people reach under this URL.
    ///
    /// By https it is a `__Host-` cookie, which no other host can set, be it a sibling of the same domain.
    /// Such a one has the path `/`, also where the pages are further down. By http it goes to the pages
    /// alone. In either case the other ports of the host get it and can set it, although they are of other
    /// origins: cookies know no ports. So the cookie alone leads nobody to the state.
    pub(super) fn of(public_url: &str, id: &FlowId) -> Self {
        let id = id.as_str();
        if public_url.starts_with("https:") {
            return Self {
                name: format!("__Host-{PREFIX}{id}"),
                attributes: "Path=/; Secure; HttpOnly; SameSite=Lax".to_owned(),
            };
        }
        let url = public_url.parse::<Uri>().unwrap_or_default();
        let path = url.path().trim_end_matches('/');
        Self {
            name: format!("{PREFIX}{id}"),
            attributes: format!("Path={path}/oauth; HttpOnly; SameSite=Lax"),
        }
    }

    /// Its value in a request.
    pub(super) fn shown(&self, headers: &HeaderMap) -> Option<String> {
        let values = headers.get_all(COOKIE).iter();
        let mut pairs = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        pairs
            .find(|(known, _)| *known == self.name)
            .map(|(_, value)| value.to_owned())
    }

    /// The `Set-Cookie` header that has the browser keep it for this long.
    pub(super) fn set(&self, value: &Secret, age: Duration) -> Option<HeaderValue> {
        let (name, attributes) = (&self.name, &self.attributes);
        let age = age.as_secs();
        let cookie = format!("{name}={}; {attributes}; Max-Age={age}", value.expose());
        let mut cookie = HeaderValue::try_from(cookie).ok()?;
        cookie.set_sensitive(true);
        Some(cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(public_url: &str) -> String {
        let cookie = BrowserCookie::of(public_url, &FlowId::of("state"));
        let set = cookie.set(&Secret::new("value".to_owned()), Duration::from_secs(60));
        set.unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn by_https_no_other_host_can_set_it() {
        for url in ["https://gw.example.com", "https://gw.example.com/bowline"] {
            let set = set(url);
            assert!(set.starts_with("__Host-bowline-sign-in-"), "{set}");
            assert!(set.contains("; Path=/; Secure;"), "{set}");
            assert!(!set.contains("Domain"), "{set}");
        }
    }

    #[test]
    fn by_http_it_goes_where_the_pages_are() {
        for (url, path) in [
            ("http://127.0.0.1:6270", "; Path=/oauth;"),
            ("http://127.0.0.1/a/b", "; Path=/a/b/oauth;"),
            ("http://127.0.0.1/a/", "; Path=/a/oauth;"),
        ] {
            let set = set(url);
            assert!(set.contains(path) && !set.contains("Secure"), "{set}");
            assert!(set.starts_with("bowline-sign-in-"), "{set}");
        }
    }

    #[test]
    fn the_one_without_its_prefix_is_another() {
        let id = FlowId::of("state");
        let cookie = BrowserCookie::of("https://gw.example.com", &id);
        let name = &cookie.name;
        let mut headers = HeaderMap::new();
        let planted = format!("bowline-sign-in-{}=planted", id.as_str());
        headers.insert(COOKIE, HeaderValue::from_str(&planted).unwrap());
        assert_eq!(cookie.shown(&headers), None);
        let both = format!("{planted}; {name}=own");
        headers.insert(COOKIE, HeaderValue::from_str(&both).unwrap());
        assert_eq!(cookie.shown(&headers).as_deref(), Some("own"));
    }
}
