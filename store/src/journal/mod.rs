//! Keeps the journal: one row for each block, with its holder and its fate.

pub(crate) mod backlog;
pub(crate) mod holders;
pub(crate) mod overlap;
pub(crate) mod pairs;
pub(crate) mod prune;
pub(crate) mod queue;
pub(crate) mod recent;
pub(crate) mod trace;
pub(crate) mod writer;
