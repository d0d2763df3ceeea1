//! Bugs that break a promise on purpose, so that a test can show that it would notice.
//!
//! Built only with the feature `planted`, which only tests turn on. What a test of the library wants
//! broken, it says of its own gateway ([`Planted`]); what `bowline-chaos` wants broken, it says of a whole
//! process, by name ([`plant`]).

use std::fmt;
use std::sync::OnceLock;

/// Which promises one gateway breaks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Planted {
    /// Cookies that an upstream sets are dropped.
    pub forget_cookies: bool,
}

/// A bug of a whole process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Every request goes again, whether or not it may run twice.
    ReplayEverything,
}

/// No bug has this name.
#[derive(Debug)]
pub struct UnknownBug(String);

static PLANTED: OnceLock<Bug> = OnceLock::new();

/// Plants the bug of this name in this process, for good.
///
/// # Errors
///
/// When there is none.
pub fn plant(name: &str) -> Result<(), UnknownBug> {
    let named = |bug: &Bug| bug.name() == name;
    let bug = Bug::ALL.into_iter().find(named);
    let bug = bug.ok_or_else(|| UnknownBug(name.to_owned()))?;
    PLANTED.get_or_init(|| bug);
    Ok(())
}

/// Whether this bug was planted.
pub(crate) fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(&bug)
}

impl Bug {
    const ALL: [Self; 1] = [Self::ReplayEverything];

    fn name(self) -> &'static str {
        match self {
            Self::ReplayEverything => "replay_everything",
        }
    }
}

impl fmt::Display for UnknownBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Bug::ALL.map(Bug::name).join(", ");
        write!(f, "there is no planted bug `{}`, but {known}", self.0)
    }
}

impl std::error::Error for UnknownBug {}
