//! A replica of MariaDB or MySQL takes over.

use super::{
    costs_nothing, lossless, one, recover, repeats_numbers,
    stage::{N_BEFORE, Stage},
};
use crate::support::{Backend, Options, Product, Program, TestDatabase, run};

/// Reads a hash of what the stamp says of the server.
const STAMP: &str = "SELECT CAST(CRC32(CONCAT(server, started)) AS SIGNED) FROM lineage";

async fn new(options: Options) -> Stage {
    Stage::new(Backend::MariaDb, options).await
}

#[test]
fn a_replica_that_lost_commits_is_refused_until_it_is_recovered() {
    run(async {
        let mut stage = new(Program::options()).await;
        let old = stage.start().await;
        stage.fail_over(&old.client()).await;
        let fresh = stage.options.start().await;
        stage.is_refused(&old.client()).await;
        stage.is_refused(&fresh.client()).await;
        assert_eq!(stage.ledger.n_duplicates(), 0);
        stage.recover(&[&old, &fresh]).await;
        assert_eq!(stage.ledger.n_duplicates(), 0);
    });
}

#[test]
fn without_its_stamp_a_replica_that_lost_commits_repeats_numbers() {
    run(async {
        repeats_numbers(new(Program::options().without_guards("no-stamp")).await).await;
    });
}

#[test]
fn a_replica_that_lost_nothing_by_declaration_costs_nothing() {
    run(async {
        costs_nothing(new(lossless()).await, STAMP).await;
    });
}

#[test]
fn an_operator_may_say_that_a_replica_lost_nothing() {
    run(async {
        let mut stage = new(Program::options()).await;
        let old = stage.start().await;
        stage.switch_over(&old).await;
        stage.is_refused(&old.client()).await;
        let (kept, stamp) = (stage.reserved().await, stage.database.number(STAMP).await);
        let applied = stage.apply(&[]);
        assert_ne!(applied.code, Some(0), "{applied}");
        let _refused_or_not = stage.apply(&["--dry-run"]);
        assert_eq!(stage.database.number(STAMP).await, stamp);
        // A replica that sees the recovery reserves again.
        stage.database.stop(&old).await;
        recover(&stage.options, &["--nothing-was-lost"]);
        assert_eq!(stage.reserved().await, kept);
        old.thaw();
        stage.is_served_again(&old.client()).await;
        stage.take(&old.client(), N_BEFORE).await;
        assert_eq!(stage.ledger.n_duplicates(), 0);
    });
}

/// A replica that was made from a dump has a stamp of another time. Guarded statements must change
/// the same rows there.
#[test]
fn a_replica_made_from_a_dump_follows_all_writes() {
    run(async {
        let stage = new(Program::options()).await;
        let mut first = stage.options.start_ready().await;
        assert_eq!(one(&first.client()).await, Ok(1));
        first.kill();
        stage.catch_up().await;
        let dump = stage.database.dump();
        let there = TestDatabase::on(stage.copy(), stage.database.name());
        there.restore(&dump);
        let mut second = stage.options.start_ready().await;
        for number in 2..20 {
            assert_eq!(one(&second.client()).await, Ok(number));
        }
        second.kill();
        stage.catch_up().await;
        let reserved = "SELECT CAST(SUM(next_value - 1) AS SIGNED) FROM counter";
        assert_eq!(there.number(reserved).await, Some(19));
        if there.server() == Product::MariaDb {
            let copied = "SELECT COUNT(*) FROM lineage \
                          WHERE CAST(UNIX_TIMESTAMP(row_start) * 1000000 AS SIGNED) <> written_by";
            assert_eq!(there.number(copied).await, Some(1), "vacuous");
        }
    });
}
