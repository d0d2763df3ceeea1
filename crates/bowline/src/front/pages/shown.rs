//! When the page that a browser returns to was shown: its form counts once a person could have read it.
//!
//! Where scripts run, the page's script looks for the mark of the start page before it sends the form, and says
//! so. Where none run, a click may have been meant for the page before: a double click that began elsewhere. So
//! the page has a stamp with its time, and a form that comes too early is refused. Any gateway can check the
//! stamp: it is signed with a secret of the flow that no page and no caller ever sees, its PKCE verifier. It
//! counts for one code, so that nobody can get it in advance.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use url::form_urlencoded;

use crate::oauth::Secret;

/// How long a page was shown at least, in milliseconds, before a button on it counts.
const MIN_SHOWN: u64 = 1000;

/// The names of the form's fields.
pub(super) const SHOWN: &str = "shown";
pub(super) const MARKED: &str = "marked";

/// A stamp for a page that is shown now, in the flow with this verifier and with this code.
pub(super) fn stamp(verifier: &Secret, code: &Secret, now: u64) -> String {
    let signature = hmac::sign(&key(verifier), &signed(code, now));
    format!("{now}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Whether a form comes from a page of this flow and code whose script has found the mark, or that a person
/// could have read.
pub(super) fn is_considered(verifier: &Secret, code: &Secret, form: &[u8], now: u64) -> bool {
    let value = |name: &str| {
        let mut fields = form_urlencoded::parse(form);
        fields.find(|(known, _)| known == name).map(|field| field.1)
    };
    let Some(stamp) = value(SHOWN) else {
        return false;
    };
    let is_old = |since: u64| now.checked_sub(since).is_some_and(|age| age >= MIN_SHOWN);
    let is_marked = value(MARKED).is_some_and(|marked| !marked.is_empty());
    since(verifier, code, &stamp).is_some_and(|since| is_marked || is_old(since))
}

/// When a page was shown, if the stamp is Bowline's own.
fn since(verifier: &Secret, code: &Secret, stamp: &str) -> Option<u64> {
    let (since, signature) = stamp.split_once('.')?;
    let since = since.parse().ok()?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    hmac::verify(&key(verifier), &signed(code, since), &signature).ok()?;
    Some(since)
}

fn key(verifier: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, verifier.expose().as_bytes())
}

fn signed(code: &Secret, since: u64) -> Vec<u8> {
    format!("return page\0{since}\0{}", code.expose()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_counts_once_its_page_could_be_read() {
        let (verifier, code) = (Secret::new("verifier"), Secret::new("code"));
        let shown = 1_000_000;
        let stamp = stamp(&verifier, &code, shown);
        let form = format!("shown={stamp}&marked=");
        let counts =
            |form: &str, code: &Secret, now| is_considered(&verifier, code, form.as_bytes(), now);
        for (age, is_one) in [(0, false), (999, false), (1000, true), (500_000, true)] {
            assert_eq!(counts(&form, &code, shown + age), is_one, "{age}");
        }
        // Another gateway's clock may be behind.
        assert!(!counts(&form, &code, shown - 10_000));
        assert!(counts(&format!("{form}1"), &code, shown));
        let later = shown + 5000;
        assert!(!counts(&form, &Secret::new("another"), later));
        let (_, signature) = stamp.split_once('.').unwrap();
        for forged in [
            String::new(),
            "marked=1".to_owned(),
            "shown=&marked=1".to_owned(),
            format!("shown={}&marked=1", shown - 1),
            format!("shown={}.{signature}&marked=1", shown - 1),
            format!("shown={shown}.&marked=1"),
        ] {
            assert!(!counts(&forged, &code, later), "{forged}");
        }
    }
}
