//! Counters of periods in the store itself: created once, advanced, removed for good.

use std::{sync::Arc, time::Duration};

use odometer::{
    application::stores_settings,
    config::{Config, Secret, StoresConfig},
};
use odometer_core::{
    block::Block,
    definition::{Definition, DefinitionChange},
    name::SequenceName,
    period::{CounterKey, Period, PeriodKind},
};
use odometer_process::metrics::Metrics;
use odometer_store::{
    Act, ChangeRequest, Condition, OpenFor, ReserveRequest, Reserved, Resolved, StoreError, Stores,
    Want,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Backend, TestDatabase, for_each_backend, for_each_server};

/// The number of keys that one sequence may have here.
const KEYS: u64 = 3;
/// The number of periods that three replicas begin at once.
const RACES: i64 = 20;

for_each_backend!(each_period_is_counted_from_the_start);

async fn each_period_is_counted_from_the_start(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let store = connect(&database).await;
    define(&store, "orders", json!({"period": "day", "start": 10}))
        .await
        .expect("it is defined");
    for period in ["20261120", "20261121", "20261119"] {
        let key = key("orders", period);
        for first in [10, 15] {
            let reserved = reserve(&store, &key, 5).await.expect("a block");
            assert_eq!((reserved.block.first(), reserved.block.count()), (first, 5));
            assert_eq!(reserved.key, key);
        }
    }
    // The counter that the sequence was created with issues nothing, and the error says why.
    let refused = reserve(&store, &key("orders", ""), 1).await;
    let Err(StoreError::Changed(definition)) = refused else {
        panic!("numbers without a period: {refused:?}");
    };
    let whole = CounterKey::whole(name("orders"));
    let (listed, seen) = store.look_up(&whole).await.expect("it is there");
    assert_eq!(listed.definition, definition);
    assert_eq!(seen.expect("it has a counter").next_value, 10);
    let day = key("orders", "20261120");
    let (_, seen) = store.look_up(&day).await.expect("it is there");
    assert_eq!(seen.expect("it was used").next_value, 20);
    let (_, seen) = store
        .look_up(&key("orders", "20261122"))
        .await
        .expect("it is there");
    assert_eq!(seen, None);

    define(&store, "plain", json!({}))
        .await
        .expect("it is defined");
    let refused = reserve(&store, &key("plain", "20261120"), 1).await;
    assert!(
        matches!(refused, Err(StoreError::Changed(_))),
        "{refused:?}"
    );
    let refused = reserve(&store, &key("never-seen", "20261120"), 1).await;
    assert!(matches!(refused, Err(StoreError::NotFound)), "{refused:?}");
    assert_eq!(database.next_value("never-seen").await, None);
    store.close(Duration::from_secs(5)).await;
}

for_each_backend!(a_removed_key_is_never_created_again);

async fn a_removed_key_is_never_created_again(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let store = connect(&database).await;
    define(&store, "batches", json!({"period": "keyed"}))
        .await
        .expect("it is defined");
    let used = key("batches", "used");
    let reserved = reserve(&store, &used, 5).await.expect("a block");
    remove(&store, &used).await.expect("it is removed");
    // With or without a remembered counter, the store answers that the period is removed.
    for known in [None, Some(reserved.known)] {
        let refused = reserve_on(&store, &used, 5, known).await;
        assert!(
            matches!(refused, Err(StoreError::PeriodRemoved)),
            "{refused:?}"
        );
    }
    assert!(!remove(&store, &used).await.expect("again"));
    let advanced = advance(&store, &used, 100).await;
    assert!(
        matches!(advanced, Err(StoreError::PeriodRemoved)),
        "{advanced:?}"
    );
    // The same holds for a key that was never used.
    let unused = key("batches", "unused");
    assert!(remove(&store, &unused).await.expect("it is removed"));
    let refused = reserve(&store, &unused, 5).await;
    assert!(
        matches!(refused, Err(StoreError::PeriodRemoved)),
        "{refused:?}"
    );
    // Removed keys leave room for as many keys as are allowed.
    for n in 0..KEYS {
        let block = reserve(&store, &key("batches", &format!("key-{n}")), 5).await;
        assert_eq!(block.expect("there is room").block.first(), 1);
    }
    let more = key("batches", "one-more");
    let refused = reserve(&store, &more, 5).await;
    assert!(is_too_many(&refused), "{refused:?}");
    let refused = remove(&store, &more).await;
    assert!(is_too_many(&refused), "{refused:?}");
    let refused = advance(&store, &more, 100).await;
    assert!(is_too_many(&refused), "{refused:?}");

    define(&store, "days", json!({"period": "day"}))
        .await
        .expect("it is defined");
    let refused = remove(&store, &key("days", "20261120")).await;
    assert!(
        matches!(refused, Err(StoreError::NotForKind)),
        "{refused:?}"
    );
    store.close(Duration::from_secs(5)).await;
}

