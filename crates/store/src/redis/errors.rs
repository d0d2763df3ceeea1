//! What an error of Redis means for the caller.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::{Refusal, StoreError};

/// Why the store could not answer within this time.
pub(super) fn store_error(error: RedisError, timeout: Duration) -> StoreError {
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => StoreError::Timeout(timeout),
        // A cluster without a master, a replica, a server that still loads its file: all may recover.
        ErrorKind::Io
        | ErrorKind::ClusterConnectionNotFound
        | ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::TryAgain,
        ) => StoreError::unreachable(error),
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            StoreError::Damaged(error.to_string())
        }
        _ if error.code() == Some("WRONGTYPE") => StoreError::Damaged(error.to_string()),
        _ => refused(&error),
    }
}

/// Why Redis refused.
pub(super) fn refused(error: &RedisError) -> StoreError {
    let why = match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS")) => {
            Refusal::Credentials
        }
        (ErrorKind::Server(ServerErrorKind::NoPerm), _) => Refusal::Permission,
        (ErrorKind::Server(ServerErrorKind::ReadOnly), _) | (_, Some("NOREPLICAS")) => {
            Refusal::ReadOnly
        }
        (_, Some("OOM")) => Refusal::NoRoom,
        (_, Some("MISCONF")) => Refusal::CannotSave,
        _ => Refusal::Other,
    };
    StoreError::Refused {
        why,
        said: error.to_string(),
    }
}
