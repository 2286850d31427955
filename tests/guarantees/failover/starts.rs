//! A server is started again, on its own disk or on a snapshot of it, and the database is armed.

use std::collections::BTreeSet;

use super::fenced::{ARM, FENCES};
use super::{LIMIT, one_after_recovery};
use crate::support::{Backend, Options, Product, Program, Server, TestDatabase, run, wait};

const N: usize = 50;
const NEXT: &str = "SELECT MAX(next_value) FROM counter";

/// A server of its own, and the numbers of `orders` that were given.
struct Stage {
    server: Server,
    database: TestDatabase,
    options: Options,
    given: Vec<i64>,
}

impl Stage {
    async fn new(backend: Backend, options: Options) -> (Self, Program) {
        let server = Server::start_of(Product::drawn(backend)).await;
        let database = TestDatabase::prepared_on(&server).await;
        let options = options
            .env("ODOMETER_DEFINITION_REFRESH", "2s")
            .env("ODOMETER_REFILL__DEADLINE", "30s")
            .env("ODOMETER_STORE__TIMEOUT", "10s")
            .database(&database.url);
        let program = options.start_ready().await;
        database.execute(ARM).await;
        let stage = Self {
            server,
            database,
            options,
            given: Vec::new(),
        };
        (stage, program)
    }

    async fn take(&mut self, program: &Program) {
        for _ in 0..N {
            let number = one_after_recovery(&program.client()).await;
            self.given.push(number);
        }
    }

    /// Kills the server as a power cut would, and starts it again, on `snapshot` if there is one.
    async fn start_again(&mut self, snapshot: Option<&tempfile::TempDir>) {
        // A stamp of MariaDB and MySQL names the second of the start.
        if self.database.backend == Backend::MariaDb {
            let clock = "SELECT UNIX_TIMESTAMP()";
            let now = self.database.number(clock).await;
            wait::until("the next second", LIMIT, async || {
                (self.database.number(clock).await > now).then_some(())
            })
            .await;
        }
        self.server.kill();
        if let Some(snapshot) = snapshot {
            self.server.put_back(snapshot);
        }
        self.server.start_again().await;
    }

    /// Takes a snapshot while nobody calls. Returns it, and the next number in it.
    async fn snapshot(&self) -> (tempfile::TempDir, Option<i64>) {
        let next = self.database.number(NEXT).await;
        (self.server.snapshot(), next)
    }

    /// Waits for two heartbeats. A snapshot that lacks no heartbeat shows no loss.
    async fn beats_twice(&self) {
        let beat = "SELECT MAX(beat) FROM replica";
        let before = self.database.number(beat).await.expect("a heartbeat");
        wait::until("two heartbeats", LIMIT, async || {
            let now = self.database.number(beat).await;
            (now >= Some(before + 2)).then_some(())
        })
        .await;
    }

    fn n_twice(&self) -> usize {
        let numbers: BTreeSet<i64> = self.given.iter().copied().collect();
        self.given.len() - numbers.len()
    }

    fn has_gap(&self) -> bool {
        self.given.windows(2).any(|pair| pair[1] != pair[0] + 1)
    }

    async fn n_fences(&self) -> i64 {
        self.database.number(FENCES).await.unwrap_or_default()
    }
}

/// Puts a snapshot back that was taken while a replica gave numbers. Returns the stage afterwards.
async fn put_back(backend: Backend, options: Options, lives: bool) -> Stage {
    let (mut stage, mut old) = Stage::new(backend, options).await;
    stage.take(&old).await;
    let (snapshot, next) = stage.snapshot().await;
    stage.take(&old).await;
    stage.beats_twice().await;
    if !lives {
        old.kill();
    }
    stage.start_again(Some(&snapshot)).await;
    assert!(next <= stage.given.iter().max().copied(), "vacuous");
    let fresh = stage.options.start().await;
    stage.take(&fresh).await;
    if lives {
        stage.take(&old).await;
    }
    stage
}

#[test]
fn a_snapshot_that_no_replica_lived_through_repeats_nothing() {
    run(async {
        for backend in [Backend::Postgres, Backend::MariaDb] {
            let stage = put_back(backend, Program::options(), false).await;
            assert_eq!(stage.n_twice(), 0);
            assert_eq!(stage.n_fences().await, 1);
        }
    });
}

