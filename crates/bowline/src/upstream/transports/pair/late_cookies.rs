//! Cookies of answers that nobody waited for any more.

use std::collections::VecDeque;
use std::sync::Arc;

use http::HeaderMap;
use http::header::SET_COOKIE;
use parking_lot::Mutex;

/// The cookies of answers that came late, until the next message is sent.
#[derive(Debug, Clone, Default)]
pub(in crate::upstream) struct LateCookies(Arc<Mutex<VecDeque<HeaderMap>>>);

/// How many answers with cookies are kept.
const MOST_LATE: usize = 8;

// === impl LateCookies ===

impl LateCookies {
    pub(in crate::upstream) fn keep(&self, headers: &HeaderMap) {
        if !headers.contains_key(SET_COOKIE) {
            return;
        }
        let cookies = headers.get_all(SET_COOKIE).iter();
        let cookies = cookies.map(|cookie| (SET_COOKIE, cookie.clone())).collect();
        let mut late = self.0.lock();
        if late.len() == MOST_LATE {
            late.pop_front();
        }
        late.push_back(cookies);
    }

    /// Those that came since the last time, the oldest first.
    pub(in crate::upstream) fn take(&self) -> VecDeque<HeaderMap> {
        std::mem::take(&mut self.0.lock())
    }
}
