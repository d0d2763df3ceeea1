//! Loops: a server whose address leads back to this gateway.
//!
//! Every `initialize` that is passed on says by which gateways (`Via`, RFC 9110), so a way that leads back
//! here over others is seen, too. Of a client's own `Via` nothing else is passed on. Other requests cannot
//! go in circles: they need a session, which is opened by `initialize`.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use http::header::VIA;
use http::{HeaderMap, HeaderValue};

/// What all such names begin with, and how many digits follow.
const PREFIX: &str = "bowline-";
const DIGITS: usize = 16;

/// What a gateway calls itself on the way of a request. Random, because several gateways in a row are fine
/// and only the same one is a loop.
#[derive(Debug)]
pub(crate) struct Pseudonym {
    name: Box<str>,
    /// The `Via` of a request that no other gateway passed on.
    alone: Option<HeaderValue>,
}

impl Pseudonym {
    pub(crate) fn generate() -> Self {
        let random = RandomState::new().build_hasher().finish();
        let name = format!("{PREFIX}{random:0DIGITS$x}");
        Self {
            alone: HeaderValue::try_from(format!("1.1 {name}")).ok(),
            name: name.into(),
        }
    }

    /// Whether a request with these headers was passed on by this gateway before.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        gateways(headers).any(|name| *name == *self.name)
    }

    /// The gateways that passed a request with these headers on, and this one.
    pub(crate) fn after(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if !headers.contains_key(VIA) {
            return self.alone.clone();
        }
        let all = gateways(headers).chain([&*self.name]);
        let way: Vec<_> = all.map(|name| format!("1.1 {name}")).collect();
        HeaderValue::try_from(way.join(", ")).ok()
    }
}

/// The names of gateways in a request's `Via`.
fn gateways(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let ways = headers.get_all(VIA).into_iter();
    let names = ways
        .filter_map(|way| way.to_str().ok())
        .flat_map(|way| way.split([',', ' ', '\t']));
    names.filter(|name| {
        let digits = name.strip_prefix(PREFIX).unwrap_or_default();
        digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came_by(ways: &[&str]) -> HeaderMap {
        let ways = ways.iter().map(|way| (VIA, way.parse().unwrap()));
        ways.collect()
    }

    #[test]
    fn a_gateway_knows_its_own_name_wherever_it_stands() {
        let (own, other) = (Pseudonym::generate(), Pseudonym::generate());
        let mut headers = came_by(&["1.0 fred", "1.1 p.example.net (Apache/1.1)"]);
        for gateway in [&own, &other] {
            assert!(!gateway.is_in(&headers));
            let way = gateway.after(&headers).unwrap();
            headers = came_by(&[way.to_str().unwrap()]);
            assert!(gateway.is_in(&headers), "{headers:?}");
        }
        assert!(own.is_in(&headers), "{headers:?}");
        let (first, second) = (&own.name, &other.name);
        // What clients say of themselves is theirs.
        assert_eq!(headers[VIA], format!("1.1 {first}, 1.1 {second}"));
        assert!(!own.is_in(&came_by(&["1.1 bowline", "1.1 bowline-"])));
    }
}
