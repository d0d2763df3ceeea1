//! Where grants lie, and what belongs to them: who is signed in where, and who Bowline is at an
//! authorization server.
//!
//! A vault has slots, each of them written by whoever knows what it replaces; what a slot holds is
//! this module's, how it is kept is the kind's: in this process, in a sealed file that processes of
//! one machine share, or sealed in the store that gateways share. All obey these laws:
//!
//! 1. A slot that nobody wrote has version 0 and holds nothing. A write names the version that it
//!    replaces and makes the next; of several that name the same one, one wins.
//! 2. What is taken out leaves an empty slot whose version goes on: a writer that comes late finds
//!    that it is late.
//! 3. Whoever was told that something was written finds it in every later load, from any process or
//!    gateway on this vault.
//! 4. Of a grant's turns one is held at a time, by whomever, and none after its holder died.
//! 5. An error means that nothing is known: neither that something is absent nor that it was not
//!    written.

mod file;
mod memory;
mod shared;
mod slot;
#[cfg(test)]
pub(super) mod tests;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::DropGuard;

pub(crate) use self::file::File;
#[cfg(test)]
pub(crate) use self::file::KeySource;
pub(crate) use self::memory::Memory;
pub(crate) use self::shared::Shared;
use self::slot::{Slot, Stored};
use super::grant::{ClientIdentity, Grant, GrantKey};
use crate::store::sealed::{NoRandomness, OpenError, SealKeysError};
use crate::store::{Key, StoreError, Version};

/// The version of a slot that nobody wrote.
pub(crate) const NEVER_WRITTEN: Version = Version(0);

/// How long somebody waits for a turn: longer than a refresh may take and a dead holder's lease.
const TURN_WITHIN: Duration = Duration::from_secs(60);
/// How often it is looked whether a turn is free.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often a write is tried that meets another's.
const MAX_CONFLICTS: usize = 16;

/// What the slots of sign-ins are called.
const SIGN_IN: &str = "sign-in";

/// A vault. Every kind obeys the laws above.
#[derive(Debug)]
pub(crate) enum Vault {
    /// In this process; who is signed in is forgotten with it.
    Memory(Memory),
    /// In a sealed file that processes of this machine share.
    File(File),
    /// Sealed in a store that gateways share.
    Shared(Shared),
}

/// Whether somebody is signed in at a server, and how often somebody was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SignIn {
    pub(crate) caller: String,
    pub(crate) server_url: String,
    /// `None` after a sign-out.
    pub(crate) grant: Option<GrantKey>,
    /// The number of the last sign-in.
    pub(crate) number: u64,
    /// How often somebody signed the caller out, signed in or not.
    #[serde(default)]
    pub(crate) outs: u64,
}

/// The turn to refresh a grant: nobody else does until this is dropped, or its holder dies.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "ends it when dropped")] Holds);

