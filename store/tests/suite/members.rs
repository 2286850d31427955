//! A store of several databases: refills and leases go round them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use odometer_core::name::SequenceName;
use odometer_store::{
    LeaseError, LeaseGrant, LeaseWanted, Stores, StoresSettings, WorkerChoice, WorkerPool,
};
use odometer_tests::{Backend, TestDatabase};

use crate::{
    for_each_backend,
    stage::{LIMIT, connect, reserve_by, settings},
};

const N_DATABASES: usize = 3;
/// How long a statement may take while one database is silent.
const SHORT: Duration = Duration::from_secs(3);

/// Several databases, and one store on all of them.
struct Members {
    databases: Vec<TestDatabase>,
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
        let migrated = odometer_store::migrate(&settings, &mut |_line| {}).await;
        migrated.expect("the schemas are made");
        let (store, _metrics) = connect(&settings).await;
        // Every member is asked from the beginning.
        odometer_tests::wait::until("all databases answer", LIMIT, async || {
            let health = store.health();
            let is_up = health[0].databases.iter().all(|it| it.is_up);
            is_up.then_some(())
        })
        .await;
        Self { databases, store }
    }

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