fn is_too_many<T>(refused: &Result<T, StoreError>) -> bool {
    matches!(refused, Err(StoreError::TooManyPeriods { limit: KEYS }))
}

for_each_server!(a_period_that_three_replicas_begin_at_once_begins_once);

async fn a_period_that_three_replicas_begin_at_once_begins_once(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let stores = [
        connect(&database).await,
        connect(&database).await,
        connect(&database).await,
    ];
    for kind in ["day", "keyed"] {
        define(&stores[0], kind, json!({"period": kind}))
            .await
            .expect("it is defined");
        for n in 0..RACES {
            // The sequence may have no more keys than this.
            let key = match kind {
                "keyed" if n < 3 => key(kind, &format!("key-{n}")),
                "keyed" => break,
                _ => key(kind, &format!("202611{:02}", n + 1)),
            };
            let [a, b, c] = stores.each_ref().map(|store| reserve(store, &key, 5));
            let (a, b, c) = tokio::join!(a, b, c);
            let blocks = [a, b, c].map(|reserved| reserved.expect("a block").block);
            let mut firsts = blocks.map(|block: Block| block.first());
            firsts.sort_unstable();
            assert_eq!(firsts, [1, 6, 11], "{key}");
        }
    }
    // If many keys come first at the same time, no more are created than the limit allows.
    define(&stores[0], "crowd", json!({"period": "keyed"}))
        .await
        .expect("it is defined");
    let mut many = JoinSet::new();
    for n in 0..12 {
        let store = Arc::clone(&stores[n % 3]);
        many.spawn(async move { reserve(&store, &key("crowd", &format!("key-{n}")), 1).await });
    }
    let outcomes = many.join_all().await;
    let n_created = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(n_created, 3, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|one| is_too_many(one)).count(), 9);
    for store in stores {
        store.close(Duration::from_secs(5)).await;
    }
}

for_each_backend!(a_period_is_advanced_by_itself);

async fn a_period_is_advanced_by_itself(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let store = connect(&database).await;
    define(&store, "orders", json!({"period": "month"}))
        .await
        .expect("it is defined");
    let (used, unused) = (key("orders", "202611"), key("orders", "202612"));
    let reserved = reserve(&store, &used, 5).await.expect("a block");
    let refused = advance(&store, &key("orders", ""), 100).await;
    assert!(
        matches!(refused, Err(StoreError::Changed(_))),
        "{refused:?}"
    );
    for key in [&used, &unused] {
        assert!(advance(&store, key, 100).await.expect("it is advanced"));
        assert!(!advance(&store, key, 100).await.expect("again"));
    }
    // The remembered counter conflicts, and the next read has the floor.
    let reserved = reserve_on(&store, &used, 5, Some(reserved.known)).await;
    let reserved = reserved.expect("a block");
    assert_eq!((reserved.block.first(), reserved.known.floor), (100, 100));
    let first = reserve(&store, &unused, 5).await.expect("a block");
    assert_eq!(first.block.first(), 100);
    let other = reserve(&store, &key("orders", "202701"), 5).await;
    assert_eq!(other.expect("a block").block.first(), 1);

    // `max` may not fall below the counter of any period.
    let refused = define(&store, "orders", json!({"max": 103})).await;
    assert!(
        matches!(refused, Err(StoreError::Definition(_))),
        "{refused:?}"
    );
    define(&store, "orders", json!({"max": 104}))
        .await
        .expect("it is changed");
    let reserved = reserve_on(&store, &used, 1, Some(reserved.known)).await;
    assert!(
        matches!(reserved, Err(StoreError::Exhausted { left: 0 })),
        "{reserved:?}"
    );
    // While the sequence is retired, no period is created and no period issues. After the restore,
    // each period goes on above all reserved numbers.
    alter(&store, "orders", Act::Retire).await.expect("retired");
    for key in [&used, &key("orders", "202702")] {
        let refused = reserve(&store, key, 1).await;
        assert!(matches!(refused, Err(StoreError::Retired)), "{refused:?}");
    }
    alter(&store, "orders", Act::Restore)
        .await
        .expect("restored");
    let reserved = reserve(&store, &key("orders", "202701"), 1).await;
    let reserved = reserved.expect("a block");
    assert_eq!((reserved.block.first(), reserved.known.floor), (6, 6));
    store.close(Duration::from_secs(5)).await;
}

