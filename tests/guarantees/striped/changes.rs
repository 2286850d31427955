//! A change of a sequence that several databases share is made in all of them, or in none.

use serde_json::{Value, json};

use super::{KINDS, LIMIT, Stripes, call, change, n_twice, take, until_all_give};
use crate::support::{Backend, Client, Link, Program, Reply, TestDatabase, run, wait};

const PATH: &str = "/v1/sequences/orders";

#[test]
fn a_change_needs_every_database() {
    run(async {
        let stripes = Stripes::new().await;
        let old = json!({"description": "old"});
        let (program, _) = stripes.serving("orders", &old).await;
        let client = program.client();
        for k in 0..KINDS.len() {
            let before = state_of(&stripes).await;
            stripes.set(k, Link::Cut);
            let changes = [
                ("PUT", "", Some(json!({"description": "new"}))),
                ("POST", "/advance", Some(json!({"floor": "100000"}))),
                ("DELETE", "", None),
            ];
            for (method, action, body) in changes {
                let path = format!("{PATH}{action}");
                let reply = call(&client, method, &path, body).await;
                assert_eq!(reply.status, 503, "{method} {path}: {reply:?}");
                let code = reply.code();
                assert_eq!(code.as_deref(), Some("store_unavailable"), "{reply:?}");
            }
            // Numbers are issued as before.
            let values = take(&client, "orders", 60).await;
            assert!(values.iter().all(|value| *value < 100_000), "{values:?}");
            assert_eq!(state_of(&stripes).await, before, "without {k}");
            stripes.set(k, Link::Whole);
            until_all_give(&client, "orders").await;
        }
    });
}

#[test]
fn a_change_made_in_some_of_the_databases_is_found_out() {
    run(async {
        let stripes = Stripes::new().await;
        let options = stripes.options(Program::options().without_guards("change-incomplete"));
        let program = options.start_ready().await;
        let client = program.client();
        let old = json!({"description": "old"});
        client.define("orders", &old).await;
        until_all_give(&client, "orders").await;
        let before = state_of(&stripes).await;
        stripes.set(0, Link::Cut);
        let new = json!({"description": "new"});
        wait::until("the change is made without it", LIMIT, async || {
            let reply = call(&client, "PUT", PATH, Some(new.clone())).await;
            (reply.status == 200).then_some(())
        })
        .await;
        let after = state_of(&stripes).await;
        let is_same: Vec<bool> = before.iter().zip(&after).map(|(b, a)| a == b).collect();
        assert_eq!(is_same, [true, false, false], "{before:?} {after:?}");
    });
}

#[test]
fn a_change_made_in_every_database_holds_on_every_replica() {
    run(async {
        let stripes = Stripes::new().await;
        let options = stripes.options(Program::options());
        let programs = [options.start_ready().await, options.start_ready().await];
        let (here, there) = (programs[0].client(), programs[1].client());
        here.define("orders", &json!({})).await;
        let mut values = until_all_give(&here, "orders").await;
        values.extend(until_all_give(&there, "orders").await);

        let floor = json!({"floor": "50000"});
        let advanced = change(&here, "POST", &format!("{PATH}/advance"), Some(floor)).await;
        assert_eq!(advanced.status, 200, "{advanced:?}");
        let above = until_all_give(&here, "orders").await;
        assert!(above.iter().all(|value| *value >= 50_000), "{above:?}");
        values.extend(above);
        wait::until("the floor holds there", LIMIT, async || {
            let next = take(&there, "orders", 5).await;
            let holds = next.iter().all(|value| *value >= 50_000);
            values.extend(next);
            holds.then_some(())
        })
        .await;

        let retired = change(&there, "DELETE", PATH, None).await;
        assert_eq!(retired.status, 204, "{retired:?}");
        until_answered_with(&here, 410).await;
        let restored = change(&here, "POST", &format!("{PATH}/restore"), None).await;
        assert_eq!(restored.status, 200, "{restored:?}");
        values.extend(until_all_give(&here, "orders").await);
        values.extend(until_answered_with(&there, 200).await.values());
        values.extend(until_all_give(&there, "orders").await);
        assert_eq!(n_twice(&values), 0);

        assert_has_one_version(&stripes, "orders").await;
    });
}

#[test]
fn a_change_that_ended_half_way_is_made_whole() {
    run(async {
        let stripes = Stripes::new().await;
        let options = stripes.options(Program::options());
        for k in 0..KINDS.len() {
            let name = format!("half-{k}");
            let old = json!({"description": "old"});
            let (program, mut values) = stripes.serving(&name, &old).await;
            let client = program.client();
            let old = Row::of(&stripes.databases[k], &name).await;
            client.define(&name, &json!({"description": "new"})).await;
            program.stop().await;
            // One database did not commit.
            old.put_back(&stripes.databases[k], &name).await;

            let program = options.start_ready().await;
            let client = program.client();
            values.extend(until_all_give(&client, &name).await);
            // The database that is behind may be the only one that answers in time.
            wait::until("the change is told", LIMIT, async || {
                (description(&client, &name).await == "new").then_some(())
            })
            .await;
            client.define(&name, &json!({"description": "newer"})).await;
            assert_eq!(description(&client, &name).await, "newer", "{k}");
            values.extend(until_all_give(&client, &name).await);
            assert_eq!(n_twice(&values), 0);
            assert_has_one_version(&stripes, &name).await;
            program.stop().await;
        }
    });
}

