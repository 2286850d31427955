//! Tests what callers may rely on: the HTTP contract, sentence by sentence.
//!
//! The program runs in this process. On SQLite no server is needed. The tests on servers are
//! ignored unless `tests/run` asks for them. `tests/contract` has the other tests: they need the
//! program as a process, for example its log or a guard that is taken out.

// Futures that open a connection nest deeper than the compiler's default limit.
#![recursion_limit = "256"]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests may fail loudly, and read the environment"
)]

mod bad_input;
mod calendars;
mod explain;
mod formats;
mod layouts;
mod lifecycle;
mod named_periods;
mod names;
mod numbers;
mod parse;
mod program;
mod rehearsal;
mod sequences;
mod size_limits;
mod snowflake;
mod strict;
mod walks;

/// What all of these tests use.
mod support {
    pub(crate) use odometer_tests::*;

    pub(crate) use crate::program::{Program, program};
    pub(crate) use odometer_tests::{
        for_each_backend_in_process as for_each_backend,
        for_each_server_in_process as for_each_server,
    };
}
