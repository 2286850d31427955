//! Messages about a database that cannot be used. They name the cause, the address and the source
//! of the configuration, but no secret.

use std::fs;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::support::{
    ACCOUNT, Backend, Finished, Options, PASSWORD, Product, Program, Server, TestDatabase,
    directory, for_each_server, run,
};

const COMMANDS: [&str; 3] = ["check", "migrate", "serve"];

fn at(url: &str) -> Options {
    Program::options()
        .env("ODOMETER_LISTEN", "127.0.0.1:0")
        .database(url)
}

/// Checks that a command ends with 78, and that it says all of `wanted` and no password.
fn refuses(finished: &Finished, wanted: &[&str]) {
    assert_eq!(finished.code, Some(78), "{finished}");
    for said in wanted {
        assert!(finished.errors.contains(said), "no {said}: {finished}");
    }
    assert!(!finished.to_string().contains(PASSWORD), "{finished}");
}

#[test]
fn a_mariadb_user_that_may_only_read_is_told_which_rights_are_missing() {
    run(async {
        let server = Server::start_of(Product::MariaDb).await;
        let database = TestDatabase::prepared_on(&server).await;
        let name = database.url.rsplit('/').next().expect("a database's name");
        for statement in [
            format!("CREATE USER reader@'%' IDENTIFIED BY '{PASSWORD}'"),
            format!("GRANT SELECT ON {name}.* TO reader@'%'"),
        ] {
            server.administrate(&statement).await;
        }
        let url = server.url_as("reader", PASSWORD, server.port(), name);
        for command in ["check", "serve"] {
            let finished = at(&url).run(&[command]);
            refuses(&finished, &["INSERT, UPDATE and DELETE"]);
            assert!(!finished.errors.contains("primary key"), "{finished}");
        }
        // A lost primary key still has a message of its own, although the table keeps its other
        // indexes.
        for table in ["block", "worker_lease"] {
            let database = TestDatabase::prepared_on(&server).await;
            let lose = format!("ALTER TABLE {table} DROP PRIMARY KEY");
            database.execute(&lose).await;
            refuses(&at(&database.url).run(&["check"]), &["primary key"]);
        }
    });
}

#[test]
fn a_file_that_is_no_sqlite_database_is_said_to_be_none() {
    let folder = directory("no-database");
    let file = folder.path().join("notes.txt");
    fs::write(&file, "Numbers that were given: 1, 2, 3.\n".repeat(99)).expect("a file");
    let url = format!("sqlite:{}", file.display());
    for command in COMMANDS {
        let finished = at(&url).run(&[command]);
        refuses(&finished, &["no SQLite database", "notes.txt"]);
    }
    let url = format!("sqlite:{}", folder.path().display());
    for command in COMMANDS {
        let finished = at(&url).run(&[command]);
        refuses(&finished, &["see that it is a file"]);
    }
}

for_each_server!(a_password_with_an_at_sign_is_read_or_said_to_be_unescaped);

async fn a_password_with_an_at_sign_is_read_or_said_to_be_unescaped(backend: Backend) {
    let server = Server::start(backend).await;
    let database = TestDatabase::prepared_on(&server).await;
    let name = database.url.rsplit('/').next().expect("a database's name");
    let odd = format!("{PASSWORD}@1");
    let change = match backend {
        Backend::Postgres => format!("ALTER ROLE {ACCOUNT} PASSWORD '{odd}'"),
        Backend::MariaDb | Backend::Sqlite => {
            format!("ALTER USER {ACCOUNT}@'%' IDENTIFIED BY '{odd}'")
        }
    };
    server.administrate(&change).await;
    let escaped = odd.replace('@', "%40");
    for password in [&odd, &escaped] {
        let finished = at(&server.url_as(ACCOUNT, password, server.port(), name)).run(&["check"]);
        assert_eq!(finished.code, Some(0), "{finished}");
    }
    for end in ["/", "?", "#"] {
        let cut = format!("{odd}{end}2");
        let url = server.url_as(ACCOUNT, &cut, server.port(), name);
        refuses(&at(&url).run(&["check"]), &["write %40 for @"]);
    }
}

for_each_server!(a_list_of_hosts_is_refused_with_what_to_give_instead);

