//! Notices forks, because a child must not give the numbers that its parent gives.
//!
//! The C library calls [`in_child`] in each forked child, which raises two counts. That is all it
//! does: there is no list of what must be renewed, so nothing can be missing in the list, and
//! nothing is done for objects that the child never uses. Each object compares a count with the
//! count that it was made under ([`OfProcess`](crate::of_process::OfProcess)).
//!
//! A process that is made by the system call `clone` alone, or by `_Fork`, is not noticed: these
//! run no handler. A child is not safe either if its thread was inside a call of this library at
//! the fork: in a hook, in a waker, or in a handler of a signal that interrupted a call. There the
//! child goes on with what the parent had. So programs do not fork there.
//!
//! Rust's standard library takes a lock when one of its threads starts or ends. If another thread
//! of the program does that at the fork, a child of it can never start a thread. Its blocking calls
//! then end at their deadline. Nothing wakes its tasks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{error::Error, sabotage};

/// Counts the forks between the start of the program and this process.
static N_FORKS: AtomicU64 = AtomicU64::new(0);
/// Counts the forks, and the calls of `forget` in this process.
static N_CHANGES: AtomicU64 = AtomicU64::new(0);
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Returns how many forks lie between the start of the program and this process.
///
/// A forked child begins with one thread, which ran [`in_child`]. So a plain read suffices.
#[inline]
pub(crate) fn n_forks() -> u64 {
    N_FORKS.load(Ordering::Relaxed)
}

/// Returns a count that each fork and each call of `forget` raises.
#[inline]
pub(crate) fn n_changes() -> u64 {
    N_CHANGES.load(Ordering::Relaxed)
}

/// Raises the count of changes, because numbers were forgotten. Returns the new count.
pub(crate) fn note_forgotten() -> u64 {
    N_CHANGES.fetch_add(1, Ordering::Release).wrapping_add(1)
}

/// Lets the C library call [`in_child`] in each forked child from now on.
///
/// Two threads may install it twice, which is as good: the counts then rise by two.
///
/// # Errors
/// The C library has no memory for it.
pub(crate) fn install() -> Result<(), Error> {
    if !IS_INSTALLED.load(Ordering::Acquire) {
        register()?;
        IS_INSTALLED.store(true, Ordering::Release);
    }
    Ok(())
}

#[cfg(unix)]
#[expect(
    unsafe_code,
    reason = "only the C library can say that the process was forked: ADR 38"
)]
fn register() -> Result<(), Error> {
    let handler: unsafe extern "C" fn() = in_child;
    // SAFETY: `pthread_atfork` takes three pointers to functions, any of which may be null.
    // `in_child` has the right signature. The code of a program stays until its end. If this code
    // is in a library that is unloaded before, glibc drops the handlers of the library, and musl
    // unloads nothing; on other systems, such a library must not be unloaded. The handler runs in a
    // child in which locks may be held for ever. It only adds to two atomic counts, which needs no
    // lock, no memory and no thread.
    let refused = unsafe { libc::pthread_atfork(None, None, Some(handler)) };
    if refused == 0 {
        return Ok(());
    }
    let error = std::io::Error::from_raw_os_error(refused);
    Err(Error::setting(format!("forks cannot be noticed: {error}")))
}

/// A system without forks needs no handler.
#[cfg(not(unix))]
fn register() -> Result<(), Error> {
    Ok(())
}

/// Raises the counts. The C library calls it in each forked child.
#[cfg(unix)]
extern "C" fn in_child() {
    if sabotage::are_forks_unseen() {
        return;
    }
    N_FORKS.fetch_add(1, Ordering::Relaxed);
    N_CHANGES.fetch_add(1, Ordering::Relaxed);
}
