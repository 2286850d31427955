//! The replicas of an earlier program are replaced by those of this one, one after the other.
//!
//! `tests/run --from REVISION rolling` builds the program of an earlier revision. In other runs the
//! earlier program is the same one.

use std::sync::Arc;

use super::LIMIT;
use super::fenced::FENCES;
use super::load::{self, Call, Callers, Load, Work, at};
use crate::support::{Backend, Options, Program, TestDatabase, for_each_server, settings, wait};

const N_REPLICAS: usize = 2;
const IS_ARMED: &str = "SELECT COUNT(*) FROM meta WHERE armed_at IS NOT NULL";

/// A replica, and a load on it.
struct Loaded {
    program: Program,
    load: Arc<Load>,
    callers: Callers,
}

impl Loaded {
    /// Starts a load on a replica, and waits until all kinds of numbers are given.
    async fn start(replica: usize, program: Program) -> Self {
        let load = Load::new();
        let callers = load.call(replica, &program);
        load.serves(&at(replica, Work::all()), &callers).await;
        Self {
            program,
            load,
            callers,
        }
    }

    /// Ends the load, and then the replica, in order. Returns the calls.
    async fn end(self) -> Vec<Call> {
        let calls = self.load.end(self.callers).await;
        self.program.stop().await;
        calls
    }
}

fn migrate(options: &Options) {
    let finished = options.run(&["migrate"]);
    assert_eq!(finished.code, Some(0), "{finished}");
}

for_each_server!(a_rolling_upgrade_repeats_and_refuses_nothing);

async fn a_rolling_upgrade_repeats_and_refuses_nothing(backend: Backend) {
    let database = TestDatabase::empty(backend).await;
    let options = Program::options()
        .env("ODOMETER_DEFINITION_REFRESH", "2s")
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 10)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", 10)
        .database(&database.url);
    let earlier = options.clone().built_at(&settings::earlier_program());
    migrate(&earlier);
    let mut replicas = Vec::new();
    for replica in 0..N_REPLICAS {
        let program = earlier.start_ready().await;
        // Another limit than the default would be refused here.
        Work::define(&program.client(), None).await;
        replicas.push(Loaded::start(replica, program).await);
    }
    migrate(&options);
    let mut calls = Vec::new();
    let mut replacing = Vec::new();
    for (replica, replaced) in (N_REPLICAS..).zip(replicas) {
        replacing.push(Loaded::start(replica, options.start_ready().await).await);
        calls.extend(replaced.end().await);
    }
    wait::until("the database is armed", 2 * LIMIT, async || {
        (database.number(IS_ARMED).await == Some(1)).then_some(())
    })
    .await;
    for replica in replacing {
        calls.extend(replica.end().await);
    }
    let ledger = load::ledger(&calls);
    println!(
        "{} numbers of {} counters",
        ledger.n_numbers(),
        ledger.sequences().count()
    );
    assert_eq!(ledger.n_duplicates(), 0);
    assert_eq!(load::n_out_of_order(&calls), 0);
    let refused = calls.iter().find(|call| call.outcome.is_err());
    let refused = refused.map(|call| (call.replica, call.work, &call.outcome));
    assert!(refused.is_none(), "{refused:?}");
    assert_eq!(database.number(FENCES).await, Some(0));
}
