//! A crowd at the directory itself, without HTTP. The tests count the requests to the store.

use std::{collections::HashSet, sync::Arc, time::Instant};

use actix::System;
use odometer::{
    application::{sequence_settings, stores_settings},
    config::{Config, Secret, StoresConfig},
};
use odometer_core::name::SequenceName;
use odometer_process::metrics::Metrics;
use odometer_sequence::{Directory, error::SequenceError};
use odometer_store::{OpenFor, Stores};

use crate::support::{Backend, TestDatabase, for_each_backend, wait};

const N_CALLERS: usize = 10_000;

for_each_backend!(
    ten_thousand_callers_at_the_directory_share_its_refills,
    a_waiter_beyond_the_bound_is_refused_and_burns_nothing,
);

/// A directory on the test's database, with its metrics.
struct Bench {
    store: Arc<Stores>,
    directory: Arc<Directory>,
    metrics: Arc<Metrics>,
}

impl Bench {
    async fn start(config: &Config) -> Self {
        let metrics = Arc::new(Metrics::new());
        let store = Stores::open(
            stores_settings(config),
            OpenFor::Serving,
            Arc::clone(&metrics),
        )
        .await
        .expect("the store starts");
        let directory = Directory::start(
            Arc::clone(&store),
            sequence_settings(config),
            Arc::clone(&metrics),
        );
        Self {
            store,
            directory,
            metrics,
        }
    }

    fn count(&self, series: &str) -> f64 {
        let text = self.metrics.render();
        text.lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
            .unwrap_or_else(|| panic!("no series {series}"))
    }

    async fn stop(self) {
        let patience = std::time::Duration::from_secs(20);
        self.directory.drain(patience).await;
        self.store.close(patience).await;
    }
}

/// Runs `test` in an actix system of its own, which actors need.
async fn in_a_system<F>(test: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = ()>,
{
    let run = move || System::new().block_on(test());
    tokio::task::spawn_blocking(run)
        .await
        .expect("the test passes in its system");
}

fn config(database: &TestDatabase) -> Config {
    Config {
        stores: StoresConfig::of_database_url(&Secret::new(database.url.clone())),
        ..Config::default()
    }
}

async fn ten_thousand_callers_at_the_directory_share_its_refills(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let config = config(&database);
    in_a_system(async move || {
        let bench = Bench::start(&config).await;
        let name = SequenceName::parse("crowd").expect("a name");
        let calls: Vec<_> = (0..N_CALLERS)
            .map(|_| {
                let (directory, name) = (Arc::clone(&bench.directory), name.clone());
                actix::spawn(async move { take(&directory, &name).await })
            })
            .collect();
        let mut seen = HashSet::new();
        for call in calls {
            let value = call.await.expect("a call ends").expect("a number");
            assert!(seen.insert(value), "{value} twice");
        }
        assert_eq!(seen.len(), N_CALLERS);
        assert_eq!(bench.directory.peak_reservations_in_flight(), 1);
        // One reservation is for the first caller, and one for all callers who came in the
        // meantime. The others are ahead of need.
        let n_reserved = bench.count("odometer_reservations_total{outcome=\"reserved\"}");
        assert!(
            (1.0..=10.0).contains(&n_reserved),
            "{n_reserved} reservations"
        );
        bench.stop().await;
    })
    .await;
    let high_water_mark = database.next_value("crowd").await;
    assert!(high_water_mark > Some(10_000), "{high_water_mark:?}");
}

async fn a_waiter_beyond_the_bound_is_refused_and_burns_nothing(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let mut config = config(&database);
    config.limits.waiters = 10;
    in_a_system(async move || {
        let bench = Bench::start(&config).await;
        let name = SequenceName::parse("crowd").expect("a name");
        let calls: Vec<_> = (0..100)
            .map(|_| {
                let (directory, name) = (Arc::clone(&bench.directory), name.clone());
                actix::spawn(async move { take(&directory, &name).await })
            })
            .collect();
        let mut values = Vec::new();
        let mut n_refused = 0;
        for call in calls {
            match call.await.expect("a call ends") {
                Ok(value) => values.push(value),
                Err(SequenceError::Overloaded { .. }) => n_refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        values.sort_unstable();
        let given: Vec<i64> = (1..).take(values.len()).collect();
        assert_eq!(values, given, "nothing twice and nothing burnt");
        assert!(n_refused > 0, "vacuous: nobody was refused");
        assert_eq!(
            bench.count("odometer_waiters_refused_total"),
            f64::from(n_refused)
        );
        // The callers who got an answer no longer wait, so that others may wait.
        let directory = Arc::clone(&bench.directory);
        wait::until(
            "a place is free",
            std::time::Duration::from_secs(20),
            async || take(&directory, &name).await.ok(),
        )
        .await;
        bench.stop().await;
    })
    .await;
}

/// Takes one number, as a caller who names no period does.
async fn take(directory: &Directory, name: &SequenceName) -> Result<i64, SequenceError> {
    let until = Instant::now() + directory.call_time();
    let issued = directory.take(name, None, (1, false), until).await?;
    Ok(issued.ranges[0].first())
}
