//! Going first: who measures times of microseconds must not wait for whoever else is on its core.

use rustix::process::{getpriority_process, setpriority_process};

/// What the kernel takes for the most urgent of ordinary threads.
const FIRST: i32 = -20;

/// This thread goes before others until this is dropped, where the kernel allows that; what it
/// starts meanwhile does as well.
pub(crate) struct First {
    before: i32,
}

impl First {
    pub(crate) fn take() -> Self {
        let before = getpriority_process(None).unwrap_or(0);
        // Only some users may, and the others measure all the same.
        let _allowed = setpriority_process(None, FIRST);
        Self { before }
    }
}

impl Drop for First {
    fn drop(&mut self) {
        let _lowered = setpriority_process(None, self.before);
    }
}
