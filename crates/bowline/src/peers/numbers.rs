//! Which forwards were taken: each number of a sender once.
//!
//! A sender counts up, and its forwards may overtake each other. So the latest ones are remembered one by one, and
//! what is older than those is refused, taken or not. Senders are remembered for as long as this gateway runs: what
//! one of them sent could otherwise be replayed once it is forgotten. Only who knows the secret gets here.

use std::collections::HashMap;

use parking_lot::Mutex;

/// How many of a sender's latest numbers are remembered.
const WINDOW: usize = 16 * 1024;
const WORDS: usize = WINDOW / 64;
/// How many senders are remembered. Each start of a gateway is one more.
const SENDERS: usize = 4096;

/// Which numbers were taken, by sender.
#[derive(Debug, Default)]
pub(super) struct Numbers(Mutex<HashMap<Box<str>, Window>>);

/// The latest numbers of one sender.
#[derive(Debug)]
struct Window {
    highest: u64,
    /// A bit for each of the last [`WINDOW`] numbers, at its remainder.
    taken: Box<[u64; WORDS]>,
}

impl Numbers {
    /// Takes a number. `false`: it was taken before, or may have been.
    pub(super) fn take(&self, sender: &str, number: u64) -> bool {
        let mut senders = self.0.lock();
        if let Some(window) = senders.get_mut(sender) {
            return window.take(number);
        }
        if senders.len() >= SENDERS {
            tracing::warn!(
                limit = SENDERS,
                "too many gateways were started since this one; restart it so that it listens to new ones"
            );
            return false;
        }
        let window = senders.entry(sender.into()).or_insert(Window {
            highest: 0,
            taken: Box::new([0; WORDS]),
        });
        window.take(number)
    }
}

impl Window {
    fn take(&mut self, number: u64) -> bool {
        // Numbers begin at 1.
        if number == 0 || self.highest - self.highest.min(number) >= WINDOW as u64 {
            return false;
        }
        if number > self.highest {
            let passed = number - self.highest;
            match passed >= WINDOW as u64 {
                true => self.taken.fill(0),
                false => (self.highest + 1..=number).for_each(|one| self.set(one, false)),
            }
            self.highest = number;
        } else if self.is_set(number) {
            return false;
        }
        self.set(number, true);
        true
    }

    fn is_set(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.taken[word] & bit != 0
    }

    fn set(&mut self, number: u64, is_taken: bool) {
        let (word, bit) = place(number);
        match is_taken {
            true => self.taken[word] |= bit,
            false => self.taken[word] &= !bit,
        }
    }
}

fn place(number: u64) -> (usize, u64) {
    let at = number % WINDOW as u64;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_taken_once_in_any_order() {
        let numbers = Numbers::default();
        for number in [1, 3, 2, 5000, 4999, 4, 20_000] {
            assert!(numbers.take("a", number), "{number}");
        }
        for number in [0, 1, 2, 3, 4, 4999, 5000, 20_000] {
            assert!(!numbers.take("a", number), "{number} again");
        }
        // Not taken so far as is known, but that is not known.
        assert!(!numbers.take("a", 20_000 - WINDOW as u64));
        assert!(numbers.take("a", 20_001 - WINDOW as u64));
        assert!(numbers.take("b", 1));
    }

    #[test]
    fn a_leap_forgets_nothing_that_matters() {
        let numbers = Numbers::default();
        let window = WINDOW as u64;
        assert!(numbers.take("a", 5));
        assert!(numbers.take("a", 5 + window));
        assert!(!numbers.take("a", 5));
        assert!(numbers.take("a", 6) && !numbers.take("a", 6));
        assert!(numbers.take("a", 10 * window));
        assert!(numbers.take("a", 9 * window + 1) && !numbers.take("a", 9 * window));
        assert!(numbers.take("a", u64::MAX) && !numbers.take("a", u64::MAX));
    }

    /// Against the plain definition: taken means taken before, or below the window.
    #[test]
    fn the_window_is_what_a_set_would_be() {
        let (numbers, mut taken) = (Numbers::default(), std::collections::HashSet::new());
        let (mut highest, mut random) = (0_u64, 1_u64);
        for _ in 0..50_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let number = (highest + (random >> 50)).saturating_sub(WINDOW as u64 / 2);
            let is_new = number > 0 && number + WINDOW as u64 > highest && taken.insert(number);
            assert_eq!(
                numbers.take("a", number),
                is_new,
                "{number} after {highest}"
            );
            highest = highest.max(if is_new { number } else { 0 });
        }
    }
}
