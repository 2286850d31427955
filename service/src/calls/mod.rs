//! Decides about calls: who makes them, and whether they may have what they ask for.
//!
//! This folder owns what every protocol asks of a call: the caller, its rights and quotas, and why
//! a call is refused. It asks the directory of `sequence`. It never knows a protocol, nor a
//! database.
//!
//! Read first:
//!
//! - `evidence.rs`: holds what a call shows of its caller.
//! - `access.rs`: finds out who the caller is.
//! - `sources.rs`: lets callers pass who have a right on the sequence behind a name.
//! - `numbers.rs`: takes numbers for callers who may have them.
//! - `problem.rs`: gives each refusal its code and its sentence.
//!
//! The rest: `state.rs` holds what decides on one listener. `caller.rs` says what a caller may do,
//! `quotas.rs` how much, and `caller_memo.rs` what a connection remembers of its caller.
//! `wrong_tokens.rs`, `denials.rs`, `audit_note.rs` and `repeated_lines.rs` write what operators
//! read of calls. `call_limit.rs` bounds the calls being answered. `size_limit.rs` and
//! `suggestions.rs` tell callers what would do. `readiness.rs` says why no call should come, and
//! `beginnings.rs` finds the names that globs can fit.

#![warn(clippy::indexing_slicing)]

pub(crate) mod access;
mod audit_note;
pub(crate) mod beginnings;
pub(crate) mod call_limit;
pub(crate) mod caller;
pub(crate) mod caller_memo;
mod denials;
pub(crate) mod evidence;
#[cfg(test)]
mod fuzz;
pub(crate) mod numbers;
pub(crate) mod problem;
pub(crate) mod quotas;
pub(crate) mod readiness;
pub(crate) mod repeated_lines;
pub(crate) mod size_limit;
pub(crate) mod sources;
pub(crate) mod state;
pub(crate) mod suggestions;
pub(crate) mod wrong_tokens;

pub use state::UnreportedLines;
