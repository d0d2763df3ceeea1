//! The cookies that a server sets, without their values.

use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue};

use super::report::Cookie;
use super::trouble::shortened;

/// How many are shown.
const MAX_COOKIES: usize = 16;

/// The cookies in these headers; `sent` is the `Cookie` header of the next request.
pub(super) fn read(headers: &HeaderMap, sent: Option<&HeaderValue>) -> Vec<Cookie> {
    let sent = sent.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let names: Vec<&str> = sent.split("; ").filter_map(name).collect();
    let set = headers.get_all(SET_COOKIE).iter();
    let set = set.filter_map(|it| it.to_str().ok());
    set.filter_map(|it| {
        let mut parts = it.split(';').map(str::trim);
        let name = name(parts.next()?)?;
        Some(Cookie {
            name: shortened(name),
            attributes: parts.filter(|it| !it.is_empty()).map(shortened).collect(),
            is_sent_back: names.contains(&name),
        })
    })
    .take(MAX_COOKIES)
    .collect()
}

fn name(pair: &str) -> Option<&str> {
    let (name, _) = pair.split_once('=')?;
    Some(name.trim()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_never_read() {
        let mut headers = HeaderMap::new();
        let set = |text| HeaderValue::from_static(text);
        headers.append(SET_COOKIE, set("route=s3cret; Path=/; HttpOnly"));
        headers.append(SET_COOKIE, set("other=s3cret; Secure"));
        headers.append(SET_COOKIE, set("=s3cret"));
        headers.append(SET_COOKIE, set("s3cret"));
        let cookies = read(&headers, Some(&set("route=s3cret")));
        assert!(!format!("{cookies:?}").contains("s3cret"), "{cookies:?}");
        let [route, other] = &cookies[..] else {
            panic!("{cookies:?}")
        };
        assert_eq!((route.name.as_str(), route.is_sent_back), ("route", true));
        assert_eq!(route.attributes, ["Path=/", "HttpOnly"]);
        assert_eq!((other.name.as_str(), other.is_sent_back), ("other", false));
    }
}
