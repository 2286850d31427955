//! Changes at one replica, which the others learn of by their poll.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use odometer::{
    application::stores_settings,
    config::{Config, Secret, StoresConfig},
};
use odometer_core::{definition::Definition, name::SequenceName, period::CounterKey};
use odometer_process::metrics::Metrics;
use odometer_store::{Act, ChangeRequest, Changed, Condition, Following, Loss, OpenFor, Stores};

use crate::support::{Backend, TestDatabase, for_each_server, wait};

/// A limit far longer than two polls take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// More changes than two pages of the poll hold.
const N_AT_ONCE: usize = 2_100;

for_each_server!(a_change_at_one_replica_is_news_at_the_other);

async fn a_change_at_one_replica_is_news_at_the_other(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let here = connect(&database).await;
    define(&here, "before").await;
    let there = connect(&database).await;
    let mut news = there.news().expect("nobody took them yet");

    define(&here, "orders").await;
    let changed = next_changes(&mut news).await;
    let names: Vec<&str> = changed.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(
        names,
        ["orders"],
        "what was there at the first contact is no news"
    );
    let (listed, _) = here
        .look_up(&CounterKey::whole(name("orders")))
        .await
        .expect("it is there");
    assert_eq!(changed[0].version, listed.version);
    assert!(changed[0].is_live);
    assert_eq!(changed[0].floor, 1);

    // All of them change at the same time, so only the names show where a page ends.
    let rows: Vec<String> = (0..N_AT_ONCE)
        .map(|n| format!("('many-{n:05}', '{{}}', 'retired', '', 100, 0, 0)"))
        .collect();
    let insert = format!("INSERT INTO sequence VALUES {}", rows.join(","));
    database.execute(&insert).await;
    database
        .execute("UPDATE meta SET definitions_version = 100")
        .await;
    let mut told = BTreeSet::new();
    while told.len() < N_AT_ONCE {
        for one in next_changes(&mut news).await {
            assert!(!one.is_live, "{one:?}");
            // A reader that is too slow to take a page gets all pages again.
            told.insert(one.name.as_str().to_owned());
        }
    }
    for store in [here, there] {
        store.close(Duration::from_secs(5)).await;
    }
}

for_each_server!(a_recovery_waits_for_no_change_that_was_not_heard);

/// Checks a recovery while nobody takes the changes, of which there are more than may wait.
async fn a_recovery_waits_for_no_change_that_was_not_heard(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let store = connect(&database).await;
    let Following {
        mut news,
        mut recoveries,
    } = store.news().expect("nobody took them yet");
    let rows: Vec<String> = (0..N_AT_ONCE)
        .map(|n| format!("('many-{n:05}', '{{}}', 'retired', '', 100, 0, 0)"))
        .collect();
    let insert = format!("INSERT INTO sequence VALUES {}", rows.join(","));
    database.execute(&insert).await;
    let changed = "UPDATE meta SET definitions_version = 100";
    database.execute(changed).await;
    wait::until("the first page waits", LIMIT, async || {
        (news.len() == 1).then_some(())
    })
    .await;
    assert!(recoveries.try_recv().is_err());
    let settings = stores_settings(&config(&database));
    let recovering = odometer_store::recover(&settings, None, Loss::Steps(1), false, &|_step| {});
    for (_, recovered) in recovering.await.expect("there is a store") {
        recovered.expect("it is recovered");
    }
    let recovery = tokio::time::timeout(LIMIT, recoveries.recv()).await;
    let recovery = recovery.expect("in time").expect("the store is there");
    // A report from before the recovery does not count.
    let before = news.try_recv().expect("it waits");
    assert_eq!((before.source, before.n_recoveries), (recovery.source, 0));
    assert_eq!(recovery.n_recoveries, 1);
    let told_again = tokio::time::timeout(LIMIT, async {
        while let Some(told) = news.recv().await {
            if told.n_recoveries == recovery.n_recoveries {
                return told.changed.len();
            }
        }
        0
    });
    assert!(told_again.await.expect("news in time") > 0);
    store.close(Duration::from_secs(5)).await;
}

fn config(database: &TestDatabase) -> Config {
    Config {
        stores: StoresConfig::of_database_url(&Secret::new(database.url.clone())),
        definition_refresh: Duration::from_secs(1),
        ..Config::default()
    }
}

async fn connect(database: &TestDatabase) -> Arc<Stores> {
    let store = Stores::open(
        stores_settings(&config(database)),
        OpenFor::Serving,
        Arc::new(Metrics::new()),
    );
    store.await.expect("the store starts")
}

fn name(name: &str) -> SequenceName {
    SequenceName::parse(name).expect("a name")
}

async fn define(store: &Stores, sequence: &str) {
    let act = Act::Define {
        change: Box::default(),
        template: Arc::new(Definition::default()),
        dry_run: false,
    };
    let defined = store
        .alter(ChangeRequest {
            name: name(sequence),
            act,
            condition: Condition::None,
            last_seen: None,
            n_created: 0,
        })
        .await;
    defined.expect("it is defined");
}

async fn next_changes(following: &mut Following) -> Vec<Changed> {
    let received = tokio::time::timeout(LIMIT, following.news.recv()).await;
    let news = received.expect("news in time");
    news.expect("the store is there").changed
}
