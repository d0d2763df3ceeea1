//! Who sends a request: its bearer key says so, or the certificate of its connection.
//!
//! Where callers are configured every request needs the key or the certificate of one of them; there is no other
//! way in to fall back on. Both are known by their hashes only. A key is sent on purpose, so a wrong one is refused
//! whatever the certificate says. A certificate may be sent by a program that has one for other purposes, so an
//! unknown one beside a good key counts for nothing. Where no callers are configured everybody who can reach the
//! listener is the one local caller.

use std::sync::Arc;

use bowline_system::clock;
use http::request::Parts;
use http::{HeaderMap, header};

use crate::caller::{Caller, ClientCertificate};
use crate::callers::{Callers, Known};
use crate::config::ListenAddress;
use crate::fault::Fault;

/// Who sent a request. The certificate of its connection, if it has one, is among its extensions.
pub(crate) fn identify(callers: &Callers, head: &Parts) -> Result<Caller, Fault> {
    let known = callers.now();
    if known.is_empty() {
        return Ok(Caller::Local);
    }
    let certificate = head.extensions.get::<Arc<ClientCertificate>>();
    let certificate = certificate.map(|certificate| by_certificate(&known, certificate));
    if !head.headers.contains_key(header::AUTHORIZATION) {
        return match certificate {
            Some(by_certificate) => by_certificate.cloned(),
            None if known.have_certificates() => Err(Fault::KeyOrCertificate),
            None => Err(Fault::Unauthorized),
        };
    }
    let key = bearer_key(&head.headers);
    let by_key = key.and_then(|key| known.by_key(key));
    let by_key = by_key.ok_or(Fault::Unauthorized)?;
    match certificate {
        Some(Ok(other)) if other != by_key => Err(Fault::TwoCallers),
        _ => Ok(by_key.clone()),
    }
}

/// The handshake has proved that the client has the key of this certificate.
fn by_certificate<'a>(known: &'a Known, shown: &ClientCertificate) -> Result<&'a Caller, Fault> {
    let caller = known.by_certificate(shown.hash);
    let caller = caller.ok_or(Fault::UnknownCertificate(shown.hash))?;
    let (validity, now) = (shown.validity, clock::unix_seconds());
    if now < validity.not_before {
        return Err(Fault::CertificateNotYetValid);
    }
    if now > validity.not_after {
        return Err(Fault::CertificateExpired);
    }
    Ok(caller)
}

/// Whether anybody on the network may use a gateway that listens here.
pub(crate) fn is_open_at(callers: &Callers, listen: &ListenAddress) -> bool {
    callers.now().is_empty() && !listen.is_local()
}

