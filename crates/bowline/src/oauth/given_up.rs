//! How often a registration at an authorization server is given up, to be made again.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::account_key::AccountKey;

/// How often a registration for a server is given up.
const PAUSE: Duration = Duration::from_secs(60);
/// How often one is given up because a caller did not come back from a sign-in, which a caller can bring about:
/// an authorization server that registers only so many clients would lock the others out. Each caller has a pause
/// of its own, so that none takes this way from the others.
const PAUSE_OF_CALLER: Duration = Duration::from_secs(10 * 60);

/// Why a registration is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// The authorization server said `invalid_client` or `unauthorized_client`.
    Refused,
    /// It may have shown a person a page that says so.
    Suspected,
}

/// When registrations were last given up.
#[derive(Debug, Default)]
pub(super) struct GivenUp(Mutex<LastGivenUp>);

#[derive(Debug, Default)]
struct LastGivenUp {
    /// By the server's URL.
    servers: HashMap<Box<str>, Instant>,
    /// On mere suspicion.
    callers: HashMap<AccountKey, Instant>,
}

impl GivenUp {
    /// Whether another registration for the server of this account may be given up now; if so, this is counted.
    pub(super) fn may(&self, account: &AccountKey, doubt: Doubt) -> bool {
        let LastGivenUp { servers, callers } = &mut *self.0.lock();
        servers.retain(|_, at| at.elapsed() < PAUSE);
        callers.retain(|_, at| at.elapsed() < PAUSE_OF_CALLER);
        let is_suspicion = doubt == Doubt::Suspected;
        let is_callers_again = is_suspicion && callers.contains_key(account);
        let is_free = !is_callers_again && !servers.contains_key(&account.server_url);
        if is_free {
            servers.insert(account.server_url.clone(), Instant::now());
        }
        if is_free && is_suspicion {
            callers.insert(account.clone(), Instant::now());
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(caller: &str, server_url: &str) -> AccountKey {
        AccountKey {
            caller: caller.into(),
            server_url: server_url.into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_registration_is_given_up_now_and_then() {
        let given_up = GivenUp::default();
        let ann = account("ann", "s");
        assert!(given_up.may(&ann, Doubt::Suspected));
        for doubt in [Doubt::Suspected, Doubt::Refused] {
            assert!(!given_up.may(&ann, doubt), "{doubt:?}");
        }
        assert!(given_up.may(&account("ann", "other"), Doubt::Suspected));
        tokio::time::advance(PAUSE).await;
        assert!(!given_up.may(&ann, Doubt::Suspected));
        assert!(given_up.may(&ann, Doubt::Refused));
        tokio::time::advance(PAUSE_OF_CALLER).await;
        assert!(given_up.may(&ann, Doubt::Suspected));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_asks_all_day_does_not_keep_another_from_a_new_registration() {
        let given_up = GivenUp::default();
        let (ann, bob) = (account("ann", "s"), account("bob", "s"));
        assert!(given_up.may(&ann, Doubt::Suspected));
        assert!(!given_up.may(&bob, Doubt::Suspected));
        tokio::time::advance(PAUSE).await;
        assert!(!given_up.may(&ann, Doubt::Suspected));
        assert!(given_up.may(&bob, Doubt::Suspected));
    }
}
