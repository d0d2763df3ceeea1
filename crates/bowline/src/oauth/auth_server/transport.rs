//! Sends rmcp's requests through our own egress and records the responses: rmcp reports errors as text only,
//! which a program cannot rely on.

use bowline_egress::{Fetch, FetchError, Redirects};
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

use super::FORM;
use crate::oauth::auth_server_error::AuthServerError;
use crate::oauth::discovery::is_trouble;

/// Sends rmcp's requests, and records the last response.
pub(super) struct RecordingTransport {
    fetch: Fetch,
    resource: String,
    heard: Mutex<Option<Result<Response<Vec<u8>>, FetchError>>>,
}

/// There was no response. The transport has recorded why.
#[derive(Debug, Error)]
#[error("no answer")]
struct NoAnswer;

// === impl RecordingTransport ===

impl OAuthHttpClient for RecordingTransport {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            // Only the endpoint's own origin was checked against the operator's settings.
            let redirects = match request.redirect_policy {
                OAuthHttpRedirectPolicy::Follow => Redirects::WithinOrigin,
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

impl RecordingTransport {
    /// A transport for requests about this resource.
    pub(super) fn new(fetch: Fetch, resource: &str) -> Self {
        Self {
            fetch,
            resource: resource.to_owned(),
            heard: Mutex::default(),
        }
    }

    /// The response to the last request.
    pub(super) fn answer(&self) -> Result<Response<Vec<u8>>, AuthServerError> {
        match self.heard.lock().take() {
            Some(answered) => Ok(answered?),
            None => Err(AuthServerError::Malformed("metadata")),
        }
    }

    /// Why the last request failed.
    pub(super) fn failure(&self) -> AuthServerError {
        match self.answer() {
            Ok(answer) => refusal(&answer),
            Err(error) => error,
        }
    }
}

/// The error that a response reports.
pub(super) fn refusal(answer: &Response<Vec<u8>>) -> AuthServerError {
    if is_trouble(answer.status()) {
        return AuthServerError::Unavailable(answer.status());
    }
    let refused: Result<ErrorResponse, _> = serde_json::from_slice(answer.body());
    match refused {
        Ok(refused) if refused.error == "invalid_grant" => AuthServerError::Rejected,
        Ok(refused) => {
            let known = CODES.iter().find(|code| **code == refused.error);
            match known.copied() {
                Some(code @ ("invalid_client" | "unauthorized_client")) => {
                    AuthServerError::ClientRefused(code)
                }
                code => AuthServerError::Denied(code.unwrap_or("an error of its own")),
            }
        }
        Err(_) if answer.status().is_client_error() => AuthServerError::Denied("no reason given"),
        Err(_) => AuthServerError::Malformed("answer"),
    }
}

/// An error response of a token, registration or revocation endpoint.
#[derive(Deserialize)]
struct ErrorResponse {
    error: String,
}

/// The error codes of RFC 6749, 7009, 7591 and 8707. Only these are shown: any other text might contain a
/// secret.
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

/// Runs a future without any log subscriber, because it logs secrets.
pub(super) async fn silently<T>(future: impl Future<Output = T>) -> T {
    Box::pin(future).with_subscriber(Dispatch::none()).await
}

/// The same query or form, with `resource` exactly as published.
pub(super) fn with_resource(pairs: &str, resource: &str) -> String {
    let pairs = form_urlencoded::parse(pairs.as_bytes()).map(|(name, value)| match &*name {
        "resource" => (name, resource.into()),
        _ => (name, value),
    });
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish()
}
