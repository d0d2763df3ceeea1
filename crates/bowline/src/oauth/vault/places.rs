//! Where a server was, by its name: callers have grants for every URL that it had, and sessions that were opened
//! there go on. A sign-out has to find them all, in vaults too that cannot list their sign-ins.

use super::slot::{self, StoredValue};
use super::{Vault, VaultError};
use bowline_store::{Key, MAX_CONFLICTS};

/// The most URLs that are remembered for a name; the oldest is forgotten.
const MAX_PLACES: usize = 16;

impl Vault {
    /// The URLs at which somebody signed in to the server with this name, the oldest first.
    pub(crate) async fn places(&self, server: &str) -> Result<Vec<String>, VaultError> {
        let slot = places_slot(server);
        let places = StoredValue::read(&self.load(&slot).await?)?.value;
        Ok(places.unwrap_or_default())
    }

    /// Notes that somebody signs in at this URL, to the server with this name.
    pub(crate) async fn note_place(
        &self,
        server: &str,
        server_url: &str,
    ) -> Result<(), VaultError> {
        let slot = places_slot(server);
        for _ in 0..MAX_CONFLICTS {
            let stored = StoredValue::<Vec<String>>::read(&self.load(&slot).await?)?;
            let mut places = stored.value.unwrap_or_default();
            if places.last().is_some_and(|last| last == server_url) {
                return self.touch(&slot).await;
            }
            places.retain(|place| place != server_url);
            places.push(server_url.to_owned());
            let surplus = places.len().saturating_sub(MAX_PLACES);
            places.drain(..surplus);
            let value = slot::written(Some(&places))?;
            if self.write(&slot, stored.version, &value).await?.is_some() {
                return Ok(());
            }
        }
        Err(VaultError::Contended)
    }
}

fn places_slot(server: &str) -> Key {
    Key::named("places", &[server])
}
