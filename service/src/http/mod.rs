//! Speaks HTTP: parses requests, writes replies, and decides nothing about numbers.
//!
//! This layer owns the URLs, the media types and the statuses. It asks the directory of `sequence`
//! for numbers and definitions, and `calls` who may have them. It knows nothing of databases.

#![warn(clippy::indexing_slicing)]

#[cfg(test)]
mod access_tests;
mod admission;
mod body;
mod documents;
mod envelope;
mod evidence;
mod explain;
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
mod replica;
mod reply;
mod request_id;
mod retain_until_written;
mod sequences;
mod server;
mod serving;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod trace;
mod urls;
mod visible_names;
mod workers;

pub use listener_role::ListenerRole;
pub use server::{ListenerSettings, is_secured, serve};
