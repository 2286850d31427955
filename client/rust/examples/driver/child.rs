//! Forks, and does the same in the parent and in the child.

use std::{
    io::{self, Read, Write},
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::given::Given;

/// How long a thread may take to begin.
const MAX_START: Duration = Duration::from_secs(10);

/// Takes numbers in a forked child and in this process, and returns what both got.
pub(crate) fn in_both(take: impl Fn() -> Given) -> io::Result<Given> {
    let (mut reader, mut writer) = io::pipe()?;
    let Some(child) = fork()? else {
        let mut given = take();
        if !can_start_threads() {
            // Another thread started or ended at the fork. Such a child gets errors, which is right.
            given.forgive();
        }
        let is_written = writer.write_all(given.to_line().as_bytes()).is_ok();
        drop(writer);
        leave(i32::from(!is_written));
    };
    drop(writer);
    let mut whole = take();
    let mut line = String::new();
    reader.read_to_string(&mut line)?;
    let has_ended_well = wait_for(child)?.is_some_and(|code| code == 0);
    let of_child = Given::from_line(&line).filter(|_| has_ended_well);
    whole.join(of_child.unwrap_or_else(|| Given::failed("child")));
    Ok(whole)
}

/// Returns whether a new thread of this process runs. The library's `fork.rs` says why it may not.
fn can_start_threads() -> bool {
    let (sender, receiver) = mpsc::channel();
    let started = thread::Builder::new().spawn(move || sender.send(()));
    started.is_ok() && receiver.recv_timeout(MAX_START).is_ok()
}

/// Forks. Returns the id of the child to the parent, and `None` to the child.
#[expect(
    unsafe_code,
    reason = "no safe function forks, and a test must see what a fork does"
)]
fn fork() -> io::Result<Option<i32>> {
    // SAFETY: `fork` may be called at any time. After it, the child has one thread, and locks of
    // the others may be held for ever. The child takes numbers, which is what the library allows,
    // and writes to a pipe. The C library lets it allocate memory and start threads.
    let child = unsafe { libc::fork() };
    match child {
        0 => Ok(None),
        1.. => Ok(Some(child)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for a child. Returns its exit code, if it had one.
#[expect(
    unsafe_code,
    reason = "the standard library waits only for its own children"
)]
fn wait_for(child: i32) -> io::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: `waitpid` writes to the number that the pointer names, which lives long enough.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    if ended != child {
        return Err(io::Error::last_os_error());
    }
    Ok(ExitStatus::from_raw(status).code())
}

/// Ends the child, without what the parent wants done at its own end.
#[expect(
    unsafe_code,
    reason = "no safe function leaves out the handlers of an exit"
)]
fn leave(code: i32) -> ! {
    // SAFETY: `_exit` takes any number, and does not return.
    unsafe { libc::_exit(code) }
}
