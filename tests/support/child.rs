//! Lists the processes that this run started, and waits for their end with a limit.

use std::{
    process::{Child, ExitStatus},
    time::{Duration, Instant},
};

use super::keeper;

const BETWEEN_TWO_LOOKS: Duration = Duration::from_millis(5);

/// Waits until `process` has ended. After `limit` it kills the process and returns `None`.
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

/// Lists the processes that this run started and has not waited for.
///
/// The function compares the parents of all processes. The kernel's own list of a thread's children
/// skips some children while others end.
pub(crate) fn of_this_run() -> Vec<u32> {
    let ours = std::process::id();
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|process| parent_of(*process) == Some(ours))
        .collect()
}

fn parent_of(process: u32) -> Option<u32> {
    let line = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name stands in brackets and may hold any characters. The state and the parent follow.
    let (_, rest) = line.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}
