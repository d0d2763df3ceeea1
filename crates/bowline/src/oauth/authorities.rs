//! The authorization servers of the configured servers: who is asked, and with which reach.

use std::collections::HashMap;
use std::fmt;

use http::{HeaderMap, Uri};
use parking_lot::RwLock;

use super::authority::{Authority, AuthorityError};
use super::grant::{ClientIdentity, Grant};
use super::grants::{Renew, RenewError, Renewing};
use super::secret::Secret;
use super::trust::Trust;
use crate::config::{Client, Server};
use crate::egress::{Fetch, Reach, Tls};

/// How to reach the authorization server of each server, by the server's URL.
pub(crate) struct Authorities {
    tls: Tls,
    servers: RwLock<HashMap<Box<str>, Known>>,
}

#[derive(Clone)]
struct Known {
    url: Uri,
    headers: HeaderMap,
    allow_private: bool,
    /// What the server is trusted by, its authorization server is, too.
    tls: Tls,
    trust: Trust,
    client: Option<Client>,
}

impl Authorities {
    pub(crate) fn new(tls: Tls) -> Self {
        Self {
            tls,
            servers: RwLock::default(),
        }
    }

    /// Knows this server from now on, if its callers sign in, under the URL that is returned.
    pub(crate) fn know(&self, server: &Server) -> Option<Uri> {
        let oauth = server.oauth.as_ref()?;
        let url = server.way.urls().first()?.clone();
        let known = Known {
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
    pub(crate) fn of(&self, server_url: &str) -> Result<Authority, AuthorityError> {
        let known = self.servers.read().get(server_url).cloned();
        let known = known.ok_or(AuthorityError::NoSupport)?;
        let reach = Reach::new(&known.url, known.allow_private);
        let fetch = Fetch::new(reach, known.tls).with_headers(known.headers);
        Ok(Authority::new(&known.url, fetch).trusting(known.trust))
    }

    /// The client that the operator configured for the server at this URL.
    pub(super) fn configured_client(&self, server_url: &str) -> Option<Client> {
        self.servers.read().get(server_url)?.client.clone()
    }

    /// The client that a grant was made to, with the secret that it has now: an operator may change it.
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

impl Renew for Authorities {
    fn renew<'a>(&'a self, server_url: &'a str, grant: &'a Grant) -> Renewing<'a> {
        Box::pin(async move {
            let failed = |error: AuthorityError| match error {
                AuthorityError::Rejected => RenewError::Rejected,
                AuthorityError::ClientRefused(_) => RenewError::UnknownClient,
                AuthorityError::AnotherIssuer | AuthorityError::Elsewhere(_) => {
                    RenewError::Untrusted
                }
                error => RenewError::Failed(error.into()),
            };
            let Some(token) = &grant.refresh_token else {
                return Err(RenewError::Rejected);
            };
            let authority = self.of(server_url).map_err(failed)?;
            let client = self.current(server_url, &grant.client);
            let renewing = authority.refresh(&grant.found, &client, token, &grant.scopes);
            renewing.await.map_err(failed)
        })
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorities(…)")
    }
}
