//! The end of a process of our own, waited for with a limit.

use std::{
    process::{Child, ExitStatus},
    time::{Duration, Instant},
};

use super::keeper;

const BETWEEN_TWO_LOOKS: Duration = Duration::from_millis(5);

/// Waits until `process` has ended, and kills it after `limit`: `None` then.
pub(crate) fn wait_with_limit(process: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    loop {
        let status = process.try_wait().expect("our child can be waited for");
        if status.is_some() || started.elapsed() > limit {
            if status.is_none() {
                process.kill().expect("our child can be killed");
                process.wait().expect("our child can be waited for");
            }
            keeper::has_ended(process.id());
            return status;
        }
        std::thread::sleep(BETWEEN_TWO_LOOKS);
    }
}
