//! A slot's content: one value, with the layout version it is written in.

use std::collections::HashMap;

use bowline_store::{Key, Version};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{NEVER_WRITTEN, VaultError};

/// The layout version that this Bowline writes; it reads this one and older ones.
const LAYOUT: u8 = 1;

/// A slot as it is stored in a vault.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Slot {
    pub(super) version: Version,
    /// Empty in a slot that was never written.
    pub(super) value: String,
}

/// All slots of a vault that has them in memory.
pub(super) type Slots = HashMap<Box<str>, Slot>;

/// A slot's value and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredValue<T> {
    pub(crate) version: Version,
    pub(crate) value: Option<T>,
}

#[derive(Serialize, Deserialize)]
struct SlotContent<T> {
    layout: u8,
    value: Option<T>,
}

/// Serializes a value; `None` empties the slot.
pub(super) fn written<T: Serialize>(value: Option<&T>) -> Result<String, VaultError> {
    let layout = LAYOUT;
    Ok(serde_json::to_string(&SlotContent { layout, value })?)
}

/// Parses what [`written`] serialized.
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
        _ => Ok(serde_json::from_slice::<SlotContent<T>>(text)?.value),
    }
}

/// The slot with this key.
pub(super) fn find(slots: &Slots, key: &Key) -> Slot {
    slots.get(key.as_str()).cloned().unwrap_or_default()
}

/// Writes to a slot, if it has the version that the write replaces.
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

// === impl StoredValue ===

impl<T: DeserializeOwned> StoredValue<T> {
    pub(super) fn read(slot: &Slot) -> Result<Self, VaultError> {
        let version = slot.version;
        let value = match version {
            NEVER_WRITTEN => None,
            _ => parse(slot.value.as_bytes())?,
        };
        Ok(Self { version, value })
    }
}
