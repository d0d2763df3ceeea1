//! What the records of sessions and attachments have in common: a layout, and a caller.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::record_error::{BadRecord, LAYOUT};
use crate::caller::Caller;
use crate::callers::Callers;

/// Reads a record, unless a newer release wrote it.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadRecord> {
    #[derive(Deserialize)]
    struct Layout {
        layout: u8,
    }
    match serde_json::from_slice::<Layout>(bytes)?.layout {
        newer if newer > LAYOUT => Err(BadRecord::Newer(newer)),
        _ => Ok(serde_json::from_slice(bytes)?),
    }
}

/// The caller of this name and key fingerprint; `None` is the local caller. A record without a fingerprint belongs to
/// whichever key has the name now.
pub(crate) fn caller(
    name: Option<&str>,
    key: Option<&str>,
    known: &Callers,
) -> Result<Caller, BadRecord> {
    let Some(name) = name else {
        return Ok(Caller::Local);
    };
    let name = name.parse().map_err(|_| BadRecord::Impossible("caller"))?;
    match key {
        None => Ok(known.named(name)),
        Some(key) => match key.parse() {
            Ok(key) => Ok(Caller::Named(name, Some(key))),
            Err(_) => Err(BadRecord::Impossible("key")),
        },
    }
}
