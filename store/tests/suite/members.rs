//! A store of several databases: refills and leases go round them.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use odometer_core::{block::Block, name::SequenceName, period::Period};
use odometer_store::{
    Act, ChangeRequest, Condition, FenceRequest, LeaseError, LeaseGrant, LeaseWanted, Loss,
    Recovered, Stores, StoresSettings, WorkerChoice, WorkerPool,
};
use odometer_tests::{Backend, TestDatabase, wait};

use crate::{
    births::reserve_in,
    for_each_backend,
    stage::{LIMIT, connect, define, name, reserve_by, settings},
};

const N_DATABASES: usize = 3;
/// Each database has one number in three.
const N_OWN: i64 = 3;
/// One number a second, and a thousand at once.
const SLOW: &str = r#"{"limit": {"rate": 1, "burst": 1000}}"#;
/// How many seconds may pass between two questions.
const SOON: i64 = 30;
const NEXT_VALUE: &str = "SELECT next_value FROM counter";
const PACED_UNTIL: &str = "SELECT paced_until_us FROM counter";
/// How long a statement may take while one database is silent.
const SHORT: Duration = Duration::from_secs(3);

/// Several databases, and one store on all of them.
struct Members {
    databases: Vec<TestDatabase>,
    settings: StoresSettings,
    store: Arc<Stores>,
}

impl Members {
    async fn new(backend: Backend, statement: Duration) -> Self {
        let mut databases = Vec::new();
        for _member in 0..N_DATABASES {
            databases.push(TestDatabase::empty(backend).await);
        }
        let mut settings: StoresSettings = settings(&databases[0].url, statement);
        settings.stores[0].databases = databases.iter().map(|it| it.url.clone().into()).collect();
        let migrated = odometer_store::migrate(&settings, None, &mut |_line| {}, &|_step| {}).await;
        migrated.expect("the schemas are made");
        let (store, _metrics) = connect(&settings).await;
        // Every member is asked from the beginning.
        odometer_tests::wait::until("all databases answer", LIMIT, async || {
            let health = store.health();
            let is_up = health[0].databases.iter().all(|it| it.is_up);
            is_up.then_some(())
        })
        .await;
        Self {
            databases,
            settings,
            store,
        }
    }

    /// Reads a number of one database.
    async fn number(&self, k: usize, query: &str) -> i64 {
        let number = self.databases[k].number(query).await;
        number.expect("there is such a row")
    }

    async fn alter(&self, act: Act) {
        let change = ChangeRequest {
            name: name(),
            act,
            condition: Condition::None,
            last_seen: None,
            n_created: 0,
        };
        let altered = self.store.alter(change).await;
        altered.expect("it is changed");
    }

    /// Defines the sequence of the tests. Each database catches up with the others after a change.
    async fn define(&self, fields: &str) {
        self.alter(define(fields)).await;
    }

    /// Lets the second database be a copy in which these statements say what was lost, and fences
    /// it. Returns what was done to it.
    async fn fence_second(self, losing: &[String]) -> (Vec<TestDatabase>, Recovered) {
        self.store.close(LIMIT).await;
        drop(self.store);
        let promote = "UPDATE lineage SET server = 'another'".to_owned();
        let arm = "UPDATE meta SET armed_at = 1".to_owned();
        for statement in losing.iter().chain([&promote, &arm]) {
            self.databases[1].execute(statement).await;
        }
        let loss = Loss::Computed(FenceRequest::default());
        let outcomes =
            odometer_store::recover(&self.settings, None, loss, false, &|_step| {}).await;
        let outcomes = outcomes.expect("there is a store").into_iter();
        let recovered = outcomes.map(|(_name, outcome)| outcome.expect("nothing fails"));
        let mut recovered: Vec<Recovered> = recovered.collect();
        let is_fenced = recovered.iter().map(|it| it.fence.is_some());
        assert_eq!(is_fenced.collect::<Vec<_>>(), [false, true, false]);
        (self.databases, recovered.swap_remove(1))
    }

