//! Which client Bowline is at an authorization server: registered for a server, or named by a caller.

use serde::{Deserialize, Serialize};

use super::slot::{self, StoredValue};
use super::{Vault, VaultError};
use crate::oauth::grant::ClientIdentity;
use bowline_store::Key;
use bowline_store::MAX_CONFLICTS;

/// The most registrations that are kept for a server, which names the authorization servers and could name
/// another one each time. The oldest is dropped: its next sign-in registers again.
const MAX_REGISTRATIONS: usize = 8;

/// A client that Bowline registered for a server; its redirect URI is part of the client.
#[derive(Serialize, Deserialize)]
struct Registration {
    issuer: String,
    client: ClientIdentity,
}

/// Where Bowline registers as a client: with this authorization server, on behalf of this server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registrar<'a> {
    pub(crate) server_url: &'a str,
    pub(crate) issuer: &'a str,
}

impl Vault {
    /// The client that Bowline registered for a server with this redirect URI, if it did. Two servers with
    /// the same issuer get two clients: otherwise one would share what people allow the other.
    pub(crate) async fn registration(
        &self,
        registrar: Registrar<'_>,
        redirect_uri: &str,
    ) -> Result<Option<ClientIdentity>, VaultError> {
        let slot = registrations_slot(registrar.server_url);
        let all: Option<Vec<Registration>> = StoredValue::read(&self.load(&slot).await?)?.value;
        let mut all = all.unwrap_or_default().into_iter();
        let found = all.find(|one| one.is_of(registrar, redirect_uri));
        if found.is_some() {
            self.touch(&slot).await?;
        }
        Ok(found.map(|one| one.client))
    }

    /// Stores the client registered for a server; the last write wins. The oldest of too many is dropped.
    pub(crate) async fn put_registration(
        &self,
        registrar: Registrar<'_>,
        client: &ClientIdentity,
    ) -> Result<(), VaultError> {
        self.change_registrations(registrar.server_url, |all| {
            all.retain(|one| !one.is_of(registrar, &client.redirect_uri));
            all.push(Registration {
                issuer: registrar.issuer.to_owned(),
                client: client.clone(),
            });
            let surplus = all.len().saturating_sub(MAX_REGISTRATIONS);
            all.drain(..surplus);
            true
        })
        .await
    }

    /// Changes the registrations for a server, the oldest first. `change` returns `false` if there is nothing
    /// to change.
    async fn change_registrations(
        &self,
        server_url: &str,
        change: impl Fn(&mut Vec<Registration>) -> bool,
    ) -> Result<(), VaultError> {
        let slot = registrations_slot(server_url);
        for _ in 0..MAX_CONFLICTS {
            let stored = StoredValue::<Vec<Registration>>::read(&self.load(&slot).await?)?;
            let mut all = stored.value.unwrap_or_default();
            if !change(&mut all) {
                return Ok(());
            }
            let value = slot::written(Some(&all))?;
            if self.write(&slot, stored.version, &value).await?.is_some() {
                return Ok(());
            }
        }
        Err(VaultError::Contended)
    }

    /// The client that a caller named for an authorization server. It counts for this caller only: one caller
    /// must not decide for another.
    pub(crate) async fn named_client(
        &self,
        caller: &str,
        issuer: &str,
        redirect_uri: &str,
    ) -> Result<Option<ClientIdentity>, VaultError> {
        let slot = named_client_slot(caller, issuer, redirect_uri);
        self.client(&slot).await
    }

    /// Stores the client that a caller named; the last write wins.
    pub(crate) async fn put_named_client(
        &self,
        caller: &str,
        issuer: &str,
        client: &ClientIdentity,
    ) -> Result<(), VaultError> {
        let slot = named_client_slot(caller, issuer, &client.redirect_uri);
        self.put_client(&slot, client).await
    }

    /// Forgets the client registered for a server and the one that this caller named, each if it is still
    /// this client.
    pub(crate) async fn forget_client(
        &self,
        caller: &str,
        registrar: Registrar<'_>,
        client: &ClientIdentity,
    ) -> Result<(), VaultError> {
        let uri = &client.redirect_uri;
        self.change_registrations(registrar.server_url, |all| {
            let before = all.len();
            all.retain(|one| !(one.is_of(registrar, uri) && one.client.id == client.id));
            all.len() < before
        })
        .await?;
        let slot = named_client_slot(caller, registrar.issuer, uri);
        let named: StoredValue<ClientIdentity> = StoredValue::read(&self.load(&slot).await?)?;
        if named.value.is_some_and(|known| known.id == client.id) {
            let nobody = slot::written::<ClientIdentity>(None)?;
            // After a conflict the other write counts.
            self.write(&slot, named.version, &nobody).await?;
        }
        Ok(())
    }

    async fn client(&self, slot: &Key) -> Result<Option<ClientIdentity>, VaultError> {
        let found = StoredValue::read(&self.load(slot).await?)?.value;
        if found.is_some() {
            self.touch(slot).await?;
        }
        Ok(found)
    }

    async fn put_client(&self, slot: &Key, client: &ClientIdentity) -> Result<(), VaultError> {
        let value = slot::written(Some(client))?;
        for _ in 0..MAX_CONFLICTS {
            let replaces = self.load(slot).await?.version;
            if self.write(slot, replaces, &value).await?.is_some() {
                return Ok(());
            }
        }
        Err(VaultError::Contended)
    }
}

// === impl Registration ===

impl Registration {
    fn is_of(&self, registrar: Registrar<'_>, redirect_uri: &str) -> bool {
        self.issuer == registrar.issuer && self.client.redirect_uri == redirect_uri
    }
}

/// One slot for all of a server's registrations, so that a server cannot have more than one.
fn registrations_slot(server_url: &str) -> Key {
    Key::named("registrations", &[server_url])
}

fn named_client_slot(caller: &str, issuer: &str, redirect_uri: &str) -> Key {
    Key::named("named-client", &[caller, issuer, redirect_uri])
}
