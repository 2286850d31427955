//! A dump is restored into the server that it was made on, or into another one.

use super::fenced::ARM;
use super::{SKIP, WENT_BACK, block, one, one_after_recovery, recover, stage::polling};
use crate::support::{Backend, Options, Product, Program, Proxy, Server, TestDatabase, run};

/// Takes a large block from the database itself.
const MANY: &str = "/v1/sequences/orders/blocks?size=1000";

/// Takes a number, makes a dump, takes another number, and restores the dump while no replica runs.
/// Returns a new replica, and the number that the dump does not know.
async fn restored(database: &TestDatabase, options: &Options) -> (Program, i64) {
    let mut old = options.start_ready().await;
    database.execute(ARM).await;
    assert_eq!(one(&old.client()).await, Ok(1));
    let dump = database.dump();
    let given = block(&old.client(), MANY).await.expect("a block");
    old.kill();
    database.restore(&dump);
    (options.start().await, given)
}

async fn is_refused_until_it_is_recovered(
    database: &TestDatabase,
    options: Options,
    loss: &[&str],
) {
    let options = options.database(&database.url);
    let (fresh, given) = restored(database, &options).await;
    assert_eq!(one(&fresh.client()).await, Err(WENT_BACK.to_owned()));
    recover(&options, loss);
    let next = one_after_recovery(&fresh.client()).await;
    assert!(next > given + 999, "{next} after {given}");
    // A replica that ends returns what it has, and the next one may adopt that.
    fresh.stop().await;
    let last = options.start_ready().await;
    let next = one(&last.client()).await.expect("a number");
    assert!(next > given + 999, "{next} after {given}");
}

#[test]
fn a_dump_is_refused_by_a_replica_that_never_saw_the_database() {
    run(async {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let loss = ["--skip", SKIP];
        is_refused_until_it_is_recovered(&database, Program::options(), &loss).await;
    });
}

#[test]
fn a_dump_is_refused_by_mariadb() {
    run(async {
        let server = Server::shared_of(Product::MariaDb).await;
        let database = TestDatabase::prepared_on(server).await;
        let loss = ["--skip", SKIP];
        is_refused_until_it_is_recovered(&database, Program::options(), &loss).await;
    });
}

/// A dump is refused although a promoted standby would be taken for the whole database.
#[test]
fn a_dump_is_refused_although_failovers_lose_nothing() {
    run(async {
        for product in [Product::drawn(Backend::Postgres), Product::MariaDb] {
            let database = TestDatabase::prepared_on(Server::shared_of(product).await).await;
            let options = Program::options().env("ODOMETER_FAILOVER__LOSSLESS", "true");
            is_refused_until_it_is_recovered(&database, options, &["--skip", SKIP]).await;
        }
    });
}

/// An operator gives no number. The dump says when it was made.
#[test]
fn what_a_dump_may_have_lost_is_computed() {
    run(async {
        for product in [Product::drawn(Backend::Postgres), Product::MariaDb] {
            let database = TestDatabase::prepared_on(Server::shared_of(product).await).await;
            is_refused_until_it_is_recovered(&database, Program::options(), &[]).await;
        }
    });
}

#[test]
fn a_computed_recovery_that_raises_nothing_repeats_numbers() {
    run(async {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let options = Program::options().without_guards("no-fence");
        let options = options.database(&database.url);
        let (fresh, given) = restored(&database, &options).await;
        recover(&options, &[]);
        one_after_recovery(&fresh.client()).await;
        let again = block(&fresh.client(), MANY).await.expect("a block");
        assert!(again <= given + 999, "nothing is found: {again}");
    });
}

#[test]
fn without_its_stamp_a_dump_repeats_numbers() {
    run(async {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        repeats_numbers(&database).await;
    });
}

#[test]
fn without_its_stamp_a_dump_of_mariadb_repeats_numbers() {
    run(async {
        let server = Server::shared_of(Product::MariaDb).await;
        let database = TestDatabase::prepared_on(server).await;
        repeats_numbers(&database).await;
    });
}

async fn repeats_numbers(database: &TestDatabase) {
    let options = Program::options().without_guards("no-stamp");
    let (fresh, given) = restored(database, &options.database(&database.url)).await;
    let again = block(&fresh.client(), MANY).await;
    assert_eq!(again, Ok(given), "nothing is found");
}

/// MySQL does not show that a dump was restored into the server that it was made on. The documents
/// say so.
#[test]
fn a_dump_is_not_noticed_by_mysql() {
    run(async {
        let server = Server::shared_of(Product::MySql).await;
        let database = TestDatabase::prepared_on(server).await;
        let options = Program::options().database(&database.url);
        let (fresh, given) = restored(&database, &options).await;
        assert_eq!(block(&fresh.client(), MANY).await, Ok(given));
    });
}

#[test]
fn a_dump_in_another_server_of_mysql_is_refused() {
    run(async {
        let server = Server::shared_of(Product::MySql).await;
        let database = TestDatabase::prepared_on(server).await;
        let proxy = Proxy::to(server.port()).await;
        let url = database.url_through(&proxy, server);
        let options = polling(Program::options().database(&url));
        let old = options.start_ready().await;
        assert_eq!(one(&old.client()).await, Ok(1));
        let dump = database.dump();
        assert_eq!(one(&old.client()).await, Ok(2));
        let other = Server::start_of(Product::MySql).await;
        let create = format!("CREATE DATABASE {}", database.name());
        other.administrate(&create).await;
        TestDatabase::on(&other, database.name()).restore(&dump);
        proxy.lead_to(other.port());
        let fresh = options.start().await;
        for replica in [&old, &fresh] {
            assert_eq!(one(&replica.client()).await, Err(WENT_BACK.to_owned()));
        }
    });
}
