//! A server that confirms commits before it keeps them, and is killed.

use crate::support::{
    Backend, Client, Ledger, Options, PgBouncer, Product, Program, Server, TestDatabase, directory,
    run,
};

const ROUNDS: usize = 3;
const CALLS: usize = 30;

#[test]
fn a_commit_is_kept_though_the_server_would_forget_it() {
    run(async {
        for is_pooled in [false, true] {
            let ledger = kills(&Program::options(), is_pooled).await;
            assert_eq!(ledger.n_duplicates(), 0, "pooled: {is_pooled}");
        }
    });
}

#[test]
fn commits_that_the_server_may_forget_repeat_numbers() {
    run(async {
        for is_pooled in [false, true] {
            let options = Program::options()
                .without_guards("servers-commits")
                // The program does not start without this setting.
                .env("ODOMETER_STORE__DURABILITY", "weak");
            let ledger = kills(&options, is_pooled).await;
            assert_ne!(ledger.n_duplicates(), 0, "pooled: {is_pooled}");
        }
    });
}

/// Settings by which a server's sessions commit late or never.
const LATE: [&str; 2] = [
    "SET GLOBAL autocommit = 0",
    "SET GLOBAL completion_type = 1",
];

#[test]
fn what_was_given_is_committed_though_the_server_commits_nothing_by_itself() {
    run(async {
        for product in [Product::MariaDb, Product::MySql] {
            for late in LATE {
                let ledger = program_kills(&Program::options(), product, late).await;
                assert_eq!(ledger.n_duplicates(), 0, "{product}: {late}");
            }
        }
    });
}

#[test]
fn what_is_committed_only_if_the_server_does_so_by_itself_repeats_numbers() {
    run(async {
        let options = Program::options().without_guards("servers-commits");
        // With the other setting, a transaction that begins commits what came before it.
        let [_, late] = LATE;
        for product in [Product::MariaDb, Product::MySql] {
            let ledger = program_kills(&options, product, late).await;
            assert_ne!(ledger.n_duplicates(), 0, "{product}");
        }
    });
}

/// Takes numbers over one connection of a server with the setting `late`. Kills the program after
/// the last reply.
async fn program_kills(options: &Options, product: Product, late: &str) -> Ledger {
    let server = Server::start_of(product).await;
    let database = TestDatabase::prepared_on(&server).await;
    server.administrate(late).await;
    let options = options
        .clone()
        .database(&database.url)
        .env("ODOMETER_POOL__MAX", 1)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", 10);
    let mut ledger = Ledger::default();
    for _ in 0..ROUNDS {
        let mut program = options.start_ready().await;
        let client = program.client();
        take(&client, &options, &mut ledger).await;
        program.kill();
    }
    assert!(ledger.n_numbers() >= 100, "vacuous: {ledger:?}");
    ledger
}

/// Takes numbers, and kills the server and the program right after the last reply.
async fn kills(options: &Options, is_pooled: bool) -> Ledger {
    let arguments = ["synchronous_commit=off", "wal_writer_delay=10s"];
    let arguments = arguments
        .iter()
        .flat_map(|&set| ["-c".to_owned(), set.to_owned()]);
    let mut server = Server::start_with(
        Backend::Postgres,
        directory("postgres"),
        arguments.collect(),
    )
    .await;
    let database = TestDatabase::prepared_on(&server).await;
    let pooler = PgBouncer::start(&server, "").await;
    let url = if is_pooled {
        pooler.url(&database.url)
    } else {
        database.url.clone()
    };
    let options = options
        .clone()
        .database(&url)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", 10);
    let mut ledger = Ledger::default();
    for _ in 0..ROUNDS {
        let mut program = options.start_ready().await;
        let client = program.client();
        // Otherwise it may write the last commit just before the kill.
        server.freeze_log_writer();
        take(&client, &options, &mut ledger).await;
        server.kill();
        program.kill();
        server.start_again().await;
    }
    assert!(ledger.n_numbers() >= 100, "vacuous: {ledger:?}");
    ledger
}

async fn take(client: &Client, options: &Options, ledger: &mut Ledger) {
    for _ in 0..CALLS {
        let reply = client.post("/v1/sequences/orders/next?count=5").await;
        let reply = reply.expect("a reply");
        match reply.status {
            200 => ledger.record("orders", &reply.numbers()),
            // A connection may wait for a transaction that another connection never commits.
            _ => assert!(options.lacks_guards(), "{reply:?}"),
        }
    }
}
