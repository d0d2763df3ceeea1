//! How Bowline authenticates as a client.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::HeaderValue;
use url::{Host, Url, form_urlencoded};

use super::super::discovery::strings;
use super::super::grant::{Authentication, ClientIdentity, Discovery};
use super::super::secret::Secret;

pub(super) const METHODS: &str = "token_endpoint_auth_methods_supported";

/// The client's secret and how it is sent, if the client authenticates with one.
pub(super) fn shown_secret<'a>(
    discovery: &Discovery,
    client: &'a ClientIdentity,
) -> Option<(&'a Secret, Authentication)> {
    let secret = client.secret.as_ref()?;
    let supported = strings(&discovery.metadata, METHODS);
    let supports = |method| supported.iter().any(|known| known == method);
    let method = match client.authentication {
        Some(agreed) => agreed,
        None if supports("client_secret_basic") => Authentication::ClientSecretBasic,
        None if supports("client_secret_post") => Authentication::ClientSecretPost,
        None if supports("none") => Authentication::None,
        // The default if nothing is published (RFC 8414, 2).
        None => Authentication::ClientSecretBasic,
    };
    (method != Authentication::None).then_some((secret, method))
}

/// The value of `Authorization` for a client with a secret (RFC 6749, 2.3.1).
pub(super) fn basic(id: &str, secret: &Secret) -> HeaderValue {
    let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encode(id), encode(secret.expose()));
    let value = format!("Basic {}", BASE64_STANDARD.encode(pair));
    let mut value =
        HeaderValue::try_from(value).unwrap_or_else(|_| HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}

/// A redirect URI on this machine, or with a scheme of an app, makes a native client.
pub(super) fn application_type(redirect_uri: &str) -> &'static str {
    let Ok(url) = Url::parse(redirect_uri) else {
        return "web";
    };
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match is_loopback || !matches!(url.scheme(), "http" | "https") {
        true => "native",
        false => "web",
    }
}
