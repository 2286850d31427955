//! Each kind of guarded statement by itself meets a database that became a copy.
//!
//! A replica that knows of a copy sends nothing to it any more. So each kind has a replica of its
//! own, which polls once an hour: the statement itself is the first to meet the copy. To replace no
//! connection, the stamp is changed in place, as if another server had written it.

use reqwest::Method;
use serde_json::json;

use super::{LIMIT, WENT_BACK, is_passing};
use crate::support::{
    Backend, Client, Lease, Options, Program, Reply, TestDatabase, changes, for_each_server, wait,
};

const TTL_MS: i64 = 60_000;
const BITS: u32 = 10;
/// A name with a block that its replica gives back when it stops.
const RETURNED: &str = "returned";

for_each_server!(each_guarded_statement_is_refused_by_a_copy);

async fn each_guarded_statement_is_refused_by_a_copy(backend: Backend) {
    let stage = Stage::new(backend, Program::options()).await;
    let before = contents(&stage.database).await;
    for (kind, answer) in stage.act().await {
        assert_eq!(answer, Err(WENT_BACK.to_owned()), "{kind:?}");
    }
    stage.returning.stop().await;
    assert_eq!(contents(&stage.database).await, before);
}

for_each_server!(without_its_stamp_each_statement_changes_a_copy);

async fn without_its_stamp_each_statement_changes_a_copy(backend: Backend) {
    let stage = Stage::new(backend, Program::options().without_guards("no-stamp")).await;
    for (kind, answer) in stage.act().await {
        assert_eq!(answer, Ok(()), "{kind:?}");
    }
    stage.returning.stop().await;
    let journal = stage.database.journal(RETURNED).await;
    assert!(
        journal.iter().any(|row| row.fate == "returned"),
        "{journal:?}"
    );
}

/// What a call does to the database, and the name of its sequence or pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A used name gets its next block.
    Refill,
    /// A caller gets a block of its own.
    Block,
    /// A strict sequence counts on.
    Addition,
    /// A block that was returned is adopted.
    Adoption,
    /// A name is used first.
    FirstUse,
    /// A name is defined first.
    Definition,
    /// A definition changes.
    Change,
    /// A floor is raised.
    Floor,
    /// A sequence is retired.
    Retirement,
    /// A key is used first.
    Period,
    /// A key is removed.
    PeriodRemoval,
    /// A worker id is leased.
    Lease,
    /// A lease is renewed.
    Renewal,
    /// A lease ends.
    LeaseEnd,
    /// A time-ordered sequence leases its worker id.
    Moment,
}

impl Kind {
    const ALL: [Self; 15] = [
        Self::Refill,
        Self::Block,
        Self::Addition,
        Self::Adoption,
        Self::FirstUse,
        Self::Definition,
        Self::Change,
        Self::Floor,
        Self::Retirement,
        Self::Period,
        Self::PeriodRemoval,
        Self::Lease,
        Self::Renewal,
        Self::LeaseEnd,
        Self::Moment,
    ];

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn path(self, end: &str) -> String {
        format!("/v1/sequences/{}{end}", self.name())
    }

    /// Does what comes before the call, while the database is sound. Returns a lease, if the call
    /// needs one.
    async fn prepare(self, client: &Client, options: &Options) -> Option<Lease> {
        let name = self.name();
        match self {
            Self::FirstUse | Self::Definition | Self::Lease => {}
            Self::Refill | Self::Block | Self::Change | Self::Floor | Self::Retirement => {
                client.next(&name).await;
            }
            Self::Addition => {
                client.define(&name, &json!({"order": "strict"})).await;
                client.next(&name).await;
            }
            Self::Adoption => {
                let other = options.start_ready().await;
                other.client().next(&name).await;
                other.stop().await;
            }
            Self::Period | Self::PeriodRemoval => {
                client.define(&name, &json!({"period": "keyed"})).await;
                let used = client.post(&self.path("/next?period=used")).await;
                assert_eq!(used.expect("a reply").status, 200);
            }
            Self::Renewal | Self::LeaseEnd => {
                return Some(client.lease(&name, BITS, TTL_MS, "one").await);
            }
            Self::Moment => {
                client.define(&name, &json!({"kind": "snowflake"})).await;
            }
        }
        None
    }

