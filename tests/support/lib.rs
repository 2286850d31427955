//! The tools of the tests: real servers, the real program, a client and a ledger.
//!
//! Nothing here knows how the program works inside. The tools meet the program over HTTP, by
//! the protocol of Redis, by signals, on standard error and in its tables.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::{Duration, Instant},
};

mod backend;
mod balancer;
mod callers;
mod callgrind;
mod certificates;
pub mod changes;
mod child;
mod client;
pub mod clock;
pub mod dice;
mod disk;
mod dump;
mod durations;
pub mod fuzz;
mod hang;
pub mod keeper;
mod ledger;
pub mod mariadb;
pub mod mysql;
pub mod npm;
mod pgbouncer;
pub mod ports;
pub mod postgres;
mod product;
mod program;
pub mod prometheus;
mod proxy;
pub mod pypi;
pub mod raw;
mod redis;
mod replica;
mod resp;
mod scrape;
pub mod server;
pub mod settings;
mod standby;
mod test_authority;
mod tls_client;
mod tls_records;
pub mod token_signer;
pub mod wait;
mod workers;

pub use backend::{Backend, TestDatabase, one_connection};
pub use balancer::{Balancer, Spreads};
pub use callgrind::{Callgrind, Counted};
pub use certificates::Authority;
pub use client::{Answer, Client, Reply, settled};
pub use clock::SteppedClock;
pub use disk::SmallDisk;
pub use dump::{Dump, DumpForm};
pub use keeper::directory;
pub use ledger::{Ledger, Range};
pub use pgbouncer::PgBouncer;
pub use product::Product;
pub use program::{Begun, Finished, Options, Program};
pub use prometheus::Prometheus;
pub use proxy::{CutPoint, Link, Proxy};
pub use redis::Redis;
pub use replica::ReplicaPair;
pub use resp::{RespClient, resp_command, resp_number};
pub use scrape::Scrape;
pub use server::{ACCOUNT, PASSWORD, Server};
pub use standby::{SecondStandby, Standby};
pub use test_authority::{SignedCertificate, TestAuthority};
pub use tls_client::{HOST, SecureConnection, TlsCaller, TlsFiles, operations};
pub use tls_records::{RecordConnection, hello, part_of_certificates, part_of_hello};
pub use workers::Lease;

/// How long the threads of a test may take to end after the test.
const RUNTIME_LIMIT: Duration = Duration::from_secs(30);

/// Runs one test on a runtime of its own, with the deadline that every test has.
pub fn run(test: impl Future<Output = ()>) {
    let limit = settings::test_limit();
    let _watch = hang::Watch::start(limit);
    let _duration = durations::Clocked::start();
    let (drawn, dice) = (product::Drawn::for_this_test(), dice::Dice::of_this_test());
    let take_up = move || {
        drawn.meet();
        dice.take_up();
    };
    take_up();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(take_up)
        .enable_all()
        .build()
        .expect("a runtime starts");
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let ended = tokio::time::timeout(limit, Box::pin(test)).await;
            assert!(ended.is_ok(), "the test hung: not done within {limit:?}");
        });
    }));
    // A test that failed is waited for as well. Otherwise a thread that does not end would keep the
    // failure from being told.
    let ended = Instant::now();
    runtime.shutdown_timeout(RUNTIME_LIMIT);
    let is_late = ended.elapsed() >= RUNTIME_LIMIT;
    if is_late {
        eprintln!(
            "the threads, and what each waits for in the kernel:\n{}",
            hang::threads().join("\n")
        );
    }
    if let Err(failure) = outcome {
        resume_unwind(failure);
    }
    assert!(
        !is_late,
        "a thread of the test did not end within {RUNTIME_LIMIT:?}"
    );
}
