//! PostgreSQL behind a pooler that gives each transaction another connection.

use std::time::Duration;

use serde_json::json;

use crate::support::{
    Backend, Ledger, PASSWORD, PgBouncer, Program, Server, TestDatabase, run, settings, wait,
};

/// What a pooler that was set up for other drivers passes over.
const LENIENT: &str = "ignore_startup_parameters = extra_float_digits,options";
#[test]
fn a_pooler_in_transaction_mode_is_recognised_and_served_through() {
    run(async {
        // As it is set up by default, and for drivers that send more at the start of a session.
        for more in ["", LENIENT] {
            through_a_pooler(more).await;
        }
    });
}

async fn through_a_pooler(more: &str) {
    let server = Server::shared(Backend::Postgres).await;
    let pooler = PgBouncer::start(server, more).await;
    let straight = TestDatabase::empty(Backend::Postgres).await;
    let url = pooler.url(&straight.url);
    let options = Program::options()
        .database(&url)
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 2);
    for _ in 0..3 {
        let migrated = options.run(&["migrate"]);
        assert_eq!(migrated.code, Some(0), "{migrated}");
    }
    let checked = options.run(&["check"]);
    assert_eq!(checked.code, Some(0), "{checked}");

    let replicas = [options.start_ready().await, options.start_ready().await];
    let rounds = settings::at_size(30, 1000);
    let mut ledger = Ledger::default();
    for round in 0..rounds {
        for (at, replica) in replicas.iter().enumerate() {
            let client = replica.client();
            let kind = if (round + at) % 3 == 0 {
                "blocks?size=3"
            } else {
                "next?count=5"
            };
            for name in ["shared", "other"] {
                let path = format!("/v1/sequences/{name}/{kind}");
                let reply = client.post(&path).await.expect("a reply");
                assert_eq!(reply.status, 200, "{reply:?}\n{}", replica.log());
                ledger.record(name, &reply.numbers());
            }
        }
    }
    // Texts are sent within statements, whatever is in them.
    let description = "it's \\ \"quoted\" $1 ? '; DROP TABLE block; -- \u{e9}\u{1F600}";
    let client = replicas[0].client();
    client
        .define("described", &json!({ "description": description }))
        .await;
    let described = client.describe("described").await;
    assert_eq!(described["definition"]["description"], description);
    for replica in replicas {
        let log = replica.stop().await;
        assert!(log.contains("sent unprepared"), "{log}");
        assert!(!log.contains(PASSWORD), "{log}");
    }
    assert_eq!(ledger.n_duplicates(), 0, "{ledger:?}");
    let journal = straight.journal("shared").await;
    assert!(
        journal.iter().any(|row| row.fate == "returned"),
        "{journal:?}"
    );
}

/// The same calls with statements prepared as for a server of one's own.
#[test]
fn statements_prepared_behind_a_pooler_are_found_out() {
    run(async {
        let server = Server::shared(Backend::Postgres).await;
        let pooler = PgBouncer::start(server, LENIENT).await;
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let options = Program::options()
            .database(&pooler.url(&database.url))
            .env("ODOMETER_DEFAULT__BLOCK__MIN", 2)
            .without_guards("prepare-anyway");
        let replicas = [options.start().await, options.start().await];
        let mut n_refused = 0;
        wait::until("a call is refused", Duration::from_secs(60), async || {
            for replica in &replicas {
                let path = "/v1/sequences/shared/blocks?size=3";
                let reply = replica.client().post(path).await.expect("a reply");
                n_refused += usize::from(reply.status != 200);
            }
            (n_refused >= 10).then_some(())
        })
        .await;
    });
}

/// A pooler says most of what it has to say under one code.
#[test]
fn what_a_pooler_refuses_has_its_sentence() {
    run(async {
        let server = Server::shared(Backend::Postgres).await;
        let pooler = PgBouncer::start(server, "").await;
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let url = pooler.url(&database.url);
        let wrong = url.replace(PASSWORD, "not-the-password-and-not-for-a-log");
        let finished = Program::options().database(&wrong).run(&["check"]);
        assert_eq!(finished.code, Some(78), "{finished}");
        assert!(finished.errors.contains("user or password"), "{finished}");
        assert!(!finished.errors.contains("not-the-password"), "{finished}");

        // The URL may say so, too; then nothing has to be found out.
        let told = format!("{url}?pgbouncer=true");
        let program = Program::options().database(&told).start_ready().await;
        assert_eq!(program.client().next("told").await, 1);
        program.stop().await;
    });
}