    /// Makes the call.
    async fn call(self, client: &Client, lease: Option<&Lease>) -> Reply {
        let held = || lease.expect("it was leased before");
        let described = json!({"description": "late"});
        let reply = match self {
            // Memory has fewer numbers.
            Self::Refill => client.post(&self.path("/next?count=500")).await,
            Self::Block => client.post(&self.path("/blocks?size=500")).await,
            Self::Addition | Self::Adoption | Self::FirstUse | Self::Moment => {
                client.post(&self.path("/next")).await
            }
            Self::Definition | Self::Change => client.put(&self.path(""), &described).await,
            Self::Floor => {
                let body = json!({"floor": "5000"});
                return changes::advance(client, &self.name(), &body).await;
            }
            Self::Retirement => return changes::retire(client, &self.name()).await,
            Self::Period => client.post(&self.path("/next?period=new")).await,
            Self::PeriodRemoval => {
                let path = self.path("/periods/used");
                client.send(Method::DELETE, &path, &[], None).await
            }
            Self::Lease => {
                let body = json!({
                    "pool": self.name(), "bits": BITS, "ttl_ms": TTL_MS, "holder": "one",
                });
                client.ask_for_worker(&body).await
            }
            Self::Renewal => client.renew(held(), None).await,
            Self::LeaseEnd => client.give_back(held(), None).await,
        };
        reply.expect("a reply")
    }
}

/// A database, and a replica for each kind of statement.
struct Stage {
    database: TestDatabase,
    actors: Vec<(Kind, Program, Option<Lease>)>,
    /// A replica that has a block, and is only stopped.
    returning: Program,
}

impl Stage {
    async fn new(backend: Backend, options: Options) -> Self {
        let database = TestDatabase::prepared(backend).await;
        let options = options
            .database(&database.url)
            .env("ODOMETER_DEFINITION_REFRESH", "1h")
            .env("ODOMETER_POOL__MAX", 2)
            .env("ODOMETER_DEFAULT__BLOCK__MIN", 10)
            .env("ODOMETER_DEFAULT__BLOCK__MAX", 10);
        // A replica that starts loads the names in use, so all start before the first use.
        let returning = options.start_ready().await;
        let mut actors = Vec::new();
        for kind in Kind::ALL {
            actors.push((kind, options.start_ready().await, None));
        }
        for (kind, program, lease) in &mut actors {
            *lease = kind.prepare(&program.client(), &options).await;
        }
        returning.client().next(RETURNED).await;
        wait::until("the block has its row", LIMIT, async || {
            let rows = database.journal(RETURNED).await;
            (!rows.is_empty()).then_some(())
        })
        .await;
        let other_server = "UPDATE lineage SET server = 'another one'";
        database.execute(other_server).await;
        Self {
            database,
            actors,
            returning,
        }
    }

    /// Makes each call once its database answers.
    async fn act(&self) -> Vec<(Kind, Result<(), String>)> {
        let mut answers = Vec::new();
        for (kind, program, lease) in &self.actors {
            let client = program.client();
            let answer = wait::until("an answer", LIMIT, async || {
                let reply = kind.call(&client, lease.as_ref()).await;
                match reply.code() {
                    None => Some(Ok(())),
                    Some(code) => (!is_passing(&code)).then_some(Err(code)),
                }
            });
            answers.push((*kind, answer.await));
        }
        answers
    }
}

/// Reads sums that each change of a table changes. Rows of blocks that are held do not count, as the
/// journal is written late.
async fn contents(database: &TestDatabase) -> Vec<Option<i64>> {
    let integer = match database.backend {
        Backend::MariaDb => "SIGNED",
        Backend::Postgres | Backend::Sqlite => "BIGINT",
    };
    let mut all = Vec::new();
    for (sum, rows) in [
        ("SUM(next_value + floor + version + revision)", "counter"),
        ("COUNT(*)", "counter"),
        ("SUM(version)", "sequence"),
        ("COUNT(*)", "sequence"),
        ("COUNT(*)", "block WHERE fate <> 'held'"),
        ("SUM(version)", "worker_lease"),
        ("COUNT(*)", "worker_lease"),
        ("SUM(beat)", "replica"),
        ("COUNT(*)", "replica"),
        ("SUM(definitions_version)", "meta"),
        ("SUM(stamped_at)", "lineage"),
    ] {
        let query = format!("SELECT CAST({sum} AS {integer}) FROM {rows}");
        all.push(database.number(&query).await);
    }
    all
}