    /// Lets the first database give up to its number `n`.
    async fn leave_behind(&self, n: i64) {
        let next_value = n * N_OWN + 1;
        let raise = format!("UPDATE counter SET next_value = {next_value}, version = version + 1");
        self.databases[0].execute(&raise).await;
        let fields = format!(r#"{{"description": "the first one is at {n}"}}"#);
        self.define(&fields).await;
    }

    /// Reserves blocks until the second database gives one, and returns it.
    async fn reserve_from_second(&self) -> Block {
        for _turn in 0..2 * N_DATABASES {
            let reserved = reserve_by(&self.store, 10, None, None).await;
            let reserved = reserved.expect("it is reserved");
            if reserved.source.database == 1 {
                return reserved.block;
            }
        }
        panic!("the second database gives nothing");
    }

    /// How many numbers the second database has given or skipped, and for how many it has paid
    /// within the last seconds.
    async fn used_and_paid(&self) -> (i64, i64) {
        let used = (self.number(1, NEXT_VALUE).await - 2) / N_OWN;
        let paced_until_us = self.number(1, PACED_UNTIL).await;
        (used, (paced_until_us - now_us()) / 1_000_000 + 1)
    }
}

fn now_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("it is later than 1970").as_micros();
    i64::try_from(now).expect("it fits")
}

impl Members {
    /// Leases any id of eight.
    async fn lease(&self, holder: &str) -> Result<LeaseGrant, LeaseError> {
        let wanted = LeaseWanted {
            pool: WorkerPool::Named(SequenceName::parse("billing").expect("it is a name")),
            bits: 3,
            holder: holder.into(),
            ttl: Duration::from_secs(600),
            choice: WorkerChoice::Any,
            usable_by_ms: None,
        };
        self.store.lease("default", wanted).await
    }
}

for_each_backend!(refills_and_leases_go_round_the_databases);

async fn refills_and_leases_go_round_the_databases(backend: Backend) {
    let members = Members::new(backend, LIMIT).await;
    let (mut blocks, mut sources, mut known) = (Vec::new(), BTreeSet::new(), None);
    for _turn in 0..2 * N_DATABASES {
        let reserved = reserve_by(&members.store, 10, known.as_ref(), None).await;
        let reserved = reserved.expect("it is reserved");
        let numbers = (0..10).map(|at| reserved.block.first() + at * reserved.block.step());
        blocks.extend(numbers);
        sources.insert(reserved.source.database);
        known = Some(reserved.known);
    }
    assert_eq!(sources.len(), N_DATABASES, "each of them gives some");
    let n_numbers = blocks.len();
    assert_eq!(BTreeSet::from_iter(blocks).len(), n_numbers);
    let mut workers = BTreeSet::new();
    for holder in 0..8 {
        let lease = members.lease(&format!("holder {holder}")).await;
        workers.insert(lease.expect("an id is free").key.worker);
    }
    assert_eq!(workers, (0..8).collect());
    let refused = members.lease("one too many").await;
    assert!(
        matches!(refused, Err(LeaseError::NoneFree { workers: 8 })),
        "{refused:?}"
    );
    members.store.close(LIMIT).await;
}

for_each_backend!(a_database_that_is_silent_is_passed_over);

async fn a_database_that_is_silent_is_passed_over(backend: Backend) {
    let members = Members::new(backend, SHORT).await;
    let first = reserve_by(&members.store, 10, None, None).await;
    let first = first.expect("it is reserved");
    let frozen = members.databases[1].freeze().await;
    let mut known = first.known;
    for _turn in 0..2 * N_DATABASES {
        let reserved = reserve_by(&members.store, 10, Some(&known), None).await;
        let reserved = reserved.expect("the others give it");
        assert_ne!(reserved.source.database, 1);
        known = reserved.known;
    }
    for holder in 0..N_DATABASES {
        let lease = members.lease(&format!("holder {holder}")).await;
        lease.expect("the others have one");
    }
    frozen.thaw().await;
    members.store.close(LIMIT).await;
}

