//! Memory for what callers send, taken in units and divided among them like any other limit.

use std::sync::Arc;

use bytes::Bytes;

use super::{Permit, ServerShares, Share, held_until_gone};
use crate::caller::Caller;

/// Memory of one kind. What is no larger than a unit is not counted: what bounds it is the number of such things.
#[derive(Debug)]
pub(crate) struct Memory {
    unit: usize,
    units: Arc<Share>,
    callers: ServerShares,
}

/// A part of it that is in use. Dropping it returns it.
#[derive(Debug, Default)]
pub(crate) struct Room(Vec<Permit>);

// === impl Memory ===

impl Memory {
    /// This many units of so many bytes, for this number of callers.
    pub(crate) fn new(units: usize, unit: usize, callers: usize) -> Self {
        let units = Share::common(units);
        let memory = Self {
            unit,
            callers: ServerShares::of(&units),
            units,
        };
        memory.share_out(callers);
        memory
    }

    /// Divides the memory among this number of callers.
    pub(crate) fn share_out(&self, callers: usize) {
        self.units.share_out(1, callers);
    }

    /// Room for so many bytes of a caller's; `None` if there is none.
    pub(crate) fn take(&self, caller: &Caller, bytes: usize) -> Option<Room> {
        let mut room = Room::default();
        self.grow(&mut room, caller, bytes)?;
        Some(room)
    }

    /// Makes a caller's room large enough for so many bytes.
    pub(crate) fn grow(&self, room: &mut Room, caller: &Caller, bytes: usize) -> Option<()> {
        if bytes > self.unit {
            let share = self.callers.of_caller(caller);
            while bytes > room.0.len() * self.unit {
                room.0.push(share.take()?);
            }
        }
        Some(())
    }

    /// How many bytes are in use.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.units.taken_by_all() * self.unit
    }
}

// === impl Room ===

impl Room {
    /// The bytes that it was taken for, which hold it until their last copy is gone.
    pub(crate) fn until_gone(self, bytes: Bytes) -> Bytes {
        match self.0.is_empty() {
            true => bytes,
            false => held_until_gone(bytes, self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_held_until_the_last_copy_is_gone() {
        let memory = Memory::new(4, 100, 1);
        let take = |bytes| memory.take(&Caller::Local, bytes);
        assert!(take(401).is_none());
        assert_eq!(memory.taken(), 0);
        // Up to a unit nothing is counted.
        let small = take(100).unwrap();
        assert_eq!(memory.taken(), 0);
        let large = take(301).unwrap().until_gone(vec![0; 301].into());
        assert_eq!(memory.taken(), 400);
        assert!(take(101).is_none());
        let part = large.slice(1..2);
        drop((large, small));
        assert!(take(101).is_none());
        drop(part);
        assert_eq!(memory.taken(), 0);
    }
}
