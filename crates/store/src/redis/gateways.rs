//! Which gateways there are.
//!
//! `PREFIX:gateways` lists them: a hash with what each of them says of itself, after the time until which it is
//! present. That time is never over, because a full Redis refuses to write another one. A gateway is present for as
//! long as a key of its own exists, `PREFIX:gateway:{NAME}`, and to renew that takes no room.
//!
//! A key that has expired does not come back: its gateway is listed again under another name, with another key. So
//! what is forgotten under a name that was silent is not a gateway that has just come back.
//!
//! Older gateways have no such key: they look at the list alone, and write there until when they are present. They
//! take a newer one for present until it has left, or another newer one has it forgotten.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::cmd;

use super::{Redis, millis};
use crate::{ListedGateway, Presence, StoreError};

/// The time of a gateway that has a key of its own: far away, for those that look at nothing else.
const HAS_KEY: &str = "9999999999999";

// === impl Redis ===

impl Redis {
    pub(in crate::redis) fn gateways_key(&self) -> String {
        format!("{}:gateways", self.prefix)
    }

    /// The key of a gateway that is listed under this name.
    fn gateway_key(&self, name: &str) -> String {
        format!("{}:gateway:{{{name}}}", self.prefix)
    }

    pub(crate) async fn appear(&self, me: &Presence, ttl: Duration) -> Result<(), StoreError> {
        let presence =
            serde_json::to_string(me).map_err(|error| StoreError::Damaged(error.to_string()))?;
        // The key comes first: without it, what is listed may be forgotten.
        let name = self.renewed(&me.id, ttl).await?;
        let mut list = cmd("HSET");
        list.arg(self.gateways_key()).arg(name);
        list.arg(format!("{HAS_KEY} {presence}"));
        self.ask(list.query_async(&mut self.connection())).await
    }

    /// Renews the key of this gateway, or makes the next one; its name.
    async fn renewed(&self, id: &str, ttl: Duration) -> Result<String, StoreError> {
        let (now, mut connection) = (self.appearances.load(Ordering::Relaxed), self.connection());
        if now > 0 {
            let name = appearance(id, now);
            let mut renew = cmd("PEXPIRE");
            renew.arg(self.gateway_key(&name)).arg(millis(ttl));
            #[cfg(feature = "planted")]
            if crate::planted::presence_takes_room() {
                renew = cmd("SET");
                renew.arg(self.gateway_key(&name)).arg("");
                renew.arg("PX").arg(millis(ttl));
            }
            if self.ask(renew.query_async(&mut connection)).await? {
                return Ok(name);
            }
        }
        let name = appearance(id, now + 1);
        let mut make = cmd("SET");
        make.arg(self.gateway_key(&name)).arg("");
        make.arg("PX").arg(millis(ttl));
        self.ask(make.query_async::<()>(&mut connection)).await?;
        self.appearances.store(now + 1, Ordering::Relaxed);
        Ok(name)
    }

    pub(crate) async fn leave(&self, id: &str) -> Result<(), StoreError> {
        let (last, mut connection) = (self.appearances.load(Ordering::Relaxed), self.connection());
        if last == 0 {
            return Ok(());
        }
        let mut unlist = cmd("HDEL");
        unlist.arg(self.gateways_key());
        for number in 1..=last {
            unlist.arg(appearance(id, number));
        }
        self.ask(unlist.query_async::<()>(&mut connection)).await?;
        let mut remove = cmd("DEL");
        remove.arg(self.gateway_key(&appearance(id, last)));
        self.ask(remove.query_async(&mut connection)).await
    }

    pub(crate) async fn gateways(&self) -> Result<Vec<ListedGateway>, StoreError> {
        let (reading, mut connection) = (
            self.scripts.gateways.key(self.gateways_key()),
            self.connection(),
        );
        let (now, listed): (u64, Vec<(String, Vec<u8>)>) =
            self.ask(reading.invoke_async(&mut connection)).await?;
        let mut gateways: Vec<ListedGateway> = listed
            .into_iter()
            .map(|(name, said)| read(name, said, now))
            .collect();
        let with_key = gateways.iter_mut().filter(|one| has_key(&one.said));
        let with_key: Vec<&mut ListedGateway> = with_key.collect();
        let mut asking = redis::pipe();
        for gateway in &with_key {
            asking.cmd("PTTL").arg(self.gateway_key(&gateway.name));
        }
        if !with_key.is_empty() {
            let left: Vec<i64> = self.ask(asking.query_async(&mut connection)).await?;
            for (gateway, left) in with_key.into_iter().zip(left) {
                // Negative: there is no such key. One that has less than a millisecond can still be renewed.
                let left = u64::try_from(left).map(|left| left.max(1));
                gateway.left = Duration::from_millis(left.unwrap_or(0));
            }
        }
        gateways.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(gateways)
    }

    pub(crate) async fn forget(&self, gone: &ListedGateway) -> Result<(), StoreError> {
        let mut call = self.scripts.forget.key(self.gateways_key());
        call.arg(&*gone.name).arg(&*gone.said);
        self.ask(call.invoke_async(&mut self.connection())).await
    }
}

/// The name of a gateway when it became present for the so-manieth time.
fn appearance(id: &str, number: u64) -> String {
    format!("{id}/{number}")
}

fn has_key(said: &[u8]) -> bool {
    until(said).is_some_and(|(until, _)| until == HAS_KEY.as_bytes())
}

/// The time, and what follows.
fn until(said: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = said.iter().position(|byte| *byte == b' ')?;
    Some((&said[..space], &said[space + 1..]))
}

/// What the list has under a name, at this time of Redis's clock.
fn read(name: String, said: Vec<u8>, now: u64) -> ListedGateway {
    // One that cannot be read, of another version or damaged, must not hide the others.
    let (until, presence) = until(&said).unwrap_or_default();
    let until = std::str::from_utf8(until)
        .ok()
        .and_then(|it| it.parse().ok());
    ListedGateway {
        presence: serde_json::from_slice(presence).ok(),
        left: Duration::from_millis(until.unwrap_or(0_u64).saturating_sub(now)),
        name: name.into(),
        said: said.into(),
    }
}