async fn a_list_of_hosts_is_refused_with_what_to_give_instead(backend: Backend) {
    let scheme = backend.scheme();
    for hosts in ["h1.invalid,h2.invalid", "h1.invalid:1,h2.invalid:2"] {
        let url = format!("{scheme}://{ACCOUNT}:{PASSWORD}@{hosts}/d");
        for command in COMMANDS {
            let finished = at(&url).run(&[command]);
            refuses(&finished, &["several hosts", "pooler", "virtual IP", "DNS"]);
        }
    }
}

for_each_server!(another_kind_of_server_on_the_port_is_named);

async fn another_kind_of_server_on_the_port_is_named(backend: Backend) {
    let (other, named) = match backend {
        Backend::Postgres => (Backend::MariaDb, "a MySQL or MariaDB server answers"),
        Backend::MariaDb | Backend::Sqlite => (Backend::Postgres, "a PostgreSQL server answers"),
    };
    let server = Server::shared(other).await;
    let scheme = backend.scheme();
    let at_port = |port: u16| format!("{scheme}://{ACCOUNT}:{PASSWORD}@127.0.0.1:{port}/d");
    for command in COMMANDS {
        let finished = at(&at_port(server.port())).run(&[command]);
        refuses(&finished, &[named, "correct the port"]);
    }

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it listens").port();
    let web = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut heard = Vec::new();
                // The stand-in reads a whole head, answers it, and sends nothing else.
                while !heard.ends_with(b"\r\n\r\n") {
                    heard.push(stream.read_u8().await?);
                }
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await
            });
        }
    });
    let options = at(&at_port(port));
    let ran = tokio::task::spawn_blocking(move || options.run(&["check"]));
    let finished = ran.await.expect("it ran");
    refuses(&finished, &["an HTTP server answers", &port.to_string()]);
    web.abort();
}

#[test]
fn a_section_of_the_wrong_name_is_told_with_the_right_one() {
    let folder = directory("sections");
    let file = folder.path().join("odometer.toml");
    fs::write(&file, "[store.tickets]\ndatabase = \"sqlite:t.db\"\n").expect("a file");
    let options = Program::options().in_directory(folder.path());
    refuses(
        &options.run(&["check"]),
        &["store.tickets", "[stores.tickets]"],
    );
}

#[test]
fn a_message_names_host_and_port_and_where_they_were_configured() {
    let folder = directory("origins");
    let written = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    // Nothing listens there.
    let url = format!("postgres://{ACCOUNT}:{PASSWORD}@127.0.0.1:1/numbers");
    let file = written("odometer.toml", &format!("database_url = \"{url}\"\n"));
    let secret = written("url", &url);
    let stores = written(
        "stores.toml",
        &format!("[stores.tickets]\ndatabase = \"{url}\"\n"),
    );
    let options = Program::options;
    for (finished, wanted) in [
        (
            options().run(&["check", "--database-url", &url]),
            "(postgres://127.0.0.1:1/numbers, command line)",
        ),
        (
            options().database(&url).run(&["check"]),
            "environment variable ODOMETER_DATABASE_URL)",
        ),
        (
            options().env("DATABASE_URL", &url).run(&["check"]),
            "environment variable DATABASE_URL)",
        ),
        (
            options()
                .env("ODOMETER_DATABASE_URL_FILE", &secret)
                .run(&["check"]),
            "environment variable ODOMETER_DATABASE_URL_FILE)",
        ),
        (
            options().run(&["check", "--config", &file]),
            "odometer.toml)",
        ),
        (
            options().run(&["check", "--config", &stores]),
            "stores.tickets.database (postgres://127.0.0.1:1/numbers, in ",
        ),
    ] {
        assert_eq!(finished.code, Some(1), "{finished}");
        assert!(finished.errors.contains(wanted), "{wanted}: {finished}");
        assert!(finished.errors.contains("127.0.0.1:1/"), "{finished}");
        assert!(!finished.to_string().contains(PASSWORD), "{finished}");
    }
    let folder = directory("default");
    fs::write(folder.path().join("odometer.db"), "no database".repeat(99)).expect("a file");
    let finished = Program::options()
        .in_directory(folder.path())
        .run(&["check"]);
    refuses(
        &finished,
        &["database_url (sqlite:odometer.db, the default)"],
    );
}
