//! The vault: where grants are stored, with the sign-ins and the client registrations.
//!
//! A vault has versioned slots. This module decides what a slot contains; the kind of vault decides how it is
//! stored: in this process, in a sealed file that processes of one machine share, or sealed in the store that
//! gateways share. All kinds obey these laws:
//!
//! 1. A slot that was never written has version 0 and is empty. A write names the version that it replaces
//!    and creates the next; of several writes that name the same version, one wins.
//! 2. A removal leaves an empty slot with the next version, so that a late writer notices a conflict.
//! 3. After a successful write, every later load finds it, from any process or gateway on this vault.
//! 4. The claim to refresh a grant has one holder at a time, and none after its holder died.
//! 5. An error means that nothing is known: neither that a value is absent nor that it was not written.

mod clients;
mod file;
mod memory;
mod places;
mod shared;
mod slot;
#[cfg(test)]
pub(super) mod tests;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bowline_store::sealed::{NoRandomness, OpenError, SealKeysError};
use bowline_store::{EntryError, Key, StoreError, Version};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::DropGuard;

pub(crate) use self::clients::Registrar;
pub(crate) use self::file::File;
#[cfg(test)]
pub(crate) use self::file::KeySource;
pub(crate) use self::memory::Memory;
pub(crate) use self::shared::Shared;
use self::slot::Slot;
pub(crate) use self::slot::StoredValue;
use super::grant::{Grant, GrantKey};

/// The version of a slot that was never written.
pub(crate) const NEVER_WRITTEN: Version = Version(0);

/// How long a claim is waited for: longer than a refresh and the lease of a dead holder.
const CLAIM_WITHIN: Duration = Duration::from_secs(60);
/// How often a claim is retried.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The same for the claim to show a sign-in, which people hold for minutes.
const SIGN_IN_LOOK_EVERY: Duration = Duration::from_millis(500);

/// The kind of the slots of sign-ins.
const SIGN_IN: &str = "sign-in";

/// A vault. Every kind obeys the laws above.
#[derive(Debug)]
pub(crate) enum Vault {
    /// In this process; grants are lost when it ends.
    Memory(Memory),
    /// In a sealed file that processes of this machine share.
    File(File),
    /// Sealed in a store that gateways share.
    Shared(Shared),
}

/// Whether a caller is signed in at a server, and with which grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SignIn {
    pub(crate) caller: String,
    pub(crate) server_url: String,
    /// `None` after a sign-out.
    pub(crate) grant: Option<GrantKey>,
    /// The number of the last sign-in.
    pub(crate) number: u64,
    /// How often the caller was signed out, signed in or not.
    #[serde(default, rename = "outs")]
    pub(crate) sign_outs: u64,
}

