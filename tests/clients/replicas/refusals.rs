//! What the service refuses for good, and kinds of sequences that are not buffered.

use reqwest::Method;
use serde_json::{Value, json};

use super::{SEQUENCE, options, sole_program};
use crate::{
    clients::{
        driver::Driver,
        language::{Language, for_each_language},
    },
    support::{Backend, Program, TestDatabase},
};

/// A program on SQLite with one sequence, and a driver for it.
struct Scene {
    program: Program,
    driver: Driver,
    _database: TestDatabase,
}

impl Scene {
    async fn with(language: Language, definition: &Value) -> Self {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = sole_program(&database).await;
        program.client().define(SEQUENCE, definition).await;
        let driver = Driver::start(language, &options(&[program.url()])).await;
        Self {
            program,
            driver,
            _database: database,
        }
    }

    async fn end(self) {
        self.driver.exit().await;
        self.program.stop().await;
    }
}

for_each_language!(
    the_end_of_a_sequence_is_an_error_after_its_last_numbers,
    a_retired_sequence_is_an_error_after_what_is_buffered,
    a_name_that_is_rejected_is_an_error,
    a_name_that_was_never_seen_begins_at_its_first_number,
    numbers_of_a_strict_sequence_ascend_over_several_processes,
    printed_ids_are_those_of_the_service,
    numbers_by_a_step_are_those_of_the_service,
);

/// Rule C5: 409.
async fn the_end_of_a_sequence_is_an_error_after_its_last_numbers(language: Language) {
    let mut scene = Scene::with(language, &json!({"max": "150"})).await;
    let given = scene.driver.take("next 200").await;
    assert_eq!(
        given.error.as_deref(),
        Some("sequence_exhausted"),
        "{given:?}"
    );
    // The second refill may have asked for more numbers than were left.
    assert!((100..=150).contains(&given.n_numbers()), "{given:?}");
    let again = scene.driver.take("next 200").await;
    assert!(again.error.is_some(), "{again:?}");
    scene.end().await;
}

/// Rules C5 and C13: 410.
async fn a_retired_sequence_is_an_error_after_what_is_buffered(language: Language) {
    let mut scene = Scene::with(language, &json!({})).await;
    assert_eq!(scene.driver.take("next 1").await.values(), [1]);
    let path = format!("/v1/sequences/{SEQUENCE}");
    let client = scene.program.client();
    let retired = client.send(Method::DELETE, &path, &[], None).await;
    assert_eq!(retired.expect("a reply").status, 204);
    let given = scene.driver.take("next 20").await;
    assert_eq!(
        (given.n_numbers(), &given.error),
        (20, &None),
        "buffered numbers stay"
    );
    scene.driver.obey("forget").await;
    let given = scene.driver.take("next 1").await;
    assert_eq!(
        (given.n_numbers(), given.error.as_deref()),
        (0, Some("sequence_retired"))
    );
    scene.end().await;
}

/// Rules C5 and C9: 404.
async fn a_name_that_is_rejected_is_an_error(language: Language) {
    let database = TestDatabase::prepared(Backend::Sqlite).await;
    let program = Program::options()
        .database(&database.url)
        .env("ODOMETER_UNKNOWN", "reject")
        .start_ready()
        .await;
    let mut driver = Driver::start(language, &options(&[program.url()])).await;
    let given = driver.take("next 1").await;
    assert_eq!(
        (given.n_numbers(), given.error.as_deref()),
        (0, Some("sequence_not_found"))
    );
    driver.exit().await;
}

/// Rule C9.
async fn a_name_that_was_never_seen_begins_at_its_first_number(language: Language) {
    let database = TestDatabase::prepared(Backend::Sqlite).await;
    let program = sole_program(&database).await;
    let mut driver = Driver::start(language, &options(&[program.url()])).await;
    assert_eq!(driver.take("next 5").await.values(), [1, 2, 3, 4, 5]);
    driver.exit().await;
}

/// Rule C9.
async fn numbers_of_a_strict_sequence_ascend_over_several_processes(language: Language) {
    let mut scene = Scene::with(language, &json!({"order": "strict"})).await;
    let mut other = Driver::start(language, &options(&[scene.program.url()])).await;
    let mut values = Vec::new();
    for _ in 0..10 {
        for driver in [&mut scene.driver, &mut other] {
            let given = driver.take("next 2").await;
            assert_eq!((given.n_numbers(), &given.error), (2, &None));
            values.extend(given.values());
        }
    }
    assert!(values.is_sorted_by(|one, next| one < next), "{values:?}");
    other.exit().await;
    scene.end().await;
}

/// Rule C10.
async fn printed_ids_are_those_of_the_service(language: Language) {
    let mut scene = Scene::with(language, &json!({"format": "INV-{value:06}"})).await;
    let answer = scene.driver.ask("ids 3").await;
    assert_eq!(
        answer.as_deref(),
        Ok("ids INV-000001 INV-000002 INV-000003")
    );
    scene.end().await;
}

/// Rule C1.
async fn numbers_by_a_step_are_those_of_the_service(language: Language) {
    let mut scene = Scene::with(language, &json!({"start": "10", "step": 5})).await;
    assert_eq!(scene.driver.take("next 4").await.values(), [10, 15, 20, 25]);
    let given = scene.driver.take("next 500").await;
    let values = given.values();
    assert_eq!((values.len(), &given.error), (500, &None));
    assert!(values.iter().all(|value| value % 5 == 0), "{values:?}");
    scene.end().await;
}
