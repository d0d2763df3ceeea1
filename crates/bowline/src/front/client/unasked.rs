//! What the server says unasked comes on a stream of its own. It was said in an order with answers, so no answer
//! overtakes it.
//!
//! Whoever has an answer waits until that stream has been read as far as there was anything. The stream is polled from
//! its source without a task or a queue in between, so if it has nothing, everything before has been passed on.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// How far the stream has been read.
#[derive(Debug, Default)]
pub(super) struct Unasked(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_open: bool,
    /// Who waits until nothing more is there to read.
    waiting: Vec<oneshot::Sender<()>>,
    reader: Option<Waker>,
}

/// For as long as the stream is read.
pub(super) struct Reading<'a>(&'a Unasked);

// === impl Unasked ===

impl Unasked {
    /// The stream is read from now on.
    pub(super) fn open(&self) -> Reading<'_> {
        self.0.lock().is_open = true;
        Reading(self)
    }

    /// Waits until everything was passed on that the server has said so far.
    pub(super) async fn passed_on(&self) {
        let (sender, passed_on) = oneshot::channel();
        let reader = {
            let mut state = self.0.lock();
            if !state.is_open {
                return;
            }
            state.waiting.push(sender);
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
        // An error: the stream is not read any more.
        drop(passed_on.await);
    }
}

// === impl Reading ===

impl Reading<'_> {
    /// Polls for what comes next. If there is nothing, everything before has been passed on.
    pub(super) fn poll<F: Future>(
        &self,
        cx: &mut Context<'_>,
        next: Pin<&mut F>,
    ) -> Poll<F::Output> {
        let waiting = {
            let mut state = self.0.0.lock();
            state.reader = Some(cx.waker().clone());
            std::mem::take(&mut state.waiting)
        };
        let polled = next.poll(cx);
        match polled.is_ready() {
            true => self.0.0.lock().waiting.extend(waiting),
            false => {
                for one in waiting {
                    // Who waited may have left.
                    _ = one.send(());
                }
            }
        }
        polled
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        *self.0.0.lock() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn who_has_an_answer_waits_until_nothing_is_left_to_read() {
        let unasked = Unasked::default();
        unasked.passed_on().await;
        let reading = unasked.open();
        let mut waits = pin!(unasked.passed_on());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        assert!(reading.poll(&mut cx, pin!(ready(()))).is_ready());
        assert!(
            waits.as_mut().poll(&mut cx).is_pending(),
            "more may be there"
        );
        assert!(reading.poll(&mut cx, pin!(pending::<()>())).is_pending());
        assert!(waits.poll(&mut cx).is_ready());
        let mut waits = pin!(unasked.passed_on());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        drop(reading);
        assert!(waits.poll(&mut cx).is_ready());
    }
}
