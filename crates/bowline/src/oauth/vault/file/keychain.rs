//! The key of the grants file in the system's keychain.
//!
//! A keychain is another program, which may be locked, ask its user, or hang. So it is called on a separate
//! thread, with a timeout.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bowline_store::private;
use bowline_store::sealed::{SealKeys, SealKeysError};
use keyring::{Entry, Error};

const SERVICE: &str = "bowline";
const ACCOUNT: &str = "grants";

/// How long a keychain may take if a key file would do as well.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// How long it may take if nothing else has the key: it may ask its user for a password.
const OPENS_WITHIN: Duration = Duration::from_secs(60);

/// The lock held while the key is created, beside the sealed file.
const LOCK_FILE: &str = "keychain.lock";

/// Checks that there is a usable keychain, or says what is wrong with it.
pub(super) fn answers() -> Result<(), String> {
    asked(ANSWERS_WITHIN, || entry()?.found()).map(drop)
}

/// The keys that seal this file; created, if there are none and there is no file.
pub(super) fn keys(sealed: &Path) -> Result<SealKeys, SealKeysError> {
    let unusable = |reason| SealKeysError::Keychain {
        sealed: sealed.to_owned(),
        reason,
    };
    let find = || asked(OPENS_WITHIN, || entry()?.found()).map_err(unusable);
    if let Some(text) = find()? {
        return SealKeys::parse(&text);
    }
    let lock = sealed.with_file_name(LOCK_FILE);
    let _lock = locked(&lock).map_err(|source| SealKeysError::File { path: lock, source })?;
    // Another process may have created it meanwhile; and a new key would not open an existing file.
    if let Some(text) = find()? {
        return SealKeys::parse(&text);
    }
    if sealed.exists() {
        return Err(unusable("does not have it".to_owned()));
    }
    let key = SealKeys::generate()?;
    let made = key.clone();
    asked(OPENS_WITHIN, move || entry()?.0.set_password(&made)).map_err(unusable)?;
    SealKeys::parse(&find()?.unwrap_or(key))
}

/// Bowline's entry in the keychain.
struct KeychainEntry(Entry);

fn entry() -> keyring::Result<KeychainEntry> {
    // `Entry::new` would say only that there is no keychain, and not why.
    if let Err(error) = Entry::store_status() {
        return Err(Error::PlatformFailure(error.to_string().into()));
    }
    Entry::new(SERVICE, ACCOUNT).map(KeychainEntry)
}

impl KeychainEntry {
    fn found(&self) -> keyring::Result<Option<String>> {
        match self.0.get_password() {
            Ok(text) => Ok(Some(text)),
            Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn asked<T: Send + 'static>(
    within: Duration,
    ask: impl FnOnce() -> keyring::Result<T> + Send + 'static,
) -> Result<T, String> {
    let (tell, told) = mpsc::channel();
    // It is no failure if the timeout has passed.
    thread::spawn(move || tell.send(ask()).ok());
    match told.recv_timeout(within) {
        Ok(Ok(answer)) => Ok(answer),
        // The error's text may quote the entry.
        Ok(Err(Error::BadEncoding(_) | Error::BadDataFormat(..))) => {
            Err("has something else in its place".to_owned())
        }
        Ok(Err(error)) => Err(format!("cannot be used: {error}")),
        Err(_) => Err(format!(
            "does not answer within {}",
            humantime::format_duration(within)
        )),
    }
}

fn locked(path: &Path) -> io::Result<fs::File> {
    let lock = private::options().create(true).truncate(false).open(path)?;
    lock.lock()?;
    Ok(lock)
}
