//! The library by HTTPS, with an authority that the program names.

use serde_json::Value;

use super::options;
use crate::{
    clients::{
        driver::Driver,
        language::{Language, for_each_language},
    },
    support::{Backend, HOST, Program, TestAuthority, TestDatabase, TlsFiles},
};

for_each_language!(numbers_come_by_https_from_the_right_authority_alone);

/// Rule C15.
async fn numbers_come_by_https_from_the_right_authority_alone(language: Language) {
    let authority = TestAuthority::new("of the listener");
    let other = TestAuthority::new("another one");
    let files = TlsFiles::new(&authority.sign(&[HOST]));
    files.set("right.pem", &authority.certificate());
    files.set("wrong.pem", &other.certificate());
    let database = TestDatabase::prepared(Backend::Sqlite).await;
    let program = files.given_to(Program::options().database(&database.url));
    let program = program.start_ready().await;
    let url = program.url().replace("127.0.0.1", HOST);
    assert!(url.starts_with("https://"), "vacuous: {url}");

    let with = |file: &str| {
        let mut options = options(std::slice::from_ref(&url));
        options["ca_file"] = Value::from(files.path(file).display().to_string());
        options
    };
    let mut driver = Driver::start(language, &with("right.pem")).await;
    let given = driver.take("next 300").await;
    assert_eq!((given.n_numbers(), &given.error), (300, &None));
    driver.exit().await;

    let mut options = with("wrong.pem");
    options["deadline_ms"] = Value::from(1500);
    let mut driver = Driver::start(language, &options).await;
    let given = driver.take("next 1").await;
    assert_eq!(given.n_numbers(), 0, "any certificate is taken");
    assert_eq!(given.error.as_deref(), Some("deadline"), "{given:?}");
    driver.exit().await;
}
