//! What is to be done for an upstream later. Not tasks that sleep: a gateway that stops does not wait for
//! them.

use parking_lot::Mutex;
use tokio::time::Instant;

/// Errands, and when each is due.
#[derive(Default)]
pub(crate) struct Errands(Mutex<Vec<(Instant, Errand)>>);

type Errand = Box<dyn FnOnce() + Send>;

impl Errands {
    /// Does this when it is due.
    pub(crate) fn add(&self, due: Instant, errand: impl FnOnce() + Send + 'static) {
        self.0.lock().push((due, Box::new(errand)));
    }

    /// Does what is due by now.
    pub(crate) fn run(&self) {
        let now = Instant::now();
        let due: Vec<_> = {
            let mut errands = self.0.lock();
            errands.extract_if(.., |(due, _)| *due <= now).collect()
        };
        for (_, errand) in due {
            errand();
        }
    }
}

impl std::fmt::Debug for Errands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Errands")
            .field(&self.0.lock().len())
            .finish()
    }
}
