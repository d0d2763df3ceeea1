//! What an authorization server does for a client: it is found, registers the client, sends it to a
//! person's browser, and exchanges, refreshes and takes back tokens.
//!
//! Nothing is kept between calls, so that another gateway can make the next one. The rules of OAuth
//! come from rmcp's `AuthorizationManager`, which is a detail of this file: it is made anew for each
//! call from what was discovered. Where it would not do, it is helped out here. It sends a
//! normalised `resource`, it says in words alone what went wrong, and it logs codes and tokens; the
//! [`Courier`] that carries its requests mends the first two, and [`silently`] the last.

mod client;
mod courier;

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::media;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
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
use thiserror::Error;
use url::{Url, form_urlencoded};

use self::client::{METHODS, application_type, basic, shown_secret};
use self::courier::{Courier, refusal, silently, with_resource};
use super::challenge::{Challenge, split_scopes};
use super::discovery;
use super::grant::{Authentication, ClientIdentity, Discovered, Tokens};
use super::secret::Secret;
use super::trust::Trust;
use crate::egress::{Fetch, FetchError, Redirects};

/// What Bowline is called where it registers.
const CLIENT_NAME: &str = "Bowline";

/// What begins no session at a server that wants nobody signed in.
const PING: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

const FORM: &str = "application/x-www-form-urlencoded";

/// The authorization server of one server.
#[derive(Debug, Clone)]
pub(crate) struct Authority {
    server: Uri,
    fetch: Fetch,
    trust: Trust,
}

/// A sign-in that a person has to finish: all that [`Authority::exchange`] needs for it, on
/// whichever gateway.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// Where the person goes. It holds the state.
    pub(crate) authorize_url: String,
    pub(crate) state: Secret,
    pub(crate) verifier: Secret,
    pub(crate) scopes: Vec<String>,
}

/// What a server thinks of somebody who is not signed in.
#[derive(Debug)]
pub(crate) enum Probed {
    /// It wants a sign-in, and maybe says how.
    SignIn(Option<Challenge>),
    /// It did not mind, at least not yet.
    Open,
}

/// Which token is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Access,
    Refresh,
}

