//! Where sessions are kept, as meant.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bowline_store::sealed::SealKeys;
use bowline_store::{Password, RedisSettings, StoreAddress, StoreSettings};

/// Where sessions are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// In what.
    pub kind: StoreKind,
    /// Whether it is in memory only because no path is configured and the user has no state directory.
    pub lacks_state_directory: bool,
    /// How long to wait for it.
    pub timeout: Duration,
    /// How many sessions are kept in the cache.
    pub cache: usize,
    /// How long sessions in the cache keep working while the store is unavailable.
    pub grace: Duration,
    /// The keys that seal what is stored, if the environment has them; never in a file of
    /// configuration.
    pub seal_keys: Option<SealKeys>,
    /// Where they are otherwise.
    pub seal_keys_file: Option<PathBuf>,
}

/// The kind of store that keeps sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreKind {
    /// In this process; sessions end with it.
    #[default]
    Memory,
    /// On this machine, for one gateway.
    File {
        /// The directory.
        path: PathBuf,
    },
    /// In a Redis or Valkey, for any number of gateways.
    Redis(RedisStore),
}

/// A Redis that keeps sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisStore {
    /// `redis://` or `rediss://`, host and port, and perhaps the number of a database.
    pub url: http::Uri,
    /// As whom to use it.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Password>,
    /// The certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// What its keys begin with.
    pub prefix: String,
    /// What happens if it is not there at the start.
    pub on_unreachable_start: OnUnreachable,
}

/// What happens if the store is not there at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnreachable {
    /// The gateway tries again until it is.
    #[default]
    Wait,
    /// The gateway gives up.
    Exit,
}

impl Store {
    /// Whether a store that is not there at the start is a reason not to start.
    pub(crate) fn gives_up_at_start(&self) -> bool {
        match &self.kind {
            StoreKind::Redis(redis) => redis.on_unreachable_start == OnUnreachable::Exit,
            StoreKind::Memory | StoreKind::File { .. } => true,
        }
    }

    /// What it takes to open the store.
    pub(crate) fn settings(&self) -> StoreSettings {
        let place = match &self.kind {
            StoreKind::Memory => StoreAddress::Memory,
            StoreKind::File { path } => StoreAddress::File {
                directory: path.clone(),
            },
            StoreKind::Redis(redis) => StoreAddress::Redis(RedisSettings {
                url: redis.url.to_string(),
                user: redis.user.clone(),
                password: redis.password.clone(),
                ca_file: redis.ca_file.clone(),
                prefix: redis.prefix.clone(),
            }),
        };
        StoreSettings {
            place,
            timeout: self.timeout,
            seal_keys: self.seal_keys.clone(),
            seal_keys_file: self.seal_keys_file.clone(),
        }
    }
}

/// Where it is, for logs: a directory, or a URL without credentials.
impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::File { path } => write!(f, "{}", path.display()),
            Self::Redis(redis) => write!(f, "{}", redis.url),
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self {
            kind: StoreKind::default(),
            lacks_state_directory: false,
            timeout: Duration::from_secs(2),
            cache: 10_000,
            grace: Duration::from_secs(30),
            seal_keys: None,
            seal_keys_file: None,
        }
    }
}