/// A claim, such as that to refresh a grant: nobody else has it until this is dropped, or its holder dies.
#[derive(Debug)]
pub(crate) struct Claim(#[expect(dead_code, reason = "ends it when dropped")] ClaimGuard);

/// What a claim holds.
#[derive(Debug)]
enum ClaimGuard {
    Memory(#[expect(dead_code, reason = "ends the claim when dropped")] OwnedMutexGuard<()>),
    File(#[expect(dead_code, reason = "ends the claim when dropped")] std::fs::File),
    Shared(#[expect(dead_code, reason = "ends the claim when dropped")] DropGuard),
}

/// Why a vault operation failed. None of these means that a value is absent.
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
    /// The file was left unchanged, and nothing is written to it.
    #[error("{} cannot be read and was left unchanged: it is {reason}", path.display())]
    Damaged { path: PathBuf, reason: OpenError },
    /// Only the position: the parser's message may quote a secret.
    #[error("the vault's content is malformed at byte {0}")]
    Malformed(usize),
    #[error(
        "the vault was written by a newer Bowline (layout {found}; this one reads up to {known})"
    )]
    Newer { found: u8, known: u8 },
    #[error("{what} was locked for longer than {}", humantime::format_duration(*.within))]
    Busy {
        what: &'static str,
        within: Duration,
    },
    #[error("too many concurrent writes to one grant")]
    Contended,
    #[error("the vault operation was aborted")]
    GivenUp,
}

// === impl VaultError ===

impl From<EntryError> for VaultError {
    fn from(error: EntryError) -> Self {
        match error {
            EntryError::Store(error) => Self::Store(error),
            EntryError::Sealed(error) => Self::Sealed(error),
            EntryError::NoRandomness(error) => Self::NoRandomness(error),
            EntryError::Contended => Self::Contended,
        }
    }
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
    /// A caller's grant. The value is `None` if there is none.
    pub(crate) async fn grant(&self, key: &GrantKey) -> Result<StoredValue<Grant>, VaultError> {
        StoredValue::read(&self.load(&key.slot()).await?)
    }

    /// Writes a grant in place of this version. `None`: there was a conflict.
    pub(crate) async fn put_grant(
        &self,
        grant: &Grant,
        replaces: Version,
    ) -> Result<Option<Version>, VaultError> {
        let value = slot::written(Some(grant))?;
        self.write(&grant.key().slot(), replaces, &value).await
    }

    /// Removes a grant, if it is still this version. `false`: there was a conflict.
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
    ) -> Result<StoredValue<SignIn>, VaultError> {
        StoredValue::read(&self.load(&sign_in_slot(caller, server_url)).await?)
    }

    /// Writes which grant a caller has at a server in place of this version. `false`: there was a conflict.
    pub(crate) async fn put_signed_in(
        &self,
        sign_in: &SignIn,
        replaces: Version,
    ) -> Result<bool, VaultError> {
        let slot = sign_in_slot(&sign_in.caller, &sign_in.server_url);
        let value = slot::written(Some(sign_in))?;
        Ok(self.write(&slot, replaces, &value).await?.is_some())
    }

    /// Keeps a sign-in and its grant from expiring, although they are not written to.
    pub(crate) async fn mark_used(
        &self,
        caller: &str,
        server_url: &str,
        key: &GrantKey,
    ) -> Result<(), VaultError> {
        self.touch(&sign_in_slot(caller, server_url)).await?;
        self.touch(&key.slot()).await
    }

    /// Waits for the claim to refresh this grant.
    pub(crate) async fn claim_refresh(&self, key: &GrantKey) -> Result<Claim, VaultError> {
        match tokio::time::timeout(CLAIM_WITHIN, self.claim(&key.slot(), LOOK_EVERY / 5)).await {
            Ok(taken) => taken,
            Err(_) => Err(VaultError::Busy {
                what: "the claim to refresh a grant",
                within: CLAIM_WITHIN,
            }),
        }
    }

    /// Waits for the claim to show a person a sign-in of this account.
    pub(crate) async fn claim_sign_in(
        &self,
        caller: &str,
        server_url: &str,
    ) -> Result<Claim, VaultError> {
        let slot = sign_in_slot(caller, server_url);
        self.claim(&slot, SIGN_IN_LOOK_EVERY).await
    }

    /// Waits for a claim. Where nobody tells that it is free, this tries so often.
    async fn claim(&self, slot: &Key, every: Duration) -> Result<Claim, VaultError> {
        Ok(Claim(match self {
            Self::Memory(memory) => ClaimGuard::Memory(memory.claim(slot).await),
            Self::File(file) => ClaimGuard::File(file.claim(slot, every).await?),
            Self::Shared(shared) => ClaimGuard::Shared(shared.claim(slot).await?),
        }))
    }

    /// All sign-ins, if this kind of vault can list them.
    pub(crate) async fn all_signed_in(&self) -> Result<Vec<SignIn>, VaultError> {
        let slots = match self {
            Self::File(file) => file.all(SIGN_IN).await?,
            Self::Memory(_) | Self::Shared(_) => Vec::new(),
        };
        let sign_ins = slots.iter().map(|slot| Ok(StoredValue::read(slot)?.value));
        let sign_ins: Result<Vec<Option<SignIn>>, VaultError> = sign_ins.collect();
        let is_signed_in = |sign_in: &SignIn| sign_in.grant.is_some();
        Ok(sign_ins?
            .into_iter()
            .flatten()
            .filter(is_signed_in)
            .collect())
    }

    /// Whether the vault was written to since the last call, if this kind of vault can tell cheaply.
    pub(crate) async fn take_change(&self) -> bool {
        match self {
            Self::File(file) => file.take_change().await,
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
            // Nothing expires there.
            Self::Memory(_) | Self::File(_) => Ok(()),
            Self::Shared(shared) => shared.touch(key).await,
        }
    }
}

// === impl SignIn ===

impl SignIn {
    /// The record of an account without any sign-in or sign-out.
    pub(crate) fn none(caller: &str, server_url: &str) -> Self {
        Self {
            caller: caller.to_owned(),
            server_url: server_url.to_owned(),
            grant: None,
            number: 0,
            sign_outs: 0,
        }
    }

    /// Whether this record is older than another of the same account. Its numbers only grow, so one that is not
    /// older was written by somebody who did not know the other.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        let numbers = |one: &Self| (one.number, one.sign_outs);
        let is_behind = self.number <= other.number && self.sign_outs <= other.sign_outs;
        is_behind && numbers(self) != numbers(other)
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
