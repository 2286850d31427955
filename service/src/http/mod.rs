//! Speaks HTTP: parses requests, writes replies, and decides nothing about numbers.
//!
//! This layer owns the URLs, the media types and the statuses. It asks the directory of `sequence`
//! for numbers and definitions, and knows nothing of databases.

#![warn(clippy::indexing_slicing)]

mod access;
mod admission;
mod audit_note;
mod body;
mod call_limit;
mod caller;
mod caller_memo;
mod denials;
mod documents;
mod envelope;
mod explain;
#[cfg(test)]
mod fuzz;
mod guard;
mod health;
mod hosts;
mod hot;
mod large_replies;
mod lifecycle;
mod listener_role;
mod me;
mod numbers;
mod openapi;
mod page;
mod parse;
mod payload;
mod printed;
mod problem;
mod quotas;
mod repeated_lines;
mod replica;
mod reply;
mod request_id;
mod retain_until_written;
mod sequences;
mod server;
mod serving;
mod size_limit;
mod sources;
mod state;
mod suggestions;
#[cfg(test)]
mod tests;
mod text;
mod trace;
mod urls;
mod visible_names;
mod workers;
mod wrong_tokens;

pub use listener_role::ListenerRole;
pub use server::{ListenerSettings, is_secured, serve};
pub use state::UnreportedLines;