/// What a turn holds.
#[derive(Debug)]
enum Holds {
    Memory(#[expect(dead_code, reason = "ends the turn when dropped")] OwnedMutexGuard<()>),
    File(#[expect(dead_code, reason = "ends the turn when dropped")] std::fs::File),
    Shared(#[expect(dead_code, reason = "ends the turn when dropped")] DropGuard),
}

/// What is wrong with a vault. None of these means that something is absent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VaultError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a grant is {0}")]
    Sealed(#[from] OpenError),
    #[error(transparent)]
    Keys(#[from] SealKeysError),
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    #[error("cannot use {}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The file was left as it is, and nothing is written to it.
    #[error("{} cannot be read and is left as it is: it is {reason}", path.display())]
    Damaged { path: PathBuf, reason: OpenError },
    /// Only where: what the parser says of it may quote it.
    #[error("what is in the vault is not what Bowline writes, at its byte {0}")]
    Malformed(usize),
    #[error("a newer Bowline wrote to the vault (layout {found}, and this one knows {known})")]
    Newer { found: u8, known: u8 },
    #[error("{what} was taken for longer than {}", humantime::format_duration(*.within))]
    Taken {
        what: &'static str,
        within: Duration,
    },
    #[error("too many write to one grant at once")]
    Contended,
    #[error("the vault's work was given up")]
    GivenUp,
}

// === impl Vault ===

impl fmt::Display for Vault {
    /// Where it is, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(_) => f.write_str("memory"),
            Self::File(file) => file.fmt(f),
            Self::Shared(_) => f.write_str("the store that gateways share"),
        }
    }
}

impl Vault {
    /// A caller's grant. The value is `None` where there is none, or none any more.
    pub(crate) async fn grant(&self, key: &GrantKey) -> Result<Stored<Grant>, VaultError> {
        Stored::read(&self.load(&key.slot()).await?)
    }

    /// Writes a grant in place of this version. `None`: something else is there by now.
    pub(crate) async fn put_grant(
        &self,
        grant: &Grant,
        replaces: Version,
    ) -> Result<Option<Version>, VaultError> {
        let value = slot::written(Some(grant))?;
        self.write(&grant.key().slot(), replaces, &value).await
    }

    /// Takes a grant out, if it is still this version. `false`: something else is there by now.
    pub(crate) async fn remove_grant(
        &self,
        key: &GrantKey,
        replaces: Version,
    ) -> Result<bool, VaultError> {
        let value = slot::written::<Grant>(None)?;
        let written = self.write(&key.slot(), replaces, &value).await?;
        Ok(written.is_some())
    }

    /// Which grant a caller has at a server.
    pub(crate) async fn signed_in(
        &self,
        caller: &str,
        server_url: &str,
    ) -> Result<Stored<SignIn>, VaultError> {
        Stored::read(&self.load(&sign_in_slot(caller, server_url)).await?)
    }

    /// Writes which grant a caller has at a server in place of this version. `false`: something else
    /// is there by now.
    pub(crate) async fn put_signed_in(
        &self,
        sign_in: &SignIn,
        replaces: Version,
    ) -> Result<bool, VaultError> {
        let slot = sign_in_slot(&sign_in.caller, &sign_in.server_url);
        let value = slot::written(Some(sign_in))?;
        Ok(self.write(&slot, replaces, &value).await?.is_some())
    }

    /// Who Bowline is at the authorization server of a server, if it registered there with this redirect
    /// URI. Servers that name one issuer are not the same client there: one would have a part in what
    /// people allow the other.
    pub(crate) async fn registration(
        &self,
        (server_url, issuer): (&str, &str),
        redirect_uri: &str,
    ) -> Result<Option<ClientIdentity>, VaultError> {
        let slot = registration_slot(server_url, issuer, redirect_uri);
        self.client(&slot).await
    }

    /// Keeps who Bowline is at the authorization server of a server; the last one counts.
    pub(crate) async fn put_registration(
        &self,
        (server_url, issuer): (&str, &str),
        client: &ClientIdentity,
    ) -> Result<(), VaultError> {
        let slot = registration_slot(server_url, issuer, &client.redirect_uri);
        self.put_client(&slot, client).await
    }

    /// Who Bowline is at an authorization server for one caller, who said so. It counts for nobody
    /// else: one caller does not decide for another.
    pub(crate) async fn named_client(
        &self,
        caller: &str,
        issuer: &str,
        redirect_uri: &str,
    ) -> Result<Option<ClientIdentity>, VaultError> {
        let slot = named_client_slot(caller, issuer, redirect_uri);
        self.client(&slot).await
    }

    /// Keeps who a caller said that Bowline is; the last one counts.
    pub(crate) async fn put_named_client(
        &self,
        caller: &str,
        issuer: &str,
        client: &ClientIdentity,
    ) -> Result<(), VaultError> {
        let slot = named_client_slot(caller, issuer, &client.redirect_uri);
        self.put_client(&slot, client).await
    }

    /// Forgets who Bowline is at the authorization server of a server, for all callers and for this one,
    /// if it is still this client.
    pub(crate) async fn forget_client(
        &self,
        caller: &str,
        (server_url, issuer): (&str, &str),
        client: &ClientIdentity,
    ) -> Result<(), VaultError> {
        let nobody = slot::written::<ClientIdentity>(None)?;
        let uri = &client.redirect_uri;
        for slot in [
            registration_slot(server_url, issuer, uri),
            named_client_slot(caller, issuer, uri),
        ] {
            let stored: Stored<ClientIdentity> = Stored::read(&self.load(&slot).await?)?;
            if stored.value.is_some_and(|known| known.id == client.id) {
                // Whoever was faster knows better.
                self.write(&slot, stored.version, &nobody).await?;
            }
        }
        Ok(())
    }

    async fn client(&self, slot: &Key) -> Result<Option<ClientIdentity>, VaultError> {
        let found = Stored::read(&self.load(slot).await?)?.value;
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

    /// Keeps a sign-in and its grant from being thrown away because nobody writes to them.
    pub(crate) async fn is_used(
        &self,
        caller: &str,
        server_url: &str,
        key: &GrantKey,
    ) -> Result<(), VaultError> {
        self.touch(&sign_in_slot(caller, server_url)).await?;
        self.touch(&key.slot()).await
    }

    /// Waits for the turn to refresh this grant.
    pub(crate) async fn turn(&self, key: &GrantKey) -> Result<Turn, VaultError> {
        let slot = key.slot();
        let taking = async {
            match self {
                Self::Memory(memory) => Ok(Holds::Memory(memory.turn(&slot).await)),
                Self::File(file) => Ok(Holds::File(file.turn(&slot).await?)),
                Self::Shared(shared) => Ok(Holds::Shared(shared.turn(&slot).await?)),
            }
        };
        match tokio::time::timeout(TURN_WITHIN, taking).await {
            Ok(taken) => taken.map(Turn),
            Err(_) => Err(VaultError::Taken {
                what: "the turn to refresh a grant",
                within: TURN_WITHIN,
            }),
        }
    }

    /// Everybody who is signed in, where this can be told without asking for each.
    pub(crate) async fn all_signed_in(&self) -> Result<Vec<SignIn>, VaultError> {
        let slots = match self {
            Self::File(file) => file.all(SIGN_IN).await?,
            Self::Memory(_) | Self::Shared(_) => Vec::new(),
        };
        let sign_ins = slots.iter().map(|slot| Ok(Stored::read(slot)?.value));
        let sign_ins: Result<Vec<Option<SignIn>>, VaultError> = sign_ins.collect();
        let is_signed_in = |sign_in: &SignIn| sign_in.grant.is_some();
        Ok(sign_ins?
            .into_iter()
            .flatten()
            .filter(is_signed_in)
            .collect())
    }

    /// Whether somebody wrote to it since this was asked last, where that costs next to nothing to
    /// know.
    pub(crate) async fn was_written_to(&self) -> bool {
        match self {
            Self::File(file) => file.was_written_to().await,
            Self::Memory(_) | Self::Shared(_) => false,
        }
    }

    async fn load(&self, key: &Key) -> Result<Slot, VaultError> {
        match self {
            Self::Memory(memory) => Ok(memory.load(key)),
            Self::File(file) => file.load(key).await,
            Self::Shared(shared) => shared.load(key).await,
        }
    }

    async fn write(
        &self,
        key: &Key,
        replaces: Version,
        value: &str,
    ) -> Result<Option<Version>, VaultError> {
        match self {
            Self::Memory(memory) => Ok(memory.write(key, replaces, value)),
            Self::File(file) => file.write(key, replaces, value).await,
            Self::Shared(shared) => shared.write(key, replaces, value).await,
        }
    }

    async fn touch(&self, key: &Key) -> Result<(), VaultError> {
        match self {
            // What is there stays there.
            Self::Memory(_) | Self::File(_) => Ok(()),
            Self::Shared(shared) => shared.touch(key).await,
        }
    }
}

// === impl VaultError ===

impl From<serde_json::Error> for VaultError {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error.column())
    }
}

// === impl GrantKey ===

impl GrantKey {
    fn slot(&self) -> Key {
        let belongs_to = [
            self.caller.as_str(),
            &self.issuer,
            &self.resource,
            &self.client_id,
        ];
        Key::named("grant", &belongs_to)
    }
}

fn sign_in_slot(caller: &str, server_url: &str) -> Key {
    Key::named(SIGN_IN, &[caller, server_url])
}

fn registration_slot(server_url: &str, issuer: &str, redirect_uri: &str) -> Key {
    Key::named("registration", &[server_url, issuer, redirect_uri])
}

fn named_client_slot(caller: &str, issuer: &str, redirect_uri: &str) -> Key {
    Key::named("named-client", &[caller, issuer, redirect_uri])
}