#[test]
fn a_snapshot_under_a_living_replica_repeats_nothing() {
    run(async {
        let stage = put_back(Backend::Postgres, Program::options(), true).await;
        assert_eq!(stage.n_twice(), 0);
        assert_eq!(stage.n_fences().await, 1);
    });
}

#[test]
fn a_snapshot_that_is_trusted_repeats_numbers() {
    run(async {
        let options = Program::options().without_guards("trusts-starts");
        let stage = put_back(Backend::Postgres, options, false).await;
        assert!(stage.n_twice() > 0, "nothing is found");
    });
}

/// Puts a snapshot back that misses nothing that one replica wrote, and numbers that another one
/// gave. Returns the stage afterwards.
async fn put_back_under_an_idle_replica(options: Options) -> Stage {
    let (mut stage, idle) = Stage::new(Backend::Postgres, options).await;
    stage.take(&idle).await;
    let mut other = stage.options.start_ready().await;
    stage.take(&other).await;
    stage.database.stop(&idle).await;
    let (snapshot, next) = stage.snapshot().await;
    stage.take(&other).await;
    stage.beats_twice().await;
    other.kill();
    stage.start_again(Some(&snapshot)).await;
    assert!(next <= stage.given.iter().max().copied(), "vacuous");
    idle.thaw();
    stage.take(&idle).await;
    let fresh = stage.options.start().await;
    stage.take(&fresh).await;
    stage
}

#[test]
fn a_snapshot_is_fenced_although_one_replica_misses_nothing() {
    run(async {
        let stage = put_back_under_an_idle_replica(Program::options()).await;
        assert_eq!(stage.n_twice(), 0);
        assert_eq!(stage.n_fences().await, 1);
    });
}

#[test]
fn a_snapshot_that_one_replica_vouches_for_repeats_numbers() {
    run(async {
        let options = Program::options().without_guards("one-voucher");
        let stage = put_back_under_an_idle_replica(options).await;
        assert!(stage.n_twice() > 0, "nothing is found");
    });
}

/// Starts the server again while a replica runs, and takes numbers from it and from a fresh one.
async fn lived_through(options: Options) -> Stage {
    let (mut stage, old) = Stage::new(Backend::Postgres, options).await;
    stage.take(&old).await;
    stage.start_again(None).await;
    stage.take(&old).await;
    let fresh = stage.options.start_ready().await;
    stage.take(&fresh).await;
    stage
}

#[test]
fn a_start_that_a_replica_lived_through_costs_nothing() {
    run(async {
        let stage = lived_through(Program::options()).await;
        assert!(!stage.has_gap(), "{:?}", stage.given);
        assert_eq!(stage.n_fences().await, 0);
    });
}

#[test]
fn without_a_replica_that_vouches_a_start_leaves_a_gap() {
    run(async {
        let options = Program::options().without_guards("no-vouching");
        let stage = lived_through(options).await;
        assert!(stage.has_gap(), "nothing is found");
        assert_eq!(stage.n_twice(), 0);
    });
}

/// Ends the only replica, starts the server again, and takes numbers from a fresh replica.
async fn ended(is_killed: bool) -> Stage {
    let (mut stage, mut old) = Stage::new(Backend::Postgres, Program::options()).await;
    stage.take(&old).await;
    if is_killed {
        old.kill();
    } else {
        old.stop().await;
    }
    stage.start_again(None).await;
    let fresh = stage.options.start().await;
    stage.take(&fresh).await;
    stage
}

#[test]
fn a_start_after_all_replicas_ended_in_order_costs_nothing() {
    run(async {
        let stage = ended(false).await;
        assert!(!stage.has_gap(), "{:?}", stage.given);
        assert_eq!(stage.n_fences().await, 0);
    });
}

#[test]
fn a_start_after_a_replica_was_killed_leaves_a_gap() {
    run(async {
        let stage = ended(true).await;
        assert!(stage.has_gap(), "nothing is found");
        assert_eq!(stage.n_fences().await, 1);
        assert_eq!(stage.n_twice(), 0);
    });
}
