//! A test that hangs fails, whatever it hangs in, and says so.
//!
//! A deadline of the test's runtime ends what waits there. It does not end a call that blocks its
//! thread, such as the wait for a process; then the whole run ends here, before whoever started it
//! loses patience and nobody knows which test it was.

use std::{
    io::Write,
    process::exit,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

/// What a test may still do after its deadline, such as ending its servers.
const GRACE: Duration = Duration::from_secs(60);

/// Looks after the test that made it, until it is dropped.
pub(crate) struct Watch {
    _lives: Sender<()>,
}

impl Watch {
    /// Of the test whose name this thread has.
    pub(crate) fn start(limit: Duration) -> Self {
        let (lives, gone) = channel();
        let test = thread::current().name().unwrap_or("a test").to_owned();
        thread::spawn(move || watch(&test, &gone, limit + GRACE));
        Self { _lives: lives }
    }
}

fn watch(test: &str, gone: &Receiver<()>, limit: Duration) {
    if gone.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
        // Not by a macro, whose output a test's success would swallow.
        let _unread = writeln!(
            std::io::stderr(),
            "{test} hung in a call that blocks: not done within {limit:?}; processes of this run:\n{}",
            children().join("\n")
        );
        exit(101);
    }
}

/// Command lines of the processes that were started and not waited for.
fn children() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let lists = threads
        .flatten()
        .map(|thread| thread.path().join("children"));
    let lists: String = lists
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .collect();
    let command = |process: &str| {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        format!(
            "{process} {}",
            String::from_utf8_lossy(&line).replace('\0', " ")
        )
    };
    lists.split_whitespace().map(command).collect()
}
