//! Dumps are restored as operators do it, recovered without a number N, and all replicas are
//! replaced afterwards.

use serde_json::json;

use super::fenced::ARM;
use super::recover;
use super::stage::{NAMES, STRICT, is_refused, is_served_again, polling, reserved, take};
use crate::support::{
    Backend, DumpForm, Ledger, Options, Product, Program, Server, TestDatabase, run,
};

/// The names that are used after the dump. The dump lacks the last one.
const ALL: [&str; 5] = [NAMES[0], NAMES[1], NAMES[2], NAMES[3], "late"];
/// How many numbers of each name a replica gives before the dump, and afterwards.
const N_BEFORE: u64 = 10;
const N_LOST: u64 = 33;
/// How many numbers of each name a replica gives between two steps. Its block has a rest then.
const N_BETWEEN: u64 = 13;

const ON_POSTGRES: [DumpForm; 3] = [DumpForm::Plain, DumpForm::Custom, DumpForm::Elsewhere];
const ON_MARIADB: [DumpForm; 3] = [DumpForm::Plain, DumpForm::Locked, DumpForm::Elsewhere];

/// A database, the replicas that use it, and the numbers that they gave.
struct Stage {
    database: TestDatabase,
    options: Options,
    ledger: Ledger,
    replicas: Vec<Program>,
}

impl Stage {
    /// Starts two replicas on a new database.
    async fn new(server: &Server) -> Self {
        let database = TestDatabase::prepared_on(server).await;
        let options = polling(Program::options().database(&database.url));
        let options = options.env("ODOMETER_FAILOVER__WITHIN", "15m");
        let replicas = vec![options.start_ready().await, options.start_ready().await];
        let strict = json!({"order": "strict"});
        replicas[0].client().define(STRICT, &strict).await;
        database.execute(ARM).await;
        Self {
            database,
            options,
            ledger: Ledger::default(),
            replicas,
        }
    }

    /// Takes numbers from each replica.
    async fn take(&mut self, names: &[&str], n: u64) {
        for replica in &self.replicas {
            take(&mut self.ledger, &replica.client(), names, n).await;
        }
    }

    /// Ends the replicas, one in order and one by a kill.
    async fn end(&mut self) {
        let mut killed = self.replicas.pop().expect("there are two");
        killed.kill();
        while let Some(replica) = self.replicas.pop() {
            replica.stop().await;
        }
    }

    /// Puts the dump that `form` says in the place of a younger state. Fresh replicas start
    /// afterwards.
    async fn restore(&mut self, server: &Server, (form, lives): (DumpForm, bool)) {
        self.take(&NAMES, N_BEFORE).await;
        let dump = self.database.dump_in(form);
        self.take(&ALL, N_LOST).await;
        if !lives {
            self.end().await;
        }
        self.database.restore_on(server, &dump).await;
        let highest = NAMES.iter().filter_map(|name| self.ledger.highest(name));
        let kept = reserved(&self.database).await.expect("there are counters");
        let n_lost = highest.sum::<i64>() - kept;
        assert!(n_lost > 100, "vacuous: {n_lost} numbers lost");
        let n_fresh = if lives { 1 } else { 2 };
        for _ in 0..n_fresh {
            self.replicas.push(self.options.start().await);
        }
    }

    /// Replaces each replica by a new one, while the others give numbers.
    async fn replace_all(&mut self) {
        for _ in 0..self.replicas.len() {
            let ending = self.replicas.remove(0);
            let other = self.replicas[0].client();
            let taking = take(&mut self.ledger, &other, &ALL, N_BETWEEN);
            tokio::join!(ending.stop(), taking);
            self.replicas.push(self.options.start_ready().await);
            self.take(&ALL, N_BETWEEN).await;
        }
    }

    /// Returns how many blocks a replica gave back at its end.
    async fn n_returned(&self) -> i64 {
        let returned = "SELECT COUNT(*) FROM block WHERE fate IN ('returned', 'adopted')";
        self.database.number(returned).await.unwrap_or_default()
    }
}

/// Restores a dump, which all replicas refuse until it is recovered. Afterwards all replicas are
/// replaced.
async fn repeats_nothing(server: &Server, form: DumpForm, lives: bool) {
    let mut stage = Stage::new(server).await;
    stage.restore(server, (form, lives)).await;
    // Of the first name living replicas still hold numbers that they reserved before the restore.
    for replica in &stage.replicas {
        is_refused(&mut stage.ledger, &replica.client(), &ALL[1..]).await;
    }
    assert_eq!(stage.ledger.n_duplicates(), 0, "{form:?}");
    recover(&stage.options, &[]);
    for replica in &stage.replicas {
        is_served_again(&mut stage.ledger, &replica.client(), &ALL).await;
    }
    stage.take(&ALL, N_BETWEEN).await;
    assert_eq!(stage.ledger.n_duplicates(), 0, "{form:?}");
    let n_before = stage.n_returned().await;
    stage.replace_all().await;
    let n_returned = stage.n_returned().await - n_before;
    assert!(n_returned > 0, "vacuous: nothing was given back");
    println!(
        "{}, {form:?}, {lives}: {} numbers, {n_returned} blocks given back",
        server.product(),
        stage.ledger.n_numbers(),
    );
    assert_eq!(stage.ledger.n_duplicates(), 0, "{form:?}");
}

#[test]
fn a_dump_in_each_form_repeats_nothing_after_a_recovery_and_a_rolling_restart() {
    run(async {
        let server = Server::shared(Backend::Postgres).await;
        for form in ON_POSTGRES {
            repeats_nothing(server, form, false).await;
        }
    });
}

#[test]
fn a_dump_in_each_form_under_living_replicas_repeats_nothing() {
    run(async {
        let server = Server::shared(Backend::Postgres).await;
        for form in ON_POSTGRES {
            repeats_nothing(server, form, true).await;
        }
    });
}

#[test]
fn a_dump_of_mariadb_in_each_form_repeats_nothing_after_a_recovery_and_a_rolling_restart() {
    run(async {
        let server = Server::shared_of(Product::MariaDb).await;
        for form in ON_MARIADB {
            repeats_nothing(server, form, false).await;
        }
    });
}

#[test]
fn a_dump_of_mariadb_that_takes_its_place_under_living_replicas_repeats_nothing() {
    run(async {
        let server = Server::shared_of(Product::MariaDb).await;
        // The other forms restore one table after the other, under which no replica may live.
        repeats_nothing(server, DumpForm::Elsewhere, true).await;
    });
}
