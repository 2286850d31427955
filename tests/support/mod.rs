//! What the tests stand on: real servers, the real program, a client and a ledger.
//!
//! Nothing here knows how the program works inside; it is met over HTTP, by
//! signals, on standard error and in its tables.

mod backend;
mod certificates;
mod client;
pub(crate) mod clock;
mod disk;
mod dump;
mod keeper;
mod ledger;
mod mariadb;
mod pgbouncer;
mod ports;
pub(crate) mod postgres;
mod program;
mod proxy;
pub(crate) mod raw;
mod scrape;
mod server;
pub(crate) mod settings;
pub(crate) mod wait;

pub(crate) use backend::{Backend, TestDatabase, for_each_backend, for_each_server};
pub(crate) use certificates::Authority;
pub(crate) use client::{Answer, Client, Reply};
pub(crate) use clock::SteppedClock;
pub(crate) use disk::SmallDisk;
pub(crate) use dump::Dump;
pub(crate) use keeper::directory;
pub(crate) use ledger::{Ledger, Range};
pub(crate) use pgbouncer::PgBouncer;
pub(crate) use program::{Finished, Options, Program};
pub(crate) use proxy::{CutPoint, Link, Proxy};
pub(crate) use scrape::Scrape;
pub(crate) use server::{ACCOUNT, PASSWORD, Server};

/// Runs one test on a runtime of its own, with the deadline that every test has.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    runtime.block_on(async {
        let limit = settings::test_limit();
        let ended = tokio::time::timeout(limit, Box::pin(test)).await;
        assert!(ended.is_ok(), "the test hung: not done within {limit:?}");
    });
}
