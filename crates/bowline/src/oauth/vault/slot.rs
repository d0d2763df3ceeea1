//! What is in a slot: one value of one kind, with the layout that it is written in.

use std::collections::HashMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{NEVER_WRITTEN, VaultError};
use crate::store::{Key, Version};

/// The layout that this Bowline writes; it reads this one and older ones.
const LAYOUT: u8 = 1;

/// A slot as it lies in a vault.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Slot {
    pub(super) version: Version,
    /// Empty in one that nobody wrote.
    pub(super) value: String,
}

/// The slots of a vault that has them all at hand.
pub(super) type Slots = HashMap<Box<str>, Slot>;

/// What a slot holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored<T> {
    pub(crate) version: Version,
    pub(crate) value: Option<T>,
}

#[derive(Serialize, Deserialize)]
struct Written<T> {
    layout: u8,
    value: Option<T>,
}

/// A value as it is written; `None` empties the slot.
pub(super) fn written<T: Serialize>(value: Option<&T>) -> Result<String, VaultError> {
    let layout = LAYOUT;
    Ok(serde_json::to_string(&Written { layout, value })?)
}

/// What [`written`] wrote.
pub(super) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<Option<T>, VaultError> {
    #[derive(Deserialize)]
    struct Layout {
        layout: u8,
    }
    match serde_json::from_slice::<Layout>(text)?.layout {
        found if found > LAYOUT => Err(VaultError::Newer {
            found,
            known: LAYOUT,
        }),
        _ => Ok(serde_json::from_slice::<Written<T>>(text)?.value),
    }
}

/// What is in this slot.
pub(super) fn find(slots: &Slots, key: &Key) -> Slot {
    slots.get(key.as_str()).cloned().unwrap_or_default()
}

/// Writes to a slot, if this is what it replaces.
pub(super) fn replace(
    slots: &mut Slots,
    key: &Key,
    replaces: Version,
    value: &str,
) -> Option<Version> {
    let slot = slots.entry(key.as_str().into()).or_default();
    if slot.version != replaces {
        return None;
    }
    *slot = Slot {
        version: replaces.next(),
        value: value.to_owned(),
    };
    Some(slot.version)
}

// === impl Slot ===

impl Default for Slot {
    fn default() -> Self {
        Self {
            version: NEVER_WRITTEN,
            value: String::new(),
        }
    }
}

// === impl Stored ===

impl<T: DeserializeOwned> Stored<T> {
    pub(super) fn read(slot: &Slot) -> Result<Self, VaultError> {
        let version = slot.version;
        let value = match version {
            NEVER_WRITTEN => None,
            _ => parse(slot.value.as_bytes())?,
        };
        Ok(Self { version, value })
    }
}
