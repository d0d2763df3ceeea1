//! The authorization servers of the configured servers: how to reach each, and what the operator trusts.

use std::collections::HashMap;
use std::fmt;

use bowline_egress::{Fetch, Reach, Tls};
use http::{HeaderMap, Uri};
use parking_lot::RwLock;

use super::auth_server::AuthServer;
use super::auth_server_error::AuthServerError;
use super::grant::{ClientIdentity, Grant};
use super::grants::{RefreshError, RefreshFuture, TokenRefresher};
use super::secret::Secret;
use super::trust::Trust;
use crate::config::{Client, Server};

/// How to reach the authorization server of each server, by the server's URL.
pub(crate) struct AuthServers {
    tls: Tls,
    servers: RwLock<HashMap<Box<str>, ServerEntry>>,
}

#[derive(Clone)]
struct ServerEntry {
    url: Uri,
    headers: HeaderMap,
    allow_private: bool,
    /// The certificates trusted for the server count for its authorization server, too.
    tls: Tls,
    trust: Trust,
    client: Option<Client>,
}

impl AuthServers {
    pub(crate) fn new(tls: Tls) -> Self {
        Self {
            tls,
            servers: RwLock::default(),
        }
    }

    /// Adds or updates a server, if it uses OAuth, under the URL that is returned.
    pub(crate) fn know(&self, server: &Server) -> Option<Uri> {
        let oauth = server.oauth.as_ref()?;
        let url = server.target.urls().first()?.clone();
        let known = ServerEntry {
            url: url.clone(),
            headers: server.headers.clone(),
            allow_private: oauth.allow_private,
            tls: self.tls.of_server(server.ca.as_ref()),
            trust: Trust::of(oauth),
            client: oauth.client.clone(),
        };
        self.servers.write().insert(url.to_string().into(), known);
        Some(url)
    }

    /// The authorization server of the server at this URL.
    pub(crate) fn of(&self, server_url: &str) -> Result<AuthServer, AuthServerError> {
        let known = self.servers.read().get(server_url).cloned();
        Ok(known.ok_or(AuthServerError::NoSupport)?.into())
    }

    /// The authorization server of the server at `server_url`, for what was granted while the server was at
    /// `former`. If this process does not know it from that time, what the operator says of the server now
    /// counts, without the configured headers, which are for where it is now.
    pub(super) fn former(
        &self,
        former: &str,
        server_url: &str,
    ) -> Result<AuthServer, AuthServerError> {
        let servers = self.servers.read();
        if let Some(known) = servers.get(former) {
            return Ok(known.clone().into());
        }
        let now = servers.get(server_url).cloned();
        let url = former.parse();
        let url = url.map_err(|_| AuthServerError::Malformed("server URL"))?;
        let entry = ServerEntry {
            url,
            headers: HeaderMap::new(),
            ..now.ok_or(AuthServerError::NoSupport)?
        };
        Ok(entry.into())
    }

    /// The client that the operator configured for the server at this URL.
    pub(super) fn configured_client(&self, server_url: &str) -> Option<Client> {
        self.servers.read().get(server_url)?.client.clone()
    }

    /// The client of a grant, with its current secret: an operator may have changed it.
    fn current(&self, server_url: &str, client: &ClientIdentity) -> ClientIdentity {
        let mut client = client.clone();
        if let Some(configured) = self.configured_client(server_url)
            && configured.id == client.id
        {
            client.secret = configured.secret.map(|it| Secret::new(it.expose()));
        }
        client
    }
}

impl From<ServerEntry> for AuthServer {
    fn from(known: ServerEntry) -> Self {
        let reach = Reach::new(&known.url, known.allow_private);
        let fetch = Fetch::new(reach, known.tls).with_headers(known.headers);
        Self::new(&known.url, fetch).trusting(known.trust)
    }
}

impl TokenRefresher for AuthServers {
    fn accepts(&self, server_url: &str, issuer: &str) -> bool {
        let servers = self.servers.read();
        servers
            .get(server_url)
            .is_none_or(|known| known.trust.accepts(issuer))
    }

    fn refresh<'a>(&'a self, server_url: &'a str, grant: &'a Grant) -> RefreshFuture<'a> {
        Box::pin(async move {
            let failed = |error: AuthServerError| match error {
                AuthServerError::Rejected => RefreshError::Rejected,
                AuthServerError::ClientRefused(_) => RefreshError::UnknownClient,
                AuthServerError::AnotherIssuer | AuthServerError::Elsewhere(_) => {
                    RefreshError::Untrusted
                }
                error => RefreshError::Failed(error.into()),
            };
            let Some(token) = &grant.refresh_token else {
                return Err(RefreshError::Rejected);
            };
            let auth_server = self.of(server_url).map_err(failed)?;
            let client = self.current(server_url, &grant.client);
            let renewing = auth_server.refresh(&grant.discovery, &client, token, &grant.scopes);
            renewing.await.map_err(failed)
        })
    }
}

impl fmt::Debug for AuthServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthServers(…)")
    }
}
