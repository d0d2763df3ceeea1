//! The client of an authorization server: it discovers the server, registers, builds the authorization URL,
//! and exchanges, refreshes and revokes tokens.
//!
//! Nothing is kept between calls, so that another gateway can make the next one. The OAuth requests are made
//! by rmcp's `AuthorizationManager`, which is a detail of this file: each call creates one from the
//! discovery. Three of its habits are corrected here. It normalises `resource`, and it reports errors as text
//! only: the [`RecordingTransport`] that carries its requests mends both. It logs codes and tokens:
//! [`silently`] prevents that.

mod client;
mod revocation;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::media;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, StatusCode, Uri};
use oauth2::basic::BasicTokenType;
use oauth2::{AccessToken, CsrfToken, PkceCodeVerifier, RefreshToken, TokenResponse as _};
use rmcp::transport::auth::{
    AuthorizationManager, AuthorizationMetadata, CredentialStore as _, InMemoryCredentialStore,
    InMemoryStateStore, OAuthClientConfig, OAuthTokenResponse, StateStore as _,
    StoredAuthorizationState, StoredCredentials, VendorExtraTokenFields,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use self::client::{METHODS, application_type, shown_secret};
use self::transport::{RecordingTransport, refusal, silently, with_resource};
use super::auth_server_error::AuthServerError;
use super::challenge::{Challenge, split_scopes};
use super::discovery;
use super::grant::{Authentication, ClientIdentity, Discovery, Tokens};
use super::secret::Secret;
use super::trust::Trust;
use bowline_egress::{Fetch, Redirects};

/// Bowline's name as a registered client.
const CLIENT_NAME: &str = "Bowline";

/// The longest `client_id` and `client_secret` that a registration, or a caller, may bring: they are stored for good.
pub(super) const MAX_REGISTERED: usize = 4 * 1024;

/// A request that opens no session at a server without authorization.
const PING: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

const FORM: &str = "application/x-www-form-urlencoded";

/// The authorization server of one server.
#[derive(Debug, Clone)]
pub(crate) struct AuthServer {
    server: Uri,
    fetch: Fetch,
    trust: Trust,
}

/// An authorization request that a person has to complete: all that [`AuthServer::exchange`] needs, on any
/// gateway.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct AuthorizationRequest {
    /// The URL for the person's browser. It contains the state.
    pub(crate) authorize_url: String,
    pub(crate) state: Secret,
    pub(crate) verifier: Secret,
    pub(crate) scopes: Vec<String>,
}

/// What a server answers to a request without a token.
#[derive(Debug)]
pub(crate) enum ProbeOutcome {
    /// It answers 401, maybe with a challenge.
    SignInRequired(Option<Challenge>),
    /// It accepts the request, at least this one.
    Open,
}

/// Checks that an authorization response comes from the expected authorization server (RFC 9207), byte for
/// byte. An error response has to pass, too.
pub(crate) fn check_issuer(
    discovery: &Discovery,
    iss: Option<&str>,
) -> Result<(), AuthServerError> {
    match iss {
        Some(iss) if iss == discovery.issuer => Ok(()),
        None if !announces_issuer(discovery) => Ok(()),
        _ => Err(AuthServerError::IssuerMismatch),
    }
}

fn announces_issuer(discovery: &Discovery) -> bool {
    let announced = discovery
        .metadata
        .get("authorization_response_iss_parameter_supported");
    announced.and_then(Value::as_bool).unwrap_or(false)
}

// === impl AuthServer ===

impl AuthServer {
    pub(crate) fn new(server: &Uri, fetch: Fetch) -> Self {
        Self {
            server: server.clone(),
            fetch,
            trust: Trust::default(),
        }
    }