/// The key in `Authorization: Bearer KEY`. Two such headers could be two readers' two callers, so
/// there must be one.
pub(crate) fn bearer_key(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, rest) = value.as_bytes().split_at_checked(b"Bearer".len())?;
    let key = rest.trim_ascii_start();
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer") && key.len() < rest.len();
    (is_bearer && !key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bowline_wire::certificate::Validity;
    use http::HeaderValue;

    use super::*;
    use crate::caller::KeyPrint;
    use crate::config::{self, CallerName, CertificateHash, KeyHash};

    fn configured(callers: &[(&str, &str)]) -> BTreeMap<CallerName, config::Caller> {
        let hash = |key: &str| KeyHash::of(key.as_bytes());
        let callers = callers
            .iter()
            .map(|(name, key)| (name.parse().unwrap(), config::Caller::with_key(hash(key))));
        callers.collect()
    }

    fn head(authorization: &[&str], certificate: Option<&ClientCertificate>) -> Parts {
        let (mut head, ()) = http::Request::new(()).into_parts();
        for value in authorization {
            head.headers.append(
                header::AUTHORIZATION,
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        if let Some(certificate) = certificate {
            head.extensions.insert(Arc::new(certificate.clone()));
        }
        head
    }

    fn who(callers: &Callers, authorization: &[&str]) -> Option<Caller> {
        identify(callers, &head(authorization, None)).ok()
    }

    fn named(name: &str, key: &str) -> Option<Caller> {
        let caller = config::Caller::with_key(KeyHash::of(key.as_bytes()));
        let print = KeyPrint::of_caller(&caller);
        Some(Caller::Named(name.parse().unwrap(), print))
    }

    #[test]
    fn a_key_names_its_caller() {
        let callers = Callers::new(&configured(&[("ann", "k-ann"), ("bob", "k-bob")]));
        for good in ["Bearer k-ann", "bearer k-ann", "BEARER   k-ann"] {
            assert_eq!(who(&callers, &[good]), named("ann", "k-ann"), "{good}");
        }
        assert_eq!(who(&callers, &["Bearer k-bob"]), named("bob", "k-bob"));
    }

    #[test]
    fn anything_else_names_nobody() {
        let callers = Callers::new(&configured(&[("ann", "k-ann"), ("bob", "k-bob")]));
        for bad in [
            &[][..],
            &[""],
            &["k-ann"],
            &["Bearer"],
            &["Bearer "],
            &["Bearerk-ann"],
            &["Bearer k-annx"],
            &["Bearer k-an"],
            &["Bearer K-ANN"],
            &["Bearer k-ann k-ann"],
            &["Bearer ann"],
            &["Basic k-ann"],
            &["Basic Bearer k-ann"],
            &["Bearer\u{e9} k-ann"],
            &["Bearer k-ann", "Bearer k-ann"],
            &["Bearer k-ann", "Bearer k-bob"],
            &["Bearer k-ann", "Basic x"],
        ] {
            assert_eq!(who(&callers, bad), None, "{bad:?}");
        }
    }

    /// A certificate that is valid from so many seconds before now to so many after.
    fn certificate(name: &str, before: i64, after: i64) -> ClientCertificate {
        let now = clock::unix_seconds();
        ClientCertificate {
            hash: CertificateHash::of(name.as_bytes()),
            validity: Validity {
                not_before: now - before,
                not_after: now + after,
            },
        }
    }

    #[test]
    fn a_certificate_names_its_caller_beside_a_key_or_without_one() {
        let mut callers = configured(&[("ann", "k-ann"), ("bob", "k-bob")]);
        let hash = |name: &str| CertificateHash::of(name.as_bytes());
        let by_certificate = config::Caller::with_certificates(vec![hash("old"), hash("new")]);
        callers.insert("eve".parse().unwrap(), by_certificate);
        let ann = callers.get_mut("ann").unwrap();
        ann.certificates = vec![hash("ann")];
        let callers = Callers::new(&callers);
        let (ann, new, old) = (
            certificate("ann", 9, 9),
            certificate("new", 9, 9),
            certificate("old", 9, -1),
        );
        let early = certificate("new", -9, 99);
        let stranger = certificate("stranger", 9, 9);
        let who = |keys: &[&str], certificate| {
            let caller = identify(&callers, &head(keys, certificate));
            caller
                .map(|caller| caller.name().unwrap().to_owned())
                .map_err(|fault| fault.row().name)
        };
        let name = |name: &str| Ok(name.to_owned());
        let good = "Bearer k-ann";
        assert_eq!(who(&[], Some(&ann)), name("ann"));
        assert_eq!(who(&[], Some(&new)), name("eve"));
        assert_eq!(who(&[good], Some(&ann)), name("ann"));
        assert_eq!(who(&[good], None), name("ann"));
        // What a program shows without being asked does not spoil a key.
        assert_eq!(who(&[good], Some(&stranger)), name("ann"));
        assert_eq!(who(&[good], Some(&old)), name("ann"));
        // A key is shown on purpose.
        assert_eq!(who(&["Bearer wrong"], Some(&ann)), Err("unauthorized"));
        assert_eq!(who(&["Basic x"], Some(&ann)), Err("unauthorized"));
        assert_eq!(who(&[good, good], Some(&ann)), Err("unauthorized"));
        assert_eq!(who(&["Bearer k-bob"], Some(&ann)), Err("two_callers"));
        assert_eq!(who(&[], Some(&stranger)), Err("unknown_certificate"));
        assert_eq!(who(&[], Some(&old)), Err("certificate_expired"));
        assert_eq!(who(&[], Some(&early)), Err("certificate_not_yet_valid"));
        assert_eq!(who(&[], None), Err("unauthorized"));
        // Both of its certificates are one caller, and so are key and certificate.
        let renewed = certificate("old", 9, 9);
        let full =
            |keys: &[&str], certificate| identify(&callers, &head(keys, certificate)).unwrap();
        assert_eq!(full(&[], Some(&new)), full(&[], Some(&renewed)));
        assert_eq!(full(&[], Some(&ann)), full(&[good], None));
    }

    #[test]
    fn without_callers_everybody_is_the_local_one() {
        let callers = Callers::new(&configured(&[]));
        for any in [&[][..], &["Bearer x"], &["nonsense", "twice"]] {
            assert_eq!(who(&callers, any), Some(Caller::Local));
        }
    }

    #[test]
    fn callers_that_were_replaced_are_strangers() {
        let callers = Callers::new(&configured(&[("ann", "k-ann"), ("bob", "k-bob")]));
        callers.replace(&configured(&[("bob", "new")]));
        for gone in ["Bearer k-ann", "Bearer k-bob"] {
            assert_eq!(who(&callers, &[gone]), None);
        }
        assert_eq!(who(&callers, &["Bearer new"]), named("bob", "new"));
    }

    #[test]
    fn a_listener_that_others_reach_needs_callers() {
        let open = |listen: &str, callers: &[(&str, &str)]| {
            is_open_at(
                &Callers::new(&configured(callers)),
                &listen.parse().unwrap(),
            )
        };
        assert!(open("0.0.0.0:6270", &[]));
        assert!(open("[::]:6270", &[]));
        assert!(open("10.0.0.1:6270", &[]));
        assert!(!open("127.0.0.1:6270", &[]));
        assert!(!open("[::1]:6270", &[]));
        assert!(!open("unix:/run/bowline.sock", &[]));
        assert!(!open("0.0.0.0:6270", &[("ann", "k")]));
    }
}
