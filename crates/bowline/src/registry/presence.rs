//! The other gateways on the same store. A gateway with different keys or servers is reported before one
//! of its sessions arrives here.

use std::collections::BTreeMap;

use aws_lc_rs::rand;
use bowline_store::Presence;
use bowline_store::sealed::NoRandomness;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The other gateways, as last seen.
#[derive(Debug, Default)]
pub(crate) struct OtherGateways(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The settings in which each of them differs.
    others: BTreeMap<String, Vec<&'static str>>,
    /// How many presence entries cannot be read.
    unreadable: usize,
}

/// A random name for this gateway.
pub(crate) fn name() -> Result<Box<str>, NoRandomness> {
    let mut random = [0; 8];
    rand::fill(&mut random).map_err(|_| NoRandomness)?;
    Ok(hex(&random).into())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// === impl OtherGateways ===

impl OtherGateways {
    /// These are present, and so many that cannot be read.
    pub(crate) fn see<'a>(
        &self,
        me: &Presence,
        present: impl Iterator<Item = &'a Presence>,
        unreadable: usize,
    ) {
        let others = present.filter(|other| other.id != me.id);
        let seen: BTreeMap<_, _> = others
            .map(|other| {
                let opens = me.opens_what_is_sealed_by(other) && other.opens_what_is_sealed_by(me);
                let differ = [
                    ("seal keys", !opens),
                    ("servers", other.servers != me.servers),
                ];
                let differ = differ.into_iter().filter(|(_, differs)| *differs);
                let differ = differ.map(|(what, _)| what).collect::<Vec<_>>();
                (other.id.clone(), differ)
            })
            .collect();
        let mut known = self.0.lock();
        for (gateway, differ) in &seen {
            if !differ.is_empty() && known.others.get(gateway) != Some(differ) {
                tracing::warn!(
                    gateway,
                    "another gateway on this store has other {}: sessions of one fail on the other",
                    differ.join(" and ")
                );
            }
        }
        if unreadable > known.unreadable {
            tracing::warn!(
                count = unreadable,
                "cannot read the presence of other gateways on this store"
            );
        }
        *known = Known {
            others: seen,
            unreadable,
        };
    }

    /// The report for operators.
    pub(crate) fn told(&self) -> Value {
        let known = self.0.lock();
        let told = known
            .others
            .iter()
            .map(|(gateway, differ)| json!({"gateway": gateway, "differs_in": differ}));
        told.collect()
    }

    /// How many presence entries cannot be read.
    pub(crate) fn unreadable(&self) -> usize {
        self.0.lock().unreadable
    }
}
