//! PostgreSQL behind a pooler that gives each transaction another connection.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::support::{
    Backend, Ledger, PASSWORD, PgBouncer, Program, Server, TestDatabase, directory, run, settings,
    wait,
};

/// The configuration of a pooler for other drivers: it ignores these parameters.
const LENIENT: &str = "ignore_startup_parameters = extra_float_digits,options";
/// The message of a program that has found a pooler.
const UNPREPARED: &str = "statements are sent unprepared";
#[test]
fn a_pooler_in_transaction_mode_is_recognised_and_served_through() {
    run(async {
        // The pooler has its default configuration, or one for drivers that send more parameters at
        // the start of a session.
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
    let folder = directory("pooler");
    let file = folder.path().join("definitions.toml");
    std::fs::write(&file, "[sequences.planned]\n").expect("our directory");
    let rehearsed = options.run(&["apply", "--dry-run", &file.to_string_lossy()]);
    assert_eq!(rehearsed.code, Some(0), "{rehearsed}");

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
    // Texts are sent as part of statements, so they may contain any characters.
    let description = "it's \\ \"quoted\" $1 ? '; DROP TABLE block; -- \u{e9}\u{1F600}";
    let client = replicas[0].client();
    client
        .define("described", &json!({ "description": description }))
        .await;
    let described = client.describe("described").await;
    assert_eq!(described["definition"]["description"], description);
    for replica in replicas {
        let log = replica.stop().await;
        assert!(log.contains(UNPREPARED), "{log}");
        assert!(!log.contains(PASSWORD), "{log}");
    }
    assert_eq!(ledger.n_duplicates(), 0, "{ledger:?}");
    let journal = straight.journal("shared").await;
    assert!(
        journal.iter().any(|row| row.fate == "returned"),
        "{journal:?}"
    );
}

/// The control: the same calls with prepared statements, as on a server without a pooler.
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
        let replica = options.start().await;
        let (mut n_refused, mut n_found) = (0, 0);
        wait::until("calls are refused", Duration::from_secs(60), async || {
            let path = "/v1/sequences/shared/blocks?size=3";
            let reply = replica.client().post(path).await.expect("a reply");
            n_refused += usize::from(reply.status != 200);
            // A process that starts now meets the statements that others have prepared.
            let looked = options.run(&["check"]);
            let is_found = ["42P05", "26000"]
                .iter()
                .any(|code| looked.errors.contains(code));
            n_found += usize::from(is_found && looked.errors.contains("pgbouncer=true"));
            (n_refused >= 1 && n_found >= 3).then_some(())
        })
        .await;
    });
}

/// A pooler sends most of its messages with the same code.
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

        // If the URL names the pooler, the program need not find it out.
        let told = format!("{url}?pgbouncer=true");
        let program = Program::options().database(&told).start_ready().await;
        assert_eq!(program.client().next("told").await, 1);
        program.stop().await;
    });
}

/// An address that leads to one port first and to another one later.
struct Switch {
    port: u16,
    target: Arc<AtomicU16>,
    turned: watch::Sender<()>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Switch {
    async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let own_port = listener.local_addr().expect("it listens").port();
        let target = Arc::new(AtomicU16::new(port));
        let turned = watch::Sender::new(());
        let (to, turning) = (Arc::clone(&target), turned.clone());
        let accepting = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let port = to.load(Ordering::Relaxed);
                let mut turning = turning.subscribe();
                tokio::spawn(async move {
                    let server = TcpStream::connect(("127.0.0.1", port)).await;
                    let mut server = server.expect("what it leads to listens");
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = turning.changed() => {}
                    }
                });
            }
        });
        Self {
            port: own_port,
            target,
            turned,
            accepting,
        }
    }

    /// Cuts every connection, and leads new ones to `port`.
    fn turn(&self, port: u16) {
        self.target.store(port, Ordering::Relaxed);
        self.turned.send_replace(());
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[test]
fn a_pooler_put_in_between_later_is_noticed_before_it_does_harm() {
    run(async {
        let server = Server::shared(Backend::Postgres).await;
        // This configuration is the worst: the pooler accepts parameters and does not pass them on.
        let pooler = PgBouncer::start(server, LENIENT).await;
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let switch = Switch::to(server.port()).await;
        let url = database.url.replace(
            &format!(":{}/", server.port()),
            &format!(":{}/", switch.port),
        );
        let options = Program::options().database(&url);
        let replicas = [options.start_ready().await, options.start_ready().await];
        let path = "/v1/sequences/shared/blocks?size=3";
        let mut ledger = Ledger::default();
        for replica in &replicas {
            let reply = replica.client().post(path).await.expect("a reply");
            ledger.record("shared", &reply.numbers());
            assert!(!replica.log().contains(UNPREPARED), "{}", replica.log());
        }
        switch.turn(pooler.port());
        for replica in &replicas {
            let client = replica.client();
            let mut n_given = 0;
            wait::until("it serves again", Duration::from_secs(60), async || {
                let reply = client.post(path).await.expect("a reply");
                if reply.status == 200 {
                    ledger.record("shared", &reply.numbers());
                    n_given += 1;
                }
                (n_given >= 20).then_some(())
            })
            .await;
            assert!(replica.log().contains(UNPREPARED), "{}", replica.log());
        }
        assert_eq!(ledger.n_duplicates(), 0, "{ledger:?}");
    });
}
