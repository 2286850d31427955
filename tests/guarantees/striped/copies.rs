//! A database that shares its sequences becomes a copy, as after a failover that lost commits.

use std::collections::BTreeSet;

use serde_json::json;

use super::{KINDS, LIMIT, Stripes, change, n_twice, residue, residues, take, until_all_give};
use crate::{
    guarantees::failover::{ARM, FENCES},
    support::{Link, Options, Program, run, wait},
};

const NAME: &str = "orders";
const SKIP: &str = "100000";
/// The database that is fenced: PostgreSQL.
const COPY: usize = 2;
/// Makes a stamp of another server one that no dump wrote.
const AS_COPIED: &str = "UPDATE lineage SET written_by = pg_current_xact_id()::text::bigint";
const PACED: &str = "SELECT paced_until_us FROM counter WHERE sequence = 'orders'";
/// Counts the fences after which the counter may give a whole burst again.
const IS_FREE: &str = "SELECT COUNT(*) FROM fence, counter WHERE counter.sequence = 'orders' AND \
                       paced_until_us < EXTRACT(EPOCH FROM clock_timestamp()) * 1000000";
const COUNTER: &str = "SELECT next_value FROM counter WHERE sequence = 'orders'";

#[test]
fn a_member_that_is_a_copy_gives_no_number_and_the_others_go_on() {
    run(async {
        let stripes = Stripes::new().await;
        let (old, mut values) = stripes.serving(NAME, &json!({})).await;
        let restored = stripes.numbers(COUNTER).await;
        for _ in 0..10 {
            values.extend(until_all_give(&old.client(), NAME).await);
        }
        lose(&stripes, &restored, &[0]).await;
        let fresh = stripes.options(Program::options()).start_ready().await;
        let given = take(&fresh.client(), NAME, 50).await;
        assert!(!residues(&given).contains(&0), "{given:?}");
        values.extend(given);
        // The replica that ran before has numbers of the copy in memory.
        values.extend(take(&old.client(), NAME, 100).await);
        assert_eq!(n_twice(&values), 0);
        assert_eq!(stripes.numbers(COUNTER).await[0], restored[0]);

        let recovered = stripes.run(&["recover", "--yes", "--skip", SKIP]);
        assert_eq!(recovered.code, Some(0), "{recovered}");
        for program in [&old, &fresh] {
            let mut seen = BTreeSet::new();
            wait::until("every database gives numbers again", LIMIT, async || {
                let path = format!("/v1/sequences/{NAME}/next");
                let reply = program.client().post(&path).await.expect("a reply");
                if reply.status == 200 {
                    seen.insert(residue(reply.number()));
                    values.push(reply.number());
                }
                (seen.len() == KINDS.len()).then_some(())
            })
            .await;
        }
        assert_eq!(n_twice(&values), 0);
    });
}

#[test]
fn members_that_are_all_copies_give_no_number() {
    run(async {
        let (stripes, program, values) = all_lost(Program::options()).await;
        let path = format!("/v1/sequences/{NAME}/next");
        let code = wait::until("it is refused", LIMIT, async || {
            let reply = program.client().post(&path).await.expect("a reply");
            let code = reply.code();
            assert!(code.is_some(), "given: {reply:?} after {values:?}");
            code.filter(|code| code != "store_unavailable" && code != "refill_timeout")
        });
        assert_eq!(code.await, "store_went_back");
        drop(stripes);
    });
}

#[test]
fn without_their_stamps_members_that_are_copies_repeat_numbers() {
    run(async {
        let options = Program::options().without_guards("no-stamp");
        let (stripes, program, mut values) = all_lost(options).await;
        values.extend(until_all_give(&program.client(), NAME).await);
        assert!(n_twice(&values) > 0, "nothing is found: {values:?}");
        drop(stripes);
    });
}

#[test]
fn a_member_that_is_a_copy_goes_on_above_what_it_skipped_and_gave() {
    run(async {
        let (stripes, values) = fenced(Program::options()).await;
        assert_eq!(n_twice(&values), 0);
        assert_eq!(stripes.numbers(FENCES).await, [Some(0), Some(0), Some(1)]);
    });
}

