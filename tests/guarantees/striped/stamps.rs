//! Databases that do not belong together are refused before a number is issued.

use super::configured;
use crate::support::{Backend, Finished, Options, PASSWORD, Program, TestDatabase, run};

/// Returns options with a store of these databases next to a default store.
fn tickets(default: &TestDatabase, databases: &[&TestDatabase]) -> Options {
    let urls: Vec<&str> = databases.iter().map(|it| it.url.as_str()).collect();
    Program::options()
        .env("ODOMETER_LISTEN", "127.0.0.1:0")
        .database(&default.url)
        .env("ODOMETER_STORES__TICKETS__DATABASES", urls.join(","))
}

async fn empty() -> [TestDatabase; 3] {
    let [first, second, third] = super::KINDS;
    [
        TestDatabase::empty(first).await,
        TestDatabase::empty(second).await,
        TestDatabase::empty(third).await,
    ]
}

fn succeeds(options: &Options, command: &str) {
    let finished = options.run(&[command]);
    assert_eq!(finished.code, Some(0), "{command}: {finished}");
}

/// Checks for exit code 78, and for a sentence that names the store, one of its databases and what
/// to do.
fn refuses(finished: &Finished, what: &str, databases: &[&TestDatabase]) {
    assert_eq!(finished.code, Some(78), "{what}: {finished}");
    let said = &finished.errors;
    assert!(
        said.contains("stores.tickets"),
        "{what}: which store? {finished}"
    );
    // The message has the place of a database, without the account.
    let places = databases.iter().map(|it| it.url.split_once('@'));
    let mut places = places.map(|parts| parts.expect("an account").1);
    let is_named = places.any(|place| said.contains(place));
    assert!(is_named, "{what}: which database? {finished}");
    assert!(!said.contains(PASSWORD), "{what}: {finished}");
    let mends = ["run `odometer migrate`", ": name ", "; name exactly"];
    let is_told = mends.iter().any(|mend| said.contains(mend));
    assert!(is_told, "{what}: no mend: {finished}");
}

#[test]
fn databases_that_do_not_belong_together_are_refused() {
    run(async {
        let default = TestDatabase::prepared(Backend::Postgres).await;
        let [a, b, c] = empty().await;
        let right = tickets(&default, &[&a, &b, &c]);
        // These databases were never stamped.
        for command in ["serve", "check"] {
            refuses(&right.run(&[command]), "never stamped", &[&a, &b, &c]);
        }
        succeeds(&right, "migrate");
        succeeds(&right, "migrate");
        succeeds(&right, "check");
        let [x, y, z] = empty().await;
        succeeds(&tickets(&default, &[&x, &y, &z]), "migrate");
        let [p, q, fresh] = empty().await;
        succeeds(&tickets(&default, &[&p, &q]), "migrate");

        for (what, databases) in [
            ("wrong order", vec![&b, &a, &c]),
            ("foreign", vec![&a, &b, &z]),
            ("missing", vec![&a, &b]),
            ("extra", vec![&a, &b, &c, &fresh]),
            ("of another N", vec![&p, &q, &z]),
        ] {
            let options = tickets(&default, &databases);
            for command in ["serve", "check", "migrate"] {
                refuses(&options.run(&[command]), what, &databases);
            }
        }
        // The refusals changed nothing: in the right order, all of these databases serve.
        succeeds(&right, "check");
        for (options, sequence) in [
            (&right, "first"),
            (&tickets(&default, &[&x, &y, &z]), "second"),
            (&tickets(&default, &[&p, &q]), "third"),
        ] {
            let options = options.clone().env("ODOMETER_DEFAULT__STORE", "tickets");
            let program = options.start_ready().await;
            let client = program.client();
            let values = super::take(&client, sequence, 5).await;
            assert_eq!(super::n_twice(&values), 0, "{values:?}");
            program.stop().await;
        }
    });
}

#[test]
fn databases_in_the_wrong_order_that_are_served_are_found_out() {
    run(async {
        let default = TestDatabase::prepared(Backend::Postgres).await;
        let [a, b, c] = empty().await;
        let right = tickets(&default, &[&a, &b, &c]);
        succeeds(&right, "migrate");
        let wrong = tickets(&default, &[&b, &a, &c]).without_guards("any-stamp");
        for options in [right, wrong] {
            // The blocks are small, so that each database gives some.
            let options = options
                .env("ODOMETER_DEFAULT__STORE", "tickets")
                .env("ODOMETER_DEFAULT__BLOCK__MIN", 5)
                .env("ODOMETER_DEFAULT__BLOCK__MAX", 10);
            let program = options.start_ready().await;
            super::until_all_give(&program.client(), "orders").await;
            program.stop().await;
            // The other databases go on above this one, each with the numbers of its position in
            // the list.
            c.execute("UPDATE counter SET next_value = next_value + 300, version = version + 1")
                .await;
        }
        for (database, place_of_another) in [(&a, 1), (&b, 0)] {
            let journal = database.journal("orders").await;
            let mut numbers = journal.iter().map(|row| row.first);
            let is_strange = numbers.any(|number| super::residue(number) == place_of_another);
            assert!(is_strange, "{journal:?}");
        }
    });
}

#[test]
fn a_database_that_has_sequences_of_its_own_joins_no_others() {
    run(async {
        let default = TestDatabase::prepared(Backend::Postgres).await;
        let [used, second, third] = empty().await;
        used.migrate();
        let alone = Program::options().database(&used.url);
        let program = alone.start_ready().await;
        program.client().next("own").await;
        program.stop().await;
        let options = tickets(&default, &[&used, &second, &third]);
        for command in ["migrate", "serve", "check"] {
            let finished = options.run(&[command]);
            assert_eq!(finished.code, Some(78), "{command}: {finished}");
            let (_, place) = used.url.split_once('@').expect("an account");
            assert!(finished.errors.contains(place), "{command}: {finished}");
        }
        // A database that shares its sequences does not serve alone.
        let [a, b, c] = empty().await;
        let together = tickets(&default, &[&a, &b, &c]);
        succeeds(&together, "migrate");
        let program = together
            .clone()
            .env("ODOMETER_DEFAULT__STORE", "tickets")
            .start_ready()
            .await;
        program.client().next("shared").await;
        program.stop().await;
        let alone = Program::options()
            .env("ODOMETER_LISTEN", "127.0.0.1:0")
            .database(&a.url);
        let finished = alone.run(&["serve"]);
        assert_eq!(finished.code, Some(78), "{finished}");
    });
}

#[test]
fn the_default_store_may_be_striped_and_its_order_counts() {
    run(async {
        let [a, b, c] = empty().await;
        let right = [a.url.as_str(), &b.url, &c.url];
        let options = configured(Program::options(), &right);
        succeeds(&options, "migrate");
        let wrong = [b.url.as_str(), &a.url, &c.url];
        let refused = configured(Program::options(), &wrong)
            .env("ODOMETER_LISTEN", "127.0.0.1:0")
            .run(&["serve"]);
        assert_eq!(refused.code, Some(78), "{refused}");
        let program = options.start_ready().await;
        assert_eq!(super::take(&program.client(), "orders", 1).await.len(), 1);
        program.stop().await;
    });
}