for_each_backend!(what_a_database_skips_to_catch_up_is_paid_for);

async fn what_a_database_skips_to_catch_up_is_paid_for(backend: Backend) {
    let members = Members::new(backend, SHORT).await;
    members.define(SLOW).await;
    members.leave_behind(200).await;
    let block = members.reserve_from_second().await;
    assert!(block.first() > 199 * N_OWN, "{block:?}");
    let (used, paid) = members.used_and_paid().await;
    assert!(used > 200 && (used - SOON..=used).contains(&paid));
    // Catching up leaves three quarters of the burst.
    members.leave_behind(5000).await;
    let block = members.reserve_from_second().await;
    assert!(block.first() < 5000 * N_OWN, "{block:?}");
    let (used, paid) = members.used_and_paid().await;
    assert!((230..=250 + SOON).contains(&used), "{used}");
    assert!((used - SOON..=used).contains(&paid), "{paid} of {used}");
    members.store.close(LIMIT).await;
}

for_each_backend!(a_copy_of_one_database_is_fenced_above_what_it_skipped);

/// Checks a copy of a database that caught up with the others in commits that are lost.
async fn a_copy_of_one_database_is_fenced_above_what_it_skipped(backend: Backend) {
    let members = Members::new(backend, SHORT).await;
    members.define(SLOW).await;
    members.reserve_from_second().await;
    let paced_until_us = now_us() + 900_000_000;
    let use_up = format!("UPDATE counter SET paced_until_us = {paced_until_us}");
    members.databases[1].execute(&use_up).await;
    let next_value = members.number(1, NEXT_VALUE).await;
    members.leave_behind(5000).await;
    let lost = members.reserve_from_second().await;
    let lose = format!("UPDATE counter SET next_value = {next_value}");
    let (databases, fenced) = members.fence_second(&[lose, use_up]).await;
    assert!(fenced.highest_rise < 400 * N_OWN, "{fenced:?}");
    let next_value = databases[1].number(NEXT_VALUE).await;
    assert!(next_value > Some(lost.last()), "{next_value:?} {lost:?}");
}

for_each_backend!(a_sequence_that_a_copy_lacks_begins_above_the_fence_and_its_floor);

async fn a_sequence_that_a_copy_lacks_begins_above_the_fence_and_its_floor(backend: Backend) {
    begins_above_the_fence_and_its_floor(backend, None).await;
}

for_each_backend!(a_change_gives_a_copy_what_it_lacks_above_the_fence_and_the_floor);

async fn a_change_gives_a_copy_what_it_lacks_above_the_fence_and_the_floor(backend: Backend) {
    let fields =
        r#"{"description": "changed after the fence", "limit": {"rate": 1, "burst": 1000}}"#;
    begins_above_the_fence_and_its_floor(backend, Some(fields)).await;
}

/// Checks that a database that lost a sequence gets it back from the others, or by a change with
/// these fields, above what the database can have given from the floor on.
async fn begins_above_the_fence_and_its_floor(backend: Backend, change: Option<&str>) {
    let members = Members::new(backend, SHORT).await;
    members.define(SLOW).await;
    let floor = 500 * N_OWN;
    let advance = Act::Advance {
        period: Period::none(),
        floor,
        confirm: true,
    };
    members.alter(advance).await;
    let settings = members.settings.clone();
    let losing = ["counter", "sequence"].map(|table| format!("DELETE FROM {table}"));
    let (databases, _fenced) = members.fence_second(&losing).await;
    let (store, _metrics) = connect(&settings).await;
    let members = Members {
        databases,
        settings,
        store,
    };
    match change {
        Some(fields) => members.define(fields).await,
        None => {
            for _turn in 0..2 * N_DATABASES {
                let reserved = reserve_by(&members.store, 10, None, None).await;
                reserved.expect("the others give it");
            }
        }
    }
    let next_value = members.number(1, NEXT_VALUE).await;
    assert!(next_value >= floor + 1000 * N_OWN, "{next_value}");
    members.store.close(LIMIT).await;
}

