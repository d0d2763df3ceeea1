//! Why an authorization server did not do what Bowline asked of it.

use http::StatusCode;
use thiserror::Error;

use super::grant::TooLong;
use bowline_egress::FetchError;

/// Why a request to an authorization server failed. A variant contains nothing of a response but a standard
/// error code, because a response can contain secrets.
#[derive(Debug, Error)]
pub(crate) enum AuthServerError {
    #[error("the authorization server cannot be reached: {0}")]
    Unreachable(#[from] FetchError),
    /// A temporary error.
    #[error("the authorization server answered {0}")]
    Unavailable(StatusCode),
    #[error("the server publishes no OAuth metadata")]
    NoSupport,
    #[error("the server's OAuth metadata describes another resource")]
    ResourceMismatch,
    #[error("the issuer is not the authorization server that was expected")]
    IssuerMismatch,
    #[error("the server names another authorization server than the configured `issuer`")]
    AnotherIssuer,
    /// This endpoint.
    #[error(
        "the authorization server's {0} is at another origin than its issuer; `endpoints_elsewhere` \
         in the server's `oauth` can allow it"
    )]
    Elsewhere(&'static str),
    #[error("the authorization server does not support PKCE with S256")]
    NoS256,
    #[error(
        "the authorization server does not list its PKCE methods (`code_challenge_methods_supported`); \
         if it supports S256, `unlisted_pkce` in the server's `oauth` can allow it"
    )]
    UnlistedPkce,
    #[error("the authorization server registers no clients; configure a client id for this server")]
    NoRegistration,
    #[error("the authorization server refused to register a client: {0}")]
    RegistrationRefused(&'static str),
    /// This part of its answer is too long.
    #[error(
        "the authorization server registered a client with a {what} of more than {limit} bytes; it \
         was not accepted"
    )]
    RegistrationTooLarge { what: &'static str, limit: usize },
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error("the server's OAuth metadata has more than {limit} bytes, which Bowline does not keep")]
    DocumentTooLarge { limit: usize },
    /// `invalid_grant`: the code or the refresh token is expired, used or revoked.
    #[error("the authorization server rejected the grant")]
    Rejected,
    /// `invalid_client` or `unauthorized_client`: the registered client is not known any more, or the
    /// configured client is wrong.
    #[error(
        "the authorization server rejected the client ({0}); if Bowline registered it, the next \
         sign-in registers a new one"
    )]
    ClientRefused(&'static str),
    #[error("the authorization server refused: {0}")]
    Denied(&'static str),
    #[error("the authorization server's {0} is malformed")]
    Malformed(&'static str),
}