/// Why an authorization server did not do what it was asked. No variant holds anything of an answer
/// but a code that the standards know: an answer can hold secrets.
#[derive(Debug, Error)]
pub(crate) enum AuthorityError {
    #[error("the authorization server cannot be reached: {0}")]
    Unreachable(#[from] FetchError),
    /// For now.
    #[error("the authorization server answered {0}")]
    Unavailable(StatusCode),
    #[error("the server publishes nothing about how to sign in")]
    NoSupport,
    #[error("what the server publishes describes another resource")]
    ResourceMismatch,
    #[error("the authorization server is not the one that was meant")]
    IssuerMismatch,
    #[error("the server names another authorization server than the one that is configured")]
    AnotherIssuer,
    /// This endpoint.
    #[error(
        "the authorization server's {0} is at another origin than its issuer; `endpoints_elsewhere` \
         in the server's `oauth` could allow that"
    )]
    Elsewhere(&'static str),
    #[error("the authorization server does not offer PKCE with S256")]
    NoS256,
    #[error("the authorization server registers no clients; configure a client id for this server")]
    NoRegistration,
    #[error("the authorization server refused to register a client: {0}")]
    RegistrationRefused(&'static str),
    /// `invalid_grant`: the code or the refresh token is of no use any more.
    #[error("the authorization server rejected the grant")]
    Rejected,
    /// `invalid_client` or `unauthorized_client`: a client that was registered is not known any more,
    /// or one that was configured is not what the authorization server knows.
    #[error(
        "the authorization server refused Bowline as its client ({0}); where Bowline registers, the \
         next sign-in does so anew"
    )]
    ClientRefused(&'static str),
    #[error("the authorization server refused: {0}")]
    Denied(&'static str),
    #[error("the authorization server's {0} is malformed")]
    Malformed(&'static str),
}

/// Whether an authorization response comes from the authorization server that was asked
/// (RFC 9207), byte for byte. An answer with an error has to pass, too.
pub(crate) fn check_issuer(found: &Discovered, iss: Option<&str>) -> Result<(), AuthorityError> {
    match iss {
        Some(iss) if iss == found.issuer => Ok(()),
        None if !announces_issuer(found) => Ok(()),
        _ => Err(AuthorityError::IssuerMismatch),
    }
}

fn announces_issuer(found: &Discovered) -> bool {
    let announced = found
        .metadata
        .get("authorization_response_iss_parameter_supported");
    announced.and_then(Value::as_bool).unwrap_or(false)
}

// === impl Authority ===

impl Authority {
    pub(crate) fn new(server: &Uri, fetch: Fetch) -> Self {
        Self {
            server: server.clone(),
            fetch,
            trust: Trust::default(),
        }
    }

    /// The same for a server of which the operator says more.
    pub(crate) fn trusting(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    /// Finds who grants access to the server, which said this in its 401, if it said anything.
    pub(crate) async fn discover(
        &self,
        challenge: Option<&Challenge>,
    ) -> Result<Discovered, AuthorityError> {
        let server = Url::parse(&self.server.to_string());
        let server = server.map_err(|_| AuthorityError::Malformed("server URL"))?;
        discovery::discover(&server, &self.fetch, &self.trust, challenge).await
    }

    /// What the server thinks of somebody who is not signed in.
    pub(crate) async fn probe(&self) -> Result<Probed, AuthorityError> {
        let request = Request::post(self.server.clone())
            .header(CONTENT_TYPE, media::JSON)
            .header(ACCEPT, format!("{}, {}", media::JSON, media::EVENT_STREAM))
            .body(PING.to_vec())
            .map_err(|_| AuthorityError::Malformed("server URL"))?;
        let answer = self.fetch.send(request, Redirects::Follow).await?;
        match answer.status() {
            StatusCode::UNAUTHORIZED => Ok(Probed::SignIn(Challenge::in_headers(answer.headers()))),
            status if discovery::is_trouble(status) => Err(AuthorityError::Unavailable(status)),
            _ => Ok(Probed::Open),
        }
    }

    /// Registers Bowline as a client (RFC 7591).
    pub(crate) async fn register(
        &self,
        found: &Discovered,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<ClientIdentity, AuthorityError> {
        if !found.metadata.contains_key("registration_endpoint") {
            return Err(AuthorityError::NoRegistration);
        }
        let mut identity = ClientIdentity {
            id: String::new(),
            secret: None,
            authentication: None,
            redirect_uri: redirect_uri.to_owned(),
        };
        let (mut manager, courier) = self.manager(found, &identity).await?;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let registering = manager.register_client(CLIENT_NAME, redirect_uri, &scopes);
        // What it makes of the answer is left aside: it loses how the client is to authenticate,
        // and wants fields that not every answer has.
        drop(silently(registering).await);
        let answer = courier.answer()?;
        if !answer.status().is_success() {
            return Err(match refusal(&answer) {
                AuthorityError::Denied(code) | AuthorityError::ClientRefused(code) => {
                    AuthorityError::RegistrationRefused(code)
                }
                other => other,
            });
        }
        let registered: Registered = serde_json::from_slice(answer.body())
            .map_err(|_| AuthorityError::Malformed("registration"))?;
        identity.id = registered.client_id;
        identity.secret = registered
            .client_secret
            .filter(|it| !it.expose().is_empty());
        let method = registered.token_endpoint_auth_method;
        identity.authentication = method.and_then(|it| serde_json::from_value(it).ok());
        Ok(identity)
    }

    /// Begins a sign-in: a fresh state, a fresh verifier, and the URL for the person's browser.
    pub(crate) async fn begin(
        &self,
        found: &Discovered,
        client: &ClientIdentity,
        scopes: &[String],
    ) -> Result<Begun, AuthorityError> {
        let (mut manager, _) = self.manager(found, client).await?;
        let states = InMemoryStateStore::new();
        manager.set_state_store(states.clone());
        let wanted: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let malformed = || AuthorityError::Malformed("authorization_endpoint");
        let url = silently(manager.get_authorization_url(&wanted)).await;
        let mut url = url
            .ok()
            .and_then(|url| Url::parse(&url).ok())
            .ok_or_else(malformed)?;
        let state = url.query_pairs().find(|(name, _)| name == "state");
        let state = state.ok_or_else(malformed)?.1.into_owned();
        let begun = states
            .load(&state)
            .await
            .ok()
            .flatten()
            .ok_or_else(malformed)?;
        let query = with_resource(url.query().unwrap_or_default(), &found.resource);
        url.set_query(Some(&query));
        // Nobody is given a lasting grant unseen (OpenID Connect Core, 11).
        if wanted.contains(&"offline_access") {
            url.query_pairs_mut().append_pair("prompt", "consent");
        }
        Ok(Begun {
            authorize_url: url.into(),
            state: Secret::new(state),
            verifier: Secret::new(begun.pkce_verifier),
            scopes: scopes.to_vec(),
        })
    }

    /// Exchanges the code of an authorization response that came with this `iss`, if with any.
    pub(crate) async fn exchange(
        &self,
        found: &Discovered,
        client: &ClientIdentity,
        begun: &Begun,
        code: &str,
        iss: Option<&str>,
    ) -> Result<Tokens, AuthorityError> {
        check_issuer(found, iss)?;
        let (mut manager, courier) = self.manager(found, client).await?;
        let states = InMemoryStateStore::new();
        let state = begun.state.expose();
        let expected = StoredAuthorizationState::new_with_expected_issuer(
            &PkceCodeVerifier::new(begun.verifier.expose().to_owned()),
            &CsrfToken::new(state.to_owned()),
            Some(found.issuer.clone()),
            announces_issuer(found),
        );
        // In memory, where nothing can fail.
        drop(states.save(state, expected).await);
        manager.set_state_store(states);
        let exchanging = manager.exchange_code_for_token_with_issuer(code, state, iss);
        match silently(exchanging).await {
            Ok(granted) => tokens(&granted, &begun.scopes),
            Err(_) => Err(courier.failure()),
        }
    }

    /// Exchanges a refresh token. Where the answer has no new one, the old one stays good.
    pub(crate) async fn refresh(
        &self,
        found: &Discovered,
        client: &ClientIdentity,
        refresh_token: &Secret,
        scopes: &[String],
    ) -> Result<Tokens, AuthorityError> {
        let (mut manager, courier) = self.manager(found, client).await?;
        let mut held = OAuthTokenResponse::new(
            AccessToken::new(String::new()),
            BasicTokenType::Bearer,
            VendorExtraTokenFields::default(),
        );
        held.set_refresh_token(Some(RefreshToken::new(refresh_token.expose().to_owned())));
        let held = StoredCredentials::new(client.id.clone(), Some(held), scopes.to_vec(), None);
        let credentials = InMemoryCredentialStore::new();
        // In memory, where nothing can fail.
        drop(credentials.save(held).await);
        manager.set_credential_store(credentials);
        match silently(manager.refresh_token()).await {
            Ok(granted) => tokens(&granted, &[]),
            Err(_) => Err(courier.failure()),
        }
    }

    /// Takes a token back (RFC 7009), if the authorization server can; says whether it can.
    pub(crate) async fn revoke(
        &self,
        found: &Discovered,
        client: &ClientIdentity,
        token: &Secret,
        kind: TokenKind,
    ) -> Result<bool, AuthorityError> {
        let Some(endpoint) = found.metadata.get("revocation_endpoint") else {
            return Ok(false);
        };
        self.trust.check(found)?;
        let endpoint = endpoint.as_str().and_then(|url| url.parse().ok());
        let endpoint: Uri = endpoint.ok_or(AuthorityError::Malformed("revocation_endpoint"))?;
        // In a block: a form may not be held while the answer is waited for.
        let request = {
            let mut form = form_urlencoded::Serializer::new(String::new());
            form.append_pair("token", token.expose());
            form.append_pair("token_type_hint", kind.name());
            let mut request = Request::post(endpoint).header(CONTENT_TYPE, FORM);
            match shown_secret(found, client) {
                Some((secret, Authentication::ClientSecretPost)) => {
                    form.append_pair("client_id", &client.id);
                    form.append_pair("client_secret", secret.expose());
                }
                Some((secret, _)) => {
                    request = request.header(AUTHORIZATION, basic(&client.id, secret))
                }
                None => drop(form.append_pair("client_id", &client.id)),
            }
            request
                .body(form.finish().into_bytes())
                .map_err(|_| AuthorityError::Malformed("revocation_endpoint"))?
        };
        let answer = self.fetch.send(request, Redirects::Stop).await?;
        match answer.status().is_success() {
            true => Ok(true),
            false => Err(refusal(&answer)),
        }
    }

    /// rmcp's client of this authorization server, and who carries its requests.
    async fn manager(
        &self,
        found: &Discovered,
        client: &ClientIdentity,
    ) -> Result<(AuthorizationManager, Arc<Courier>), AuthorityError> {
        self.trust.check(found)?;
        let courier = Arc::new(Courier::new(self.fetch.clone(), &found.resource));
        let carried_by = Arc::clone(&courier);
        let url = found.resource.as_str();
        let making = AuthorizationManager::new_with_oauth_http_client(url, carried_by);
        let mut manager = silently(making)
            .await
            .map_err(|_| AuthorityError::Malformed("resource"))?;
        let shown = shown_secret(found, client);
        manager.set_metadata(metadata(found, shown.map(|(_, how)| how))?);
        let mut config = OAuthClientConfig::new(client.id.as_str(), client.redirect_uri.as_str())
            .with_application_type(application_type(&client.redirect_uri));
        if let Some((secret, _)) = shown {
            config = config.with_client_secret(secret.expose());
        }
        manager
            .configure_client(config)
            .map_err(|_| AuthorityError::Malformed("endpoint"))?;
        Ok((manager, courier))
    }
}

/// What an authorization server publishes, as rmcp reads it.
fn metadata(
    found: &Discovered,
    authentication: Option<Authentication>,
) -> Result<AuthorizationMetadata, AuthorityError> {
    let mut document = found.metadata.clone();
    // It would ask for scopes of its own choice.
    document.remove("scopes_supported");
    if let Some(method) = authentication.and_then(|it| serde_json::to_value(it).ok()) {
        document.insert(METHODS.to_owned(), Value::Array(vec![method]));
    }
    serde_json::from_value(Value::Object(document))
        .map_err(|_| AuthorityError::Malformed("metadata"))
}

fn tokens(granted: &OAuthTokenResponse, requested: &[String]) -> Result<Tokens, AuthorityError> {
    if *granted.token_type() != BasicTokenType::Bearer {
        return Err(AuthorityError::Malformed("token type"));
    }
    let access_token = granted.access_token().secret();
    if access_token.is_empty() {
        return Err(AuthorityError::Malformed("token"));
    }
    let said = granted.scopes().map(|scopes| {
        let scopes: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
        split_scopes(&scopes.join(" "))
    });
    Ok(Tokens {
        access_token: Secret::new(access_token.as_str()),
        refresh_token: granted
            .refresh_token()
            .map(|it| Secret::new(it.secret().as_str())),
        expires_in: granted.expires_in().filter(|life| *life > Duration::ZERO),
        scopes: said.unwrap_or_else(|| requested.to_vec()),
    })
}

/// What is used of a registration's answer.
#[derive(Deserialize)]
struct Registered {
    client_id: String,
    client_secret: Option<Secret>,
    token_endpoint_auth_method: Option<Value>,
}

// === impl TokenKind ===

impl TokenKind {
    fn name(self) -> &'static str {
        match self {
            Self::Access => "access_token",
            Self::Refresh => "refresh_token",
        }
    }
}

// The state is in the URL.
impl std::fmt::Debug for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Begun(…)")
    }
}

#[cfg(test)]
mod tests;
