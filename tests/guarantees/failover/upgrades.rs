//! PostgreSQL is upgraded by `pg_upgrade`. A new cluster has all commits, and another identifier.

use std::collections::BTreeSet;

use super::fenced::{ARM, FENCES};
use super::{one_after_recovery, recover};
use crate::support::{Backend, Options, Program, Server, TestDatabase, run};

const N: usize = 20;
const IDENTIFIER: &str = "SELECT system_identifier::text FROM pg_control_system()";

/// What was given before and after an upgrade.
struct Outcome {
    given: Vec<i64>,
    n_fences: Option<i64>,
}

impl Outcome {
    fn n_twice(&self) -> usize {
        let numbers: BTreeSet<i64> = self.given.iter().copied().collect();
        self.given.len() - numbers.len()
    }

    fn has_gap(&self) -> bool {
        self.given.windows(2).any(|pair| pair[1] != pair[0] + 1)
    }
}

/// Takes numbers from two new replicas, and ends both in order.
async fn take(options: &Options, given: &mut Vec<i64>, before_the_end: impl AsyncFnOnce()) {
    let replicas = [options.start().await, options.start().await];
    for replica in &replicas {
        for _ in 0..N {
            given.push(one_after_recovery(&replica.client()).await);
        }
    }
    before_the_end().await;
    for replica in replicas {
        replica.stop().await;
    }
}

/// Upgrades a server while no replica runs. `says` gives the arguments of `odometer recover`, if an
/// operator runs it before the replicas start again.
async fn upgraded(says: Option<&str>) -> Outcome {
    let server = Server::start(Backend::Postgres).await;
    let database = TestDatabase::prepared_on(&server).await;
    let options = Program::options()
        .env("ODOMETER_DEFINITION_REFRESH", "2s")
        .env("ODOMETER_REFILL__DEADLINE", "30s")
        .env("ODOMETER_STORE__TIMEOUT", "10s")
        .database(&database.url);
    let mut given = Vec::new();
    take(&options, &mut given, async || database.execute(ARM).await).await;
    let identifier = server.say(IDENTIFIER).await;
    let server = server.upgraded().await;
    assert_ne!(server.say(IDENTIFIER).await, identifier, "vacuous");
    let database = TestDatabase::on(&server, database.name());
    let options = options.database(&database.url);
    if let Some(word) = says {
        recover(&options, &[word]);
    }
    take(&options, &mut given, async || ()).await;
    Outcome {
        given,
        n_fences: database.number(FENCES).await,
    }
}

#[test]
fn an_upgrade_of_the_server_repeats_nothing() {
    run(async {
        let outcome = upgraded(None).await;
        assert_eq!(outcome.n_twice(), 0, "{:?}", outcome.given);
        assert_eq!(outcome.n_fences, Some(1));
        assert!(outcome.has_gap(), "vacuous: {:?}", outcome.given);
    });
}

#[test]
fn an_upgrade_of_the_server_that_lost_nothing_leaves_no_gap() {
    run(async {
        let outcome = upgraded(Some("--nothing-was-lost")).await;
        assert_eq!(outcome.n_twice(), 0, "{:?}", outcome.given);
        assert!(!outcome.has_gap(), "{:?}", outcome.given);
    });
}
