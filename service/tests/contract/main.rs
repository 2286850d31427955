//! The HTTP contract, sentence by sentence: what a caller may rely on.
//!
//! The program runs in this process. On SQLite no server is needed; the tests on servers are
//! ignored unless `tests/run` asks for them. `tests/contract` has the rest: what needs the program
//! as a process, such as its log or a guard that is taken out.

// Futures that open a connection nest deeper than the compiler looks by default.
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
mod layouts;
mod lifecycle;
mod named_periods;
mod names;
mod program;
mod rehearsal;
mod strict;

/// What the tests stand on.
mod support {
    pub(crate) use odometer_tests::*;

    pub(crate) use crate::program::{Program, program};

    /// Makes a test on SQLite, and one on each kind of server that `tests/run` asks for, out of
    /// `async fn name(backend: Backend)`.
    macro_rules! for_each_backend {
        ($($name:ident),+ $(,)?) => {$(
            mod $name {
                use $crate::support::{Backend, run};

                #[test]
                fn sqlite() {
                    run(super::$name(Backend::Sqlite));
                }

                #[test]
                #[ignore = "needs a server: tests/run starts one"]
                fn postgres() {
                    run(super::$name(Backend::Postgres));
                }

                #[test]
                #[ignore = "needs a server: tests/run starts one"]
                fn mariadb() {
                    run(super::$name(Backend::MariaDb));
                }
            }
        )+};
    }

    /// Makes one test for each kind of server, as `for_each_backend`.
    macro_rules! for_each_server {
        ($($name:ident),+ $(,)?) => {$(
            mod $name {
                use $crate::support::{Backend, run};

                #[test]
                #[ignore = "needs a server: tests/run starts one"]
                fn postgres() {
                    run(super::$name(Backend::Postgres));
                }

                #[test]
                #[ignore = "needs a server: tests/run starts one"]
                fn mariadb() {
                    run(super::$name(Backend::MariaDb));
                }
            }
        )+};
    }

    pub(crate) use {for_each_backend, for_each_server};
}
