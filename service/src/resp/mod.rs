//! Speaks the protocol of Redis (RESP), so that programs that count by `INCR` can come over.
//!
//! This folder owns the commands, and what is different from Redis: no number is taken back, and
//! none expires. It asks the directory of `sequence` for numbers, by the same path as HTTP does,
//! and `calls` who may have them. It knows neither the store nor HTTP. ADR 39 says why there is a
//! listener, and what it decides otherwise than HTTP.
//!
//! Read first:
//!
//! - `connection.rs`: reads the commands of one connection, and answers them in their order.
//! - `arguments.rs`: finds where a command ends, and its arguments.
//! - `answers.rs`: leads from each command to its answer.
//! - `numbers.rs`: takes the numbers of `INCR` and `INCRBY`. `last_take.rs` spares reading a command
//!   that comes again.
//! - `error_line.rs`: gives each refusal its line.
//!
//! The rest: `server.rs` runs the workers, `state.rs` holds what they share, and `wire.rs` moves
//! the bytes of a connection. `session.rs` holds what a connection has, and `login.rs` lets it log
//! in. `command.rs` lists the commands. `key_rules.rs` leads from keys to sequences. `readings.rs`,
//! `creation.rs` and `server_info.rs` answer the commands that their names say, `transaction.rs`
//! keeps those of a transaction, and `reply.rs` writes replies.

#![warn(clippy::indexing_slicing)]

mod answers;
mod arguments;
mod command;
mod connection;
mod creation;
mod error_line;
#[cfg(test)]
mod fuzz;
pub mod key_rules;
mod last_take;
mod login;
mod numbers;
mod readings;
mod reply;
mod server;
mod server_info;
mod session;
mod state;
mod transaction;
mod wire;

pub use server::{RespSettings, is_secured, serve};
