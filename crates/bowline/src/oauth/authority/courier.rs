//! Carries rmcp's requests through our own egress, and knows what came of them: rmcp tells in words
//! alone what went wrong, and words are not for programs.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Response};
use parking_lot::Mutex;
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest,
};
use serde::Deserialize;
use thiserror::Error;
use tracing::Dispatch;
use tracing::instrument::WithSubscriber as _;
use url::form_urlencoded;

use super::super::discovery::is_trouble;
use super::{AuthorityError, FORM};
use crate::egress::{Fetch, FetchError, Redirects};

/// Carries rmcp's requests, and remembers what came of the last one.
pub(super) struct Courier {
    fetch: Fetch,
    resource: String,
    heard: Mutex<Option<Result<Response<Vec<u8>>, FetchError>>>,
}

/// Nothing came back. The courier knows why.
#[derive(Debug, Error)]
#[error("no answer")]
struct NoAnswer;

// === impl Courier ===

impl OAuthHttpClient for Courier {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let redirects = match request.redirect_policy {
                OAuthHttpRedirectPolicy::Follow => Redirects::Follow,
                _ => Redirects::Stop,
            };
            let mut request = request.request;
            let is_form = request
                .headers()
                .get(CONTENT_TYPE)
                .is_some_and(|it| it == FORM);
            if is_form && let Ok(form) = std::str::from_utf8(request.body()) {
                *request.body_mut() = with_resource(form, &self.resource).into_bytes();
            }
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(ACCEPT, json);
            let answered = self.fetch.send(request, redirects).await;
            let passed_on = answered.as_ref().map_err(|_| NoAnswer.into()).cloned();
            *self.heard.lock() = Some(answered);
            passed_on
        })
    }
}

impl Courier {
    /// Carries requests about this resource.
    pub(super) fn new(fetch: Fetch, resource: &str) -> Self {
        Self {
            fetch,
            resource: resource.to_owned(),
            heard: Mutex::default(),
        }
    }

    /// What came of the last request.
    pub(super) fn answer(&self) -> Result<Response<Vec<u8>>, AuthorityError> {
        match self.heard.lock().take() {
            Some(answered) => Ok(answered?),
            None => Err(AuthorityError::Malformed("metadata")),
        }
    }

    /// Why the last request did not lead to what it was for.
    pub(super) fn failure(&self) -> AuthorityError {
        match self.answer() {
            Ok(answer) => refusal(&answer),
            Err(error) => error,
        }
    }
}

/// What an answer that is none says.
pub(super) fn refusal(answer: &Response<Vec<u8>>) -> AuthorityError {
    if is_trouble(answer.status()) {
        return AuthorityError::Unavailable(answer.status());
    }
    let refused: Result<Refused, _> = serde_json::from_slice(answer.body());
    match refused {
        Ok(refused) if refused.error == "invalid_grant" => AuthorityError::Rejected,
        Ok(refused) => {
            let known = CODES.iter().find(|code| **code == refused.error);
            match known.copied() {
                Some(code @ ("invalid_client" | "unauthorized_client")) => {
                    AuthorityError::ClientRefused(code)
                }
                code => AuthorityError::Denied(code.unwrap_or("an error of its own")),
            }
        }
        Err(_) if answer.status().is_client_error() => AuthorityError::Denied("no reason given"),
        Err(_) => AuthorityError::Malformed("answer"),
    }
}

/// An error of a token, registration or revocation endpoint.
#[derive(Deserialize)]
struct Refused {
    error: String,
}

/// The codes of RFC 6749, 7009, 7591 and 8707 that can be shown: a text of the server's own choice
/// might be a secret.
const CODES: [&str; 14] = [
    "access_denied",
    "invalid_client",
    "invalid_client_metadata",
    "invalid_redirect_uri",
    "invalid_request",
    "invalid_scope",
    "invalid_software_statement",
    "invalid_target",
    "server_error",
    "temporarily_unavailable",
    "unapproved_software_statement",
    "unauthorized_client",
    "unsupported_grant_type",
    "unsupported_token_type",
];

/// Runs what logs secrets so that nobody hears it, whoever listens.
pub(super) async fn silently<T>(future: impl Future<Output = T>) -> T {
    Box::pin(future).with_subscriber(Dispatch::none()).await
}

/// The same query or form with this `resource`, as it was published.
pub(super) fn with_resource(pairs: &str, resource: &str) -> String {
    let pairs = form_urlencoded::parse(pairs.as_bytes()).map(|(name, value)| match &*name {
        "resource" => (name, resource.into()),
        _ => (name, value),
    });
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish()
}