for_each_backend!(a_period_that_a_copy_lacks_begins_above_the_fence_and_its_floor);

async fn a_period_that_a_copy_lacks_begins_above_the_fence_and_its_floor(backend: Backend) {
    const KEY: &str = "key";
    let fields = r#"{"limit": {"rate": 1, "burst": 1000}, "period": "keyed"}"#;
    let members = Members::new(backend, SHORT).await;
    members.define(fields).await;
    let floor = 500 * N_OWN;
    let advance = Act::Advance {
        period: Period::parse(KEY).expect("it is a period"),
        floor,
        confirm: true,
    };
    members.alter(advance).await;
    let settings = members.settings.clone();
    let losing = format!("DELETE FROM counter WHERE period = '{KEY}'");
    let (databases, _fenced) = members.fence_second(&[losing]).await;
    let (store, _metrics) = connect(&settings).await;
    for _turn in 0..2 * N_DATABASES {
        reserve_in(&store, KEY).await;
    }
    let of_key = format!("{NEXT_VALUE} WHERE period = '{KEY}'");
    let next_value = databases[1].number(&of_key).await;
    assert!(next_value >= Some(floor + 1000 * N_OWN), "{next_value:?}");
    store.close(LIMIT).await;
}

for_each_backend!(a_word_about_one_database_leaves_those_that_wait_in_another_one);

/// Checks that a sequence that waits in one database still does after a word that another one has
/// lost nothing, and that nothing is said of new counters.
async fn a_word_about_one_database_leaves_those_that_wait_in_another_one(backend: Backend) {
    const WAITING: &str = "SELECT COUNT(*) FROM counter WHERE must_recover = TRUE";
    let members = Members::new(backend, SHORT).await;
    members.define(r#"{"max": 10000}"#).await;
    members.reserve_from_second().await;
    let settings = members.settings.clone();
    let (databases, fenced) = members.fence_second(&[]).await;
    assert_eq!(fenced.unknown, ["orders"]);
    assert_eq!(databases[1].number(WAITING).await, Some(1));
    let say = async |loss: Loss| {
        let outcomes = odometer_store::recover(&settings, None, loss, false, &|_step| {}).await;
        let outcomes = outcomes.expect("there is a store").into_iter();
        outcomes.map(|(_name, outcome)| outcome).collect::<Vec<_>>()
    };
    let promote = "UPDATE lineage SET server = 'another'";
    databases[0].execute(promote).await;
    for outcome in say(Loss::Steps(0)).await {
        outcome.expect("it has lost nothing");
    }
    assert_eq!(databases[1].number(WAITING).await, Some(1));
    for outcome in say(Loss::NoCounter).await {
        let refused = outcome.expect_err("another one may have the counter");
        assert!(refused.to_string().contains("other databases"), "{refused}");
    }
    let name = name().as_str().into();
    for outcome in say(Loss::OfSequence { name, n_steps: 10 }).await {
        outcome.expect("an operator says what was lost");
    }
    assert_eq!(databases[1].number(WAITING).await, Some(0));
}

for_each_backend!(a_program_that_does_not_pay_for_catching_up_loses_its_row);

/// Checks that databases that count together keep a program of schema 7 out once they are armed.
async fn a_program_that_does_not_pay_for_catching_up_loses_its_row(backend: Backend) {
    let members = Members::new(backend, SHORT).await;
    let insert = "INSERT INTO replica (holder, beat, beat_at, knows_fences) \
                  VALUES ('before', 7, 9000000000000, TRUE)";
    let n_before = "SELECT COUNT(*) FROM replica WHERE holder = 'before'";
    for database in &members.databases {
        database.execute(insert).await;
    }
    members.databases[1]
        .execute("UPDATE meta SET armed_at = 1")
        .await;
    wait::until("its row goes", LIMIT, async || {
        (members.number(1, n_before).await == 0).then_some(())
    })
    .await;
    assert_eq!(members.number(0, n_before).await, 1);
    members.store.close(LIMIT).await;
}