async fn connect(database: &TestDatabase) -> Arc<Stores> {
    let mut config = Config {
        stores: StoresConfig::of_database_url(&Secret::new(database.url.clone())),
        definition_refresh: Duration::from_secs(1),
        ..Config::default()
    };
    config.limits.keyed_periods = KEYS;
    let store = Stores::open(
        stores_settings(&config),
        OpenFor::Serving,
        Arc::new(Metrics::new()),
    );
    let store = store.await.expect("the store starts");
    store.reached().await;
    store
}

fn name(name: &str) -> SequenceName {
    SequenceName::parse(name).expect("a name")
}

fn key(sequence: &str, period: &str) -> CounterKey {
    CounterKey {
        sequence: name(sequence),
        period: Period::from_stored(period),
    }
}

async fn define(
    store: &Arc<Stores>,
    sequence: &str,
    definition: Value,
) -> Result<bool, StoreError> {
    let change = DefinitionChange::from_value(&definition).expect("a definition");
    let act = Act::Define {
        change: Box::new(change),
        template: Arc::new(Definition::default()),
        dry_run: false,
    };
    alter(store, sequence, act).await
}

async fn advance(store: &Arc<Stores>, key: &CounterKey, floor: i64) -> Result<bool, StoreError> {
    let act = Act::Advance {
        period: key.period.clone(),
        floor,
        confirm: true,
    };
    alter(store, key.sequence.as_str(), act).await
}

async fn remove(store: &Arc<Stores>, key: &CounterKey) -> Result<bool, StoreError> {
    let period = key.period.clone();
    alter(store, key.sequence.as_str(), Act::RemovePeriod { period }).await
}

/// Makes a change, and returns whether it wrote anything.
async fn alter(store: &Arc<Stores>, sequence: &str, act: Act) -> Result<bool, StoreError> {
    let altered = store
        .alter(ChangeRequest {
            name: name(sequence),
            act,
            condition: Condition::None,
            last_seen: None,
            n_created: 0,
        })
        .await?;
    Ok(altered.is_written)
}

async fn reserve(
    store: &Arc<Stores>,
    key: &CounterKey,
    count: u64,
) -> Result<Reserved, StoreError> {
    reserve_on(store, key, count, None).await
}

async fn reserve_on(
    store: &Arc<Stores>,
    key: &CounterKey,
    count: u64,
    known: Option<Resolved>,
) -> Result<Reserved, StoreError> {
    let counted_by = match &known {
        Some(known) => Arc::clone(&known.definition),
        None => counted_by(store, key).await?,
    };
    let request = ReserveRequest {
        key: key.clone(),
        counted_by: Some(counted_by),
        last_seen: known.as_ref().map(|known| known.seen),
        is_fresh: false,
        is_first: known.is_none(),
        known,
        want: Want::Exactly(count),
        adopt_from: None,
        urgency: Arc::default(),
        progress: Arc::default(),
    };
    let outcome = store.reserve(request).await.expect("it is answered");
    Ok(outcome?.publish_for(true).expect("it is ours"))
}

/// The definition by which an issuer of the counter is made: one that has the period, or none.
async fn counted_by(store: &Arc<Stores>, key: &CounterKey) -> Result<Arc<Definition>, StoreError> {
    let mut definition = store.resolve(&key.sequence, None).await?.known.definition;
    let has_periods = definition.period != PeriodKind::None;
    if has_periods == key.period.is_none() {
        // A replica that does not know the sequence yet may be wrong.
        let wrong = Arc::make_mut(&mut definition);
        wrong.period = if has_periods {
            PeriodKind::None
        } else {
            PeriodKind::Keyed
        };
    }
    Ok(definition)
}
