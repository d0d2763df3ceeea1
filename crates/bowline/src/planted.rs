//! Switches that break a promise on purpose, so that a test can show that it would notice.
//!
//! Built only with the feature `planted`, which only tests turn on.

/// Which promises to break.
#[derive(Debug, Clone, Copy, Default)]
pub struct Planted {
    /// Cookies that an upstream sets are dropped.
    pub forget_cookies: bool,
    /// Every request goes again, whether or not it may run twice.
    pub replay_everything: bool,
}
