//! Where a Redis is, and how to connect to it.

use std::fmt;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{Client, IntoConnectionInfo as _, ProtocolVersion, RedisError, TlsCertificates};

use super::errors::refused;
use crate::StoreError;

/// Where a Redis is, and the credentials for it.
pub struct RedisAddress {
    /// `redis://` or `rediss://`, without credentials.
    pub url: String,
    /// The user to sign in as.
    pub user: Option<String>,
    /// The password of that user.
    pub password: Option<String>,
    /// The certificates (PEM) to trust; the platform's when `None`.
    pub trust: Option<Vec<u8>>,
    /// What every key begins with.
    pub prefix: String,
    /// The longest that one operation may take.
    pub timeout: Duration,
}

// === impl RedisAddress ===

impl RedisAddress {
    /// A client that has not connected yet.
    pub(super) fn client(&self) -> Result<Client, StoreError> {
        let refused = |error: RedisError| refused(&error);
        let info = self.url.as_str().into_connection_info().map_err(refused)?;
        // RESP3, so that announcements arrive as push messages.
        let mut settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3);
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        // A Redis whose machine is gone must not hold the connection for a quarter of an hour. The
        // system counts in seconds, and refuses zero.
        let probe = self.timeout.max(Duration::from_secs(1));
        let keep_alive = TcpKeepalive::new()
            .with_time(probe)
            .with_interval(probe)
            .with_retries(3);
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keep_alive);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(3 * self.timeout);
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        match &self.trust {
            None => Client::open(info),
            Some(trust) => Client::build_with_tls(
                info,
                TlsCertificates {
                    client_tls: None,
                    root_cert: Some(trust.clone()),
                },
            ),
        }
        .map_err(refused)
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisAddress")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
