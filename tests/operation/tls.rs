//! TLS to the database: the program verifies the certificate, or it warns.

use std::{fs::Permissions, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use tempfile::TempDir;

use crate::support::{
    Authority, Backend, Finished, PASSWORD, Product, Program, Redis, Server, TestDatabase,
    directory, for_each_server, run, wait,
};

/// The host of the server's certificate. The certificate is not for `127.0.0.1`.
const HOST: &str = "localhost";

/// Returns `url` with another host, and with parameters.
fn by(url: &str, host: &str, parameters: &str) -> String {
    format!("{}?{parameters}", url.replace("127.0.0.1", host))
}

fn verifying(backend: Backend, authority: &Authority) -> String {
    let file = authority.certificate();
    match backend {
        Backend::Postgres => format!("sslmode=verify-full&sslrootcert={}", file.display()),
        Backend::MariaDb | Backend::Sqlite => {
            format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={}", file.display())
        }
    }
}

fn refused(finished: &Finished, said: &str) {
    assert_eq!(finished.code, Some(78), "{finished}");
    assert!(
        finished.errors.contains(said),
        "no word of {said}: {finished}"
    );
    assert!(!finished.to_string().contains(PASSWORD), "{finished}");
    // The message says where the database is, but names no account.
    assert!(finished.errors.contains("://"), "{finished}");
    assert!(!finished.to_string().contains('@'), "{finished}");
}

/// Makes a folder for certificates, which PostgreSQL's account can enter.
fn files() -> TempDir {
    let files = directory("certificates");
    std::fs::set_permissions(files.path(), Permissions::from_mode(0o711)).expect("our directory");
    files
}

/// Starts a server with a certificate for [`HOST`].
async fn server(backend: Backend, authority: &Authority, files: &Path) -> Server {
    let made = authority.sign(HOST, files);
    let (certificate, key) = (made.certificate.display(), made.key.display());
    let arguments = match backend {
        Backend::Postgres => vec![
            "-cssl=on".to_owned(),
            format!("-cssl_cert_file={certificate}"),
            format!("-cssl_key_file={key}"),
        ],
        Backend::MariaDb | Backend::Sqlite => vec![
            format!("--ssl-cert={certificate}"),
            format!("--ssl-key={key}"),
        ],
    };
    Server::start_with(backend, directory(backend.name()), arguments).await
}

for_each_server!(a_certificate_is_verified_and_a_wrong_one_is_refused);

async fn a_certificate_is_verified_and_a_wrong_one_is_refused(backend: Backend) {
    let files = files();
    let (authority, other) = (Authority::make(files.path()), Authority::make(files.path()));
    let server = server(backend, &authority, files.path()).await;
    let database = TestDatabase::prepared_on(&server).await;
    let check = |url: &str| Program::options().database(url).run(&["check"]);

    let right = by(&database.url, HOST, &verifying(backend, &authority));
    let finished = check(&right);
    assert_eq!(finished.code, Some(0), "{finished}");
    assert!(!finished.output.contains("warning"), "{finished}");
    let program = Program::options().database(&right).start_ready().await;
    assert_eq!(program.client().next("verified").await, 1);
    program.stop().await;

    let unknown = by(&database.url, HOST, &verifying(backend, &other));
    refused(&check(&unknown), "signed by no authority that is known");
    let nobody = match backend {
        Backend::Postgres => "sslmode=verify-full",
        Backend::MariaDb | Backend::Sqlite => "ssl-mode=VERIFY_IDENTITY",
    };
    let nobody = check(&by(&database.url, HOST, nobody));
    refused(&nobody, "signed by no authority that is known");
    let misplaced = by(&database.url, "127.0.0.1", &verifying(backend, &authority));
    refused(&check(&misplaced), "for another host");
    // `serve` says the same, before it listens or when the database first answers.
    let finished = Program::options()
        .env("ODOMETER_LISTEN", "127.0.0.1:0")
        .database(&unknown)
        .run(&["serve"]);
    refused(&finished, "signed by no authority that is known");

    let missing = right.replace("ca.pem", "nothing.pem");
    refused(&check(&missing), "nothing.pem cannot be read");
    let plain = TestDatabase::prepared(backend).await;
    let makes_its_own = plain.server() == Product::MySql;
    let plain = by(&plain.url, HOST, &verifying(backend, &authority));
    // MySQL makes its own certificate if it gets none.
    let said = match makes_its_own {
        true => "signed by no authority that is known",
        false => "offers no TLS",
    };
    refused(&check(&plain), said);
}

for_each_server!(without_verification_a_wrong_certificate_is_taken);

async fn without_verification_a_wrong_certificate_is_taken(backend: Backend) {
    let files = files();
    let (authority, other) = (Authority::make(files.path()), Authority::make(files.path()));
    let server = server(backend, &authority, files.path()).await;
    let database = TestDatabase::prepared_on(&server).await;
    let unknown = by(&database.url, HOST, &verifying(backend, &other));
    let options = Program::options().database(&unknown);
    let finished = options.without_guards("any-certificate").run(&["check"]);
    assert_eq!(finished.code, Some(0), "{finished}");
}

for_each_server!(an_unverified_way_to_another_host_is_warned_of);

async fn an_unverified_way_to_another_host_is_warned_of(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let mend = match backend {
        Backend::Postgres => "use sslmode=verify-full&sslrootcert=FILE",
        Backend::MariaDb | Backend::Sqlite => "use ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE",
    };
    let quiet = Program::options().database(&database.url).run(&["check"]);
    assert_eq!(quiet.code, Some(0), "{quiet}");
    assert!(!quiet.output.contains("warning"), "{quiet}");
    // This address looks like another host, but leads to the same server.
    let elsewhere = database.url.replace("127.0.0.1", "0.0.0.0");
    let loud = Program::options().database(&elsewhere).run(&["check"]);
    assert_eq!(loud.code, Some(0), "{loud}");
    assert!(loud.output.contains("warning: "), "{loud}");
    assert!(loud.output.contains(mend), "{loud}");

    let program = Program::options().database(&elsewhere).start_ready().await;
    wait::until("it warns", Duration::from_secs(10), async || {
        program.log().contains(mend).then_some(())
    })
    .await;
    let log = program.stop().await;
    assert!(!log.contains(PASSWORD) && !log.contains('@'), "{log}");
}

#[test]
fn a_redis_whose_certificate_is_not_known_is_not_spoken_to() {
    run(async {
        let files = files();
        let authority = Authority::make(files.path());
        let certificate = authority.sign(HOST, files.path());
        let redis = Redis::start_with_tls(&certificate, &authority).await;
        let database = TestDatabase::empty(Backend::Sqlite).await;
        let other = TestDatabase::empty(Backend::Postgres).await;
        let options = Program::options().database(&database.url);
        let check = |parameters: &str| {
            let port = redis.tls_port();
            let url = format!("rediss://:{PASSWORD}@{HOST}:{port}/0{parameters}");
            // The program sends the password only to a server that it trusts. Such a server refuses
            // the password.
            options
                .clone()
                .env("ODOMETER_STORES__FAST__DATABASE", &other.url)
                .env("ODOMETER_STORES__FAST__REDIS", url)
        };
        let known = format!("?sslrootcert={}", authority.certificate().display());
        let migrated = check(&known).run(&["migrate"]);
        assert_eq!(migrated.code, Some(0), "{migrated}");
        for (parameters, said) in [
            (known.as_str(), "refuses this user or password"),
            ("", "certificate"),
        ] {
            let finished = check(parameters).run(&["check"]);
            assert_eq!(finished.code, Some(1), "{finished}");
            assert!(finished.errors.contains(said), "{said}: {finished}");
            assert!(!finished.to_string().contains(PASSWORD), "{finished}");
        }
        let unreadable = check("?sslrootcert=/nowhere/ca.pem").run(&["check"]);
        assert_eq!(unreadable.code, Some(78), "{unreadable}");
        assert!(
            unreadable.errors.contains("/nowhere/ca.pem"),
            "{unreadable}"
        );
    });
}