    /// The same with the operator's settings for the server.
    pub(crate) fn trusting(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    /// Discovers the authorization server, given the challenge of the server's 401, if it had one.
    pub(crate) async fn discover(
        &self,
        challenge: Option<&Challenge>,
    ) -> Result<Discovery, AuthServerError> {
        let server = Url::parse(&self.server.to_string());
        let server = server.map_err(|_| AuthServerError::Malformed("server URL"))?;
        discovery::discover(&server, &self.fetch, &self.trust, challenge).await
    }

    /// Sends a request without a token, to see whether the server demands one.
    pub(crate) async fn probe(&self) -> Result<ProbeOutcome, AuthServerError> {
        let request = Request::post(self.server.clone())
            .header(CONTENT_TYPE, media::JSON)
            .header(ACCEPT, format!("{}, {}", media::JSON, media::EVENT_STREAM))
            .body(PING.to_vec())
            .map_err(|_| AuthServerError::Malformed("server URL"))?;
        let answer = self.fetch.send(request, Redirects::Follow).await?;
        match answer.status() {
            StatusCode::UNAUTHORIZED => Ok(ProbeOutcome::SignInRequired(Challenge::in_headers(
                answer.headers(),
            ))),
            status if discovery::is_trouble(status) => Err(AuthServerError::Unavailable(status)),
            _ => Ok(ProbeOutcome::Open),
        }
    }

    /// Registers Bowline as a client (RFC 7591).
    pub(crate) async fn register(
        &self,
        discovery: &Discovery,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<ClientIdentity, AuthServerError> {
        if !discovery.metadata.contains_key("registration_endpoint") {
            return Err(AuthServerError::NoRegistration);
        }
        let mut identity = ClientIdentity::new("", None, redirect_uri);
        let (mut manager, transport) = self.manager(discovery, &identity).await?;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let registering = manager.register_client(CLIENT_NAME, redirect_uri, &scopes);
        // rmcp's reading of the response is ignored: it loses the authentication method, and requires fields
        // that not every response has.
        drop(silently(registering).await);
        let answer = transport.answer()?;
        if !answer.status().is_success() {
            return Err(match refusal(&answer) {
                AuthServerError::Denied(code) | AuthServerError::ClientRefused(code) => {
                    AuthServerError::RegistrationRefused(code)
                }
                other => other,
            });
        }
        let registered: RegistrationResponse = serde_json::from_slice(answer.body())
            .map_err(|_| AuthServerError::Malformed("registration"))?;
        let secret = registered.client_secret.as_ref().map(Secret::expose);
        for (what, text) in [
            ("client_id", registered.client_id.as_str()),
            ("client_secret", secret.unwrap_or_default()),
        ] {
            if text.len() > MAX_REGISTERED {
                let limit = MAX_REGISTERED;
                return Err(AuthServerError::RegistrationTooLarge { what, limit });
            }
        }
        identity.id = registered.client_id;
        identity.secret = registered
            .client_secret
            .filter(|it| !it.expose().is_empty());
        let method = registered.token_endpoint_auth_method;
        identity.authentication = method.and_then(|it| serde_json::from_value(it).ok());
        Ok(identity)
    }

    /// Starts an authorization: a new state, a new PKCE verifier, and the URL for the person's browser.
    pub(crate) async fn begin(
        &self,
        discovery: &Discovery,
        client: &ClientIdentity,
        scopes: &[String],
    ) -> Result<AuthorizationRequest, AuthServerError> {
        let (mut manager, _) = self.manager(discovery, client).await?;
        let states = InMemoryStateStore::new();
        manager.set_state_store(states.clone());
        let wanted: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let malformed = || AuthServerError::Malformed("authorization_endpoint");
        let url = silently(manager.get_authorization_url(&wanted)).await;
        let mut url = url
            .ok()
            .and_then(|url| Url::parse(&url).ok())
            .ok_or_else(malformed)?;
        let state = url.query_pairs().find(|(name, _)| name == "state");
        let state = state.ok_or_else(malformed)?.1.into_owned();
        let saved = states
            .load(&state)
            .await
            .ok()
            .flatten()
            .ok_or_else(malformed)?;
        let query = with_resource(url.query().unwrap_or_default(), &discovery.resource);
        url.set_query(Some(&query));
        // A refresh token needs consent (OpenID Connect Core, 11).
        if wanted.contains(&"offline_access") {
            url.query_pairs_mut().append_pair("prompt", "consent");
        }
        Ok(AuthorizationRequest {
            authorize_url: url.into(),
            state: Secret::new(state),
            verifier: Secret::new(saved.pkce_verifier),
            scopes: scopes.to_vec(),
        })
    }

    /// Exchanges the code of an authorization response with this `iss`, if it had one.
    pub(crate) async fn exchange(
        &self,
        discovery: &Discovery,
        client: &ClientIdentity,
        request: &AuthorizationRequest,
        code: &str,
        iss: Option<&str>,
    ) -> Result<Tokens, AuthServerError> {
        check_issuer(discovery, iss)?;
        let (mut manager, transport) = self.manager(discovery, client).await?;
        let states = InMemoryStateStore::new();
        let state = request.state.expose();
        let expected = StoredAuthorizationState::new_with_expected_issuer(
            &PkceCodeVerifier::new(request.verifier.expose().to_owned()),
            &CsrfToken::new(state.to_owned()),
            Some(discovery.issuer.clone()),
            announces_issuer(discovery),
        );
        // The store is in memory, so this cannot fail.
        drop(states.save(state, expected).await);
        manager.set_state_store(states);
        let exchanging = manager.exchange_code_for_token_with_issuer(code, state, iss);
        match silently(exchanging).await {
            Ok(granted) => tokens(&granted, &request.scopes),
            Err(_) => Err(transport.failure()),
        }
    }

    /// Exchanges a refresh token. If the response has no new one, the old one stays valid.
    pub(crate) async fn refresh(
        &self,
        discovery: &Discovery,
        client: &ClientIdentity,
        refresh_token: &Secret,
        scopes: &[String],
    ) -> Result<Tokens, AuthServerError> {
        let (mut manager, transport) = self.manager(discovery, client).await?;
        let mut held = OAuthTokenResponse::new(
            AccessToken::new(String::new()),
            BasicTokenType::Bearer,
            VendorExtraTokenFields::default(),
        );
        held.set_refresh_token(Some(RefreshToken::new(refresh_token.expose().to_owned())));
        let held = StoredCredentials::new(client.id.clone(), Some(held), scopes.to_vec(), None);
        let credentials = InMemoryCredentialStore::new();
        // The store is in memory, so this cannot fail.
        drop(credentials.save(held).await);
        manager.set_credential_store(credentials);
        match silently(manager.refresh_token()).await {
            Ok(granted) => tokens(&granted, &[]),
            Err(_) => Err(transport.failure()),
        }
    }

    /// rmcp's client of this authorization server, and the transport that carries its requests.
    async fn manager(
        &self,
        discovery: &Discovery,
        client: &ClientIdentity,
    ) -> Result<(AuthorizationManager, Arc<RecordingTransport>), AuthServerError> {
        self.trust.check(discovery)?;
        let transport = Arc::new(RecordingTransport::new(
            self.fetch.clone(),
            &discovery.resource,
        ));
        let carried_by = Arc::clone(&transport);
        let url = discovery.resource.as_str();
        let making = AuthorizationManager::new_with_oauth_http_client(url, carried_by);
        let mut manager = silently(making)
            .await
            .map_err(|_| AuthServerError::Malformed("resource"))?;
        let shown = shown_secret(discovery, client);
        manager.set_metadata(metadata(discovery, shown.map(|(_, how)| how))?);
        let mut config = OAuthClientConfig::new(client.id.as_str(), client.redirect_uri.as_str())
            .with_application_type(application_type(&client.redirect_uri));
        if let Some((secret, _)) = shown {
            config = config.with_client_secret(secret.expose());
        }
        manager
            .configure_client(config)
            .map_err(|_| AuthServerError::Malformed("endpoint"))?;
        Ok((manager, transport))
    }
}

/// The authorization server's metadata, as rmcp reads it.
fn metadata(
    discovery: &Discovery,
    authentication: Option<Authentication>,
) -> Result<AuthorizationMetadata, AuthServerError> {
    let mut document = discovery.metadata.clone();
    // rmcp would ask for scopes of its own choice.
    document.remove("scopes_supported");
    if let Some(method) = authentication.and_then(|it| serde_json::to_value(it).ok()) {
        document.insert(METHODS.to_owned(), Value::Array(vec![method]));
    }
    serde_json::from_value(Value::Object(document))
        .map_err(|_| AuthServerError::Malformed("metadata"))
}

fn tokens(granted: &OAuthTokenResponse, requested: &[String]) -> Result<Tokens, AuthServerError> {
    if *granted.token_type() != BasicTokenType::Bearer {
        return Err(AuthServerError::Malformed("token type"));
    }
    let access_token = granted.access_token().secret();
    if access_token.is_empty() {
        return Err(AuthServerError::Malformed("token"));
    }
    let said = granted.scopes().map(|scopes| {
        let scopes: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
        split_scopes(&scopes.join(" "))
    });
    let tokens = Tokens {
        access_token: Secret::new(access_token.as_str()),
        refresh_token: granted
            .refresh_token()
            .map(|it| Secret::new(it.secret().as_str())),
        expires_in: granted.expires_in().filter(|life| *life > Duration::ZERO),
        scopes: said.unwrap_or_else(|| requested.to_vec()),
    };
    Ok(tokens.check()?)
}

/// What is used of a registration response.
#[derive(Deserialize)]
struct RegistrationResponse {
    client_id: String,
    client_secret: Option<Secret>,
    token_endpoint_auth_method: Option<Value>,
}

// The state is in the URL.
impl std::fmt::Debug for AuthorizationRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthorizationRequest(…)")
    }
}

#[cfg(test)]
mod tests;
