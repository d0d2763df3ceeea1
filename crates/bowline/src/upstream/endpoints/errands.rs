//! Work for an upstream that is due later. These are not sleeping tasks, because a stopping gateway
//! would have to wait for those.

use parking_lot::Mutex;
use tokio::time::Instant;

/// Errands and their due times.
#[derive(Default)]
pub(crate) struct Errands(Mutex<Vec<(Instant, Errand)>>);

type Errand = Box<dyn FnOnce() + Send>;

impl Errands {
    /// Adds an errand.
    pub(crate) fn add(&self, due: Instant, errand: impl FnOnce() + Send + 'static) {
        self.0.lock().push((due, Box::new(errand)));
    }

    /// Runs every errand that is due.
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
