//! TLS to the database: verified, or loudly warned of.

use crate::support::{
    Authority, Backend, Finished, PASSWORD, Program, Server, TestDatabase, directory,
    for_each_server, wait,
};
use std::time::Duration;

/// The host that the server's certificate is for; the other one is `127.0.0.1`.
const HOST: &str = "localhost";

/// `url` with another host, and with parameters.
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
    assert!(!finished.to_string().contains("://"), "{finished}");
}

for_each_server!(a_certificate_is_verified_and_a_wrong_one_is_refused);

async fn a_certificate_is_verified_and_a_wrong_one_is_refused(backend: Backend) {
    let files = directory("certificates");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(files.path(), mode).expect("our directory");
    let (authority, other) = (Authority::make(files.path()), Authority::make(files.path()));
    let made = authority.sign(HOST, files.path());
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
    let server = Server::start_with(backend, directory(backend.name()), arguments).await;
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
    // As `serve` says it: before it listens, or when the database first answers.
    let finished = Program::options()
        .env("ODOMETER_LISTEN", "127.0.0.1:0")
        .database(&unknown)
        .run(&["serve"]);
    refused(&finished, "signed by no authority that is known");

    let missing = right.replace("ca.pem", "nothing.pem");
    refused(&check(&missing), "nothing.pem cannot be read");
    let plain = TestDatabase::prepared(backend).await;
    let plain = by(&plain.url, HOST, &verifying(backend, &authority));
    refused(&check(&plain), "offers no TLS");
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
    // Another address by its form that leads here all the same.
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
    assert!(
        !log.contains(PASSWORD) && !log.contains("0.0.0.0:"),
        "{log}"
    );
}