#[test]
fn a_member_that_skips_without_payment_repeats_numbers() {
    run(async {
        let options = Program::options().without_guards("free-catch-up");
        let (_stripes, values) = fenced(options).await;
        assert!(n_twice(&values) > 0, "nothing is found");
    });
}

/// Lets a database that lies far behind the others catch up with them, and give more. Then it
/// becomes a copy from before. Returns all numbers.
async fn fenced(options: Options) -> (Stripes, Vec<i64>) {
    let stripes = Stripes::new().await;
    let options = stripes.options(options);
    let options = options.env("ODOMETER_FAILOVER__WITHIN", "15m");
    let mut old = options.start_ready().await;
    let client = old.client();
    let limited = json!({"limit": {"rate": 1000, "burst": 1000}});
    client.define(NAME, &limited).await;
    let mut values = until_all_give(&client, NAME).await;
    for database in &stripes.databases {
        database.execute(ARM).await;
    }
    // What is fetched ahead of need may catch up at once.
    let restored = stripes.numbers(COUNTER).await;
    let paced = stripes.databases[COPY].number(PACED).await;
    let paced = paced.expect("it was used");
    for k in [0, 1] {
        let raise = "UPDATE counter SET next_value = next_value + 300000, version = version + 1";
        stripes.databases[k].execute(raise).await;
    }
    // After a change, each database catches up with the others.
    let path = format!("/v1/sequences/{NAME}");
    let changed = json!({"description": "changed"});
    let changed = change(&client, "PUT", &path, Some(changed)).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    for _ in 0..3 {
        values.extend(until_all_give(&client, NAME).await);
    }
    for k in [0, 1] {
        stripes.set(k, Link::Cut);
    }
    values.extend(take(&client, NAME, 200).await);
    for k in [0, 1] {
        stripes.set(k, Link::Whole);
    }
    old.kill();
    lose(&stripes, &restored, &[COPY]).await;
    let paced = format!("UPDATE counter SET paced_until_us = {paced} WHERE sequence = '{NAME}'");
    for statement in [&*paced, AS_COPIED] {
        stripes.databases[COPY].execute(statement).await;
    }
    let fresh = options.start_ready().await;
    // Meanwhile the others would pass what was lost.
    wait::until("the copy is fenced, and gives numbers", LIMIT, async || {
        (stripes.databases[COPY].number(IS_FREE).await == Some(1)).then_some(())
    })
    .await;
    for _ in 0..5 {
        values.extend(until_all_give(&fresh.client(), NAME).await);
    }
    (stripes, values)
}

/// Loses numbers in all databases. Returns a replica that starts afterwards, and the numbers that
/// were given before.
async fn all_lost(options: Options) -> (Stripes, Program, Vec<i64>) {
    let stripes = Stripes::new().await;
    let (mut old, mut values) = stripes.serving(NAME, &json!({})).await;
    let restored = stripes.numbers(COUNTER).await;
    for _ in 0..10 {
        values.extend(until_all_give(&old.client(), NAME).await);
    }
    old.kill();
    lose(&stripes, &restored, &[0, 1, 2]).await;
    let fresh = stripes.options(options).start().await;
    (stripes, fresh, values)
}

/// Puts the counters of these databases back, and makes the databases copies: another server wrote
/// their stamps.
async fn lose(stripes: &Stripes, restored: &[Option<i64>], members: &[usize]) {
    let now = stripes.numbers(COUNTER).await;
    for &k in members {
        assert!(now[k] > restored[k], "vacuous: {restored:?} {now:?}");
        let next_value = restored[k].expect("it was used");
        for statement in [
            format!("UPDATE counter SET next_value = {next_value} WHERE sequence = '{NAME}'"),
            "UPDATE lineage SET server = 'another one'".to_owned(),
        ] {
            stripes.databases[k].execute(&statement).await;
        }
    }
}
