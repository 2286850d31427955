//! Where the cursor's atomics come from: the machine's, or those of the model checker.

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};