#[test]
fn a_retirement_that_ended_half_way_holds_and_can_be_taken_back() {
    run(async {
        let stripes = Stripes::new().await;
        let (program, mut values) = stripes.serving("orders", &json!({})).await;
        let client = program.client();
        let rows = [
            Row::of(&stripes.databases[1], "orders").await,
            Row::of(&stripes.databases[2], "orders").await,
        ];
        let retired = change(&client, "DELETE", PATH, None).await;
        assert_eq!(retired.status, 204, "{retired:?}");
        program.stop().await;
        // Only the first database committed.
        for (row, database) in rows.iter().zip(&stripes.databases[1..]) {
            row.put_back(database, "orders").await;
        }
        let program = stripes.options(Program::options()).start_ready().await;
        let client = program.client();
        // The database that has the retirement may be slow at first.
        until_answered_with(&client, 410).await;
        let restored = change(&client, "POST", &format!("{PATH}/restore"), None).await;
        assert_eq!(restored.status, 200, "{restored:?}");
        values.extend(until_all_give(&client, "orders").await);
        assert_eq!(n_twice(&values), 0);
    });
}

#[test]
fn a_striped_sequence_cannot_be_strict() {
    run(async {
        let stripes = Stripes::new().await;
        let program = stripes.options(Program::options()).start_ready().await;
        let strict = json!({"order": "strict"});
        let reply = call(&program.client(), "PUT", PATH, Some(strict)).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        assert_eq!(reply.code().as_deref(), Some("invalid_definition"));
        let refused = stripes
            .options(Program::options())
            .env("ODOMETER_LISTEN", "127.0.0.1:0")
            .env("ODOMETER_DEFAULT__ORDER", "strict")
            .run(&["serve"]);
        assert_eq!(refused.code, Some(78), "{refused}");
        assert!(refused.errors.contains("order"), "{refused}");
    });
}

/// Asks for a number until the answer has this status.
async fn until_answered_with(client: &Client, status: u16) -> Reply {
    wait::until(&format!("it answers {status}"), LIMIT, async || {
        let reply = client.post(&format!("{PATH}/next")).await.expect("a reply");
        (reply.status == status).then_some(reply)
    })
    .await
}

/// Checks that a sequence has the same version in all databases.
async fn assert_has_one_version(stripes: &Stripes, name: &str) {
    let query = format!("SELECT version FROM sequence WHERE name = '{name}'");
    let versions = stripes.numbers(&query).await;
    assert_eq!(versions, [versions[0]; KINDS.len()], "{name}");
}

async fn description(client: &Client, name: &str) -> Value {
    client.describe(name).await["definition"]["description"].clone()
}

/// Returns what a change of `orders` would change in each database.
async fn state_of(stripes: &Stripes) -> Vec<String> {
    let mut states = Vec::new();
    for database in &stripes.databases {
        let row = Row::of(database, "orders").await;
        let floors = "SELECT floor FROM counter WHERE sequence = 'orders'";
        let floor = database.number(floors).await;
        states.push(format!("{row:?} {floor:?}"));
    }
    states
}

/// The stored state of a sequence in one database.
#[derive(Debug)]
struct Row {
    definition: String,
    state: String,
    version: i64,
    definitions_version: i64,
}

impl Row {
    async fn of(database: &TestDatabase, name: &str) -> Self {
        let query =
            format!("SELECT definition, state, version FROM sequence WHERE name = '{name}'");
        let rows = database.query(&query).await;
        let row = rows.first().expect("it was created");
        let version = "SELECT definitions_version FROM meta";
        Self {
            definition: row.try_get("", "definition").expect("a text"),
            state: row.try_get("", "state").expect("a text"),
            version: row.try_get("", "version").expect("a number"),
            definitions_version: database.number(version).await.expect("a row"),
        }
    }

    /// Replaces the present row by this one.
    async fn put_back(&self, database: &TestDatabase, name: &str) {
        let (definition, state) = (&self.definition, &self.state);
        // The backslash is an escape character on MariaDB, but not on PostgreSQL.
        let definition = match database.backend {
            Backend::MariaDb => definition.replace('\\', "\\\\"),
            Backend::Postgres | Backend::Sqlite => definition.clone(),
        };
        let definition = definition.replace('\'', "''");
        let version = self.version;
        database
            .execute(&format!(
                "UPDATE sequence SET definition = '{definition}', state = '{state}', \
                 version = {version} WHERE name = '{name}'"
            ))
            .await;
        let version = self.definitions_version;
        database
            .execute(&format!("UPDATE meta SET definitions_version = {version}"))
            .await;
    }
}
