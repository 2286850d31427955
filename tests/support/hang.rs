//! Ends the run if a test hangs in a call that blocks its thread, and names the test.
//!
//! The deadline of the test's runtime ends everything that waits in the runtime. The deadline does
//! not end a call that blocks its thread, such as the wait for a process. In this case the whole
//! run ends here. Otherwise the program that started the run would end it at a limit of its own,
//! and nobody would know which test it was.

use std::{
    io::Write,
    process::exit,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use super::child;

/// The time that a test still gets after its deadline, for example to end its servers.
const GRACE: Duration = Duration::from_secs(60);

/// Watches the test that made it, until it is dropped.
pub(crate) struct Watch {
    _lives: Sender<()>,
}

impl Watch {
    /// Starts to watch the test whose name this thread has.
    pub(crate) fn start(limit: Duration) -> Self {
        let (lives, gone) = channel();
        let test = thread::current().name().unwrap_or("a test").to_owned();
        thread::spawn(move || {
            if let Some(complaint) = complaint(&test, &gone, limit + GRACE) {
                // A macro does not work here: libtest hides its output if the test succeeds.
                let _unread = writeln!(std::io::stderr(), "{complaint}");
                exit(101);
            }
        });
        Self { _lives: lives }
    }
}

/// Waits for the end of a test. Returns a complaint if the test is not over within `limit`, else
/// `None`.
fn complaint(test: &str, gone: &Receiver<()>, limit: Duration) -> Option<String> {
    let is_late = gone.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
    is_late.then(|| {
        format!(
            "{test} hung in a call that blocks: not done within {limit:?}; its processes:\n{}\n\
             the threads, and what each waits for in the kernel:\n{}",
            children().join("\n"),
            threads().join("\n")
        )
    })
}

/// Lists the command lines of the processes that this run started and has not waited for.
fn children() -> Vec<String> {
    let command = |process: u32| {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        format!(
            "{process} {}",
            String::from_utf8_lossy(&line).replace('\0', " ")
        )
    };
    child::of_this_run().into_iter().map(command).collect()
}

/// Lists the threads of this process, each with its name, its state, how long it could run and had
/// no processor, and what it waits for.
pub(crate) fn threads() -> Vec<String> {
    let folders = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let thread = |folder: std::path::PathBuf| {
        let read = |file: &str| {
            let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
            text.trim().to_owned()
        };
        let (status, times) = (read("status"), read("schedstat"));
        let state = status.lines().find_map(|line| line.strip_prefix("State:"));
        let starved_ns = times.split(' ').nth(1).and_then(|ns| ns.parse().ok());
        format!(
            "{}: {}, {:?} without a processor, {} ({})",
            read("comm"),
            state.unwrap_or_default().trim(),
            Duration::from_nanos(starved_ns.unwrap_or_default()),
            read("wchan"),
            read("syscall")
        )
    };
    folders
        .flatten()
        .map(|folder| thread(folder.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        process::{Child, Command, Stdio},
    };

    use super::*;

    #[test]
    fn a_test_that_is_not_over_is_named_with_its_processes() {
        let (_lives, gone) = channel();
        let mut child = Command::new("cat")
            .arg("-")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        see_it_run(&mut child);
        let said = complaint("a_test", &gone, Duration::ZERO).expect("it is late");
        let command = format!("{} cat -", child.id());
        drop(child.stdin.take());
        child.wait().expect("it ends with its input");
        assert!(
            said.starts_with("a_test hung") && said.contains(&command),
            "{said}"
        );
    }

    /// Waits until the process answers. A process that has just started has no command line for a
    /// moment, but a process that answers has one.
    fn see_it_run(cat: &mut Child) {
        let input = cat.stdin.as_mut().expect("it is piped");
        input.write_all(b"?").expect("it reads");
        let output = cat.stdout.as_mut().expect("it is piped");
        output.read_exact(&mut [0]).expect("it answers");
    }

    #[test]
    fn a_thread_is_shown_with_its_state() {
        let threads = threads();
        let ours = threads.iter().find(|it| it.contains(": R (running), "));
        assert!(ours.is_some(), "{threads:?}");
    }

    #[test]
    fn of_a_test_that_is_over_nothing_is_said() {
        let (lives, gone) = channel();
        drop(lives);
        assert_eq!(complaint("a_test", &gone, Duration::from_secs(60)), None);
    }
}
