//! Reads of a sequence that several databases share, and its recovery.

use std::collections::BTreeSet;

use serde_json::json;

use super::{KINDS, LIMIT, Stripes, n_twice, residue, until_all_give};
use crate::support::{Link, Program, TestDatabase, run, wait};

#[test]
fn a_number_is_explained_by_the_database_that_gave_it() {
    run(async {
        let stripes = Stripes::new().await;
        let program = stripes.options(Program::options()).start_ready().await;
        let client = program.client();
        let values = until_all_give(&client, "orders").await;
        for k in 0..KINDS.len() {
            let own = values.iter().find(|value| residue(**value) == k);
            let value = own.expect("every database gave some");
            let path = format!("/v1/sequences/orders/explain?id={value}");
            wait::until("the row is written", LIMIT, async || {
                let told = client.get(&path).await.expect("a reply").json();
                let is_known = matches!(
                    told["fate"].as_str(),
                    Some("issued" | "issued_or_lost" | "held")
                );
                is_known.then_some(())
            })
            .await;
        }
        let far = "/v1/sequences/orders/explain?id=1000000";
        let told = client.get(far).await.expect("a reply").json();
        assert_eq!(told["fate"], "not_reserved", "{told}");
    });
}

#[test]
fn striped_sequences_are_listed_once_and_described_with_a_database_away() {
    run(async {
        let stripes = Stripes::new().await;
        let program = stripes.options(Program::options()).start_ready().await;
        let client = program.client();
        for name in ["a", "b", "c", "d", "e"] {
            client.define(name, &json!({"description": name})).await;
        }
        let highest = until_all_give(&client, "c").await.into_iter().max();
        for away in [None, Some(0), Some(1), Some(2)] {
            if let Some(k) = away {
                stripes.set(k, Link::Cut);
            }
            let listed = wait::until("it lists", LIMIT, async || {
                let reply = client.get("/v1/sequences?limit=1000").await;
                let reply = reply.expect("a reply");
                (reply.status == 200).then(|| reply.json())
            })
            .await;
            let names: Vec<&str> = listed["sequences"]
                .as_array()
                .expect("a page")
                .iter()
                .filter_map(|it| it["name"].as_str().or(it["sequence"].as_str()))
                .collect();
            assert_eq!(names, ["a", "b", "c", "d", "e"], "{away:?}: {listed}");
            let described = client.describe("c").await;
            let mark = described["state"]["high_water_mark"].as_str();
            let mark: Option<i64> = mark.and_then(|mark| mark.parse().ok());
            assert!(mark > highest, "{away:?}: {described}");
            if let Some(k) = away {
                stripes.set(k, Link::Whole);
            }
        }
    });
}

#[test]
fn a_recovery_raises_every_database() {
    run(async {
        let stripes = Stripes::new().await;
        let (program, mut values) = stripes.serving("orders", &json!({})).await;
        program.stop().await;
        let query = "SELECT next_value FROM counter WHERE sequence = 'orders'";
        let before = stripes.numbers(query).await;
        let dry = stripes.run(&["recover", "--skip", "1000", "--dry-run"]);
        assert_eq!(dry.code, Some(0), "{dry}");
        assert_eq!(stripes.numbers(query).await, before);
        let recovered = stripes.run(&["recover", "--yes", "--skip", "1000"]);
        assert_eq!(recovered.code, Some(0), "{recovered}");
        let after = stripes.numbers(query).await;
        for (k, (before, after)) in before.iter().zip(&after).enumerate() {
            assert!(
                *after >= before.map(|old| old + 1000),
                "{k}: {before:?} {after:?}"
            );
            assert_eq!(after.map(residue), Some(k), "{after:?}");
        }
        // Each database alone still knows that the name was used.
        for k in 1..KINDS.len() {
            stripes.set(k, Link::Cut);
        }
        let program = stripes.options(Program::options()).start_ready().await;
        let client = program.client();
        let alone = wait::until("one database is enough", LIMIT, async || {
            let reply = client.post("/v1/sequences/orders/next").await;
            let reply = reply.expect("a reply");
            (reply.status == 200).then(|| reply.number())
        })
        .await;
        assert_eq!(residue(alone), 0, "{alone}");
        values.push(alone);
        program.stop().await;
        for k in 1..KINDS.len() {
            stripes.set(k, Link::Whole);
        }

        let program = stripes.options(Program::options()).start_ready().await;
        let above = until_all_give(&program.client(), "orders").await;
        assert!(above.iter().all(|value| *value > 1000), "{above:?}");
        values.extend(above);
        assert_eq!(n_twice(&values), 0);
    });
}

/// Checks a replica that goes on through a restore and a recovery. It remembers names that were
/// lost meanwhile.
#[test]
fn what_was_agreed_before_a_recovery_keeps_no_name_from_its_numbers() {
    run(async {
        const SKIP: i64 = 100_000;
        let stripes = Stripes::new().await;
        let (program, mut values) = stripes.serving("kept", &json!({})).await;
        let client = program.client();
        let dumps: Vec<_> = stripes.databases.iter().map(TestDatabase::dump).collect();
        client.define("kept", &json!({"description": "lost"})).await;
        values.extend(until_all_give(&client, "kept").await);
        let mut recreated = until_all_give(&client, "lost").await;
        for (database, dump) in stripes.databases.iter().zip(&dumps) {
            // A restore of MariaDB replaces one table after the other.
            database.execute("DELETE FROM replica").await;
            database.restore(dump);
        }
        let skip = SKIP.to_string();
        let recovered = stripes.run(&["recover", "--yes", "--skip", &skip]);
        assert_eq!(recovered.code, Some(0), "{recovered}");
        for (name, given) in [("kept", &mut values), ("lost", &mut recreated)] {
            let mut seen = BTreeSet::new();
            wait::until("every database gives numbers again", LIMIT, async || {
                let path = format!("/v1/sequences/{name}/next");
                let reply = client.post(&path).await.expect("a reply");
                if reply.status == 200 && reply.number() > SKIP {
                    seen.insert(residue(reply.number()));
                    given.push(reply.number());
                }
                (seen.len() == KINDS.len()).then_some(())
            })
            .await;
            assert_eq!(n_twice(given), 0, "{name}");
        }
    });
}
