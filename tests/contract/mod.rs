//! Tests what callers may rely on. These tests need the program as a process: its log, its clock, a
//! guard that is taken out, or clients in other languages. The other tests of the contract are in
//! `service/tests/contract`.

mod access;
mod administration;
mod clients;
mod durations;
mod first_minute;
mod formats;
mod numbers;
mod openapi;
mod periods;
mod replica;
mod resp;
mod sequences;
mod size_limits;
mod slow_clients;
mod snowflake;
mod workers;

use crate::support::{Backend, Program, TestDatabase};

/// Starts a program with a database of its own.
async fn program(backend: Backend) -> (TestDatabase, Program) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    (database, program)
}
