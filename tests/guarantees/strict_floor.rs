//! A floor is raised while a number of a strict sequence is on its way.

use std::time::Duration;

use reqwest::Method;

use crate::support::{
    Backend, Options, Program, Scrape, TestDatabase, for_each_backend, for_each_server, wait,
};

const FLOOR: i64 = 1_000;
const LIMIT: Duration = Duration::from_secs(20);

for_each_backend!(nothing_below_a_floor_leaves_a_strict_sequence);

async fn nothing_below_a_floor_leaves_a_strict_sequence(backend: Backend) {
    let options = Program::options().without_guards("strict-arrives-late");
    let (numbers, n_advanced) = advanced(backend, options).await;
    assert_eq!(n_advanced, 1.0, "vacuous: no number was on its way");
    assert_eq!(numbers, [1, FLOOR, FLOOR + 1]);
}

for_each_server!(without_looking_at_the_floor_a_strict_sequence_issues_below_it);

async fn without_looking_at_the_floor_a_strict_sequence_issues_below_it(backend: Backend) {
    let options = Program::options().without_guards("strict-arrives-late,floor-unheld");
    let (numbers, _) = advanced(backend, options).await;
    assert!(numbers[1] < FLOOR, "the check finds nothing: {numbers:?}");
}

/// The numbers before, over and after a floor that is raised while the second is on its way, and
/// how many numbers the floor cost.
async fn advanced(backend: Backend, options: Options) -> ([i64; 3], f64) {
    let database = TestDatabase::prepared(backend).await;
    let program = options
        .database(&database.url)
        .env("ODOMETER_DEFAULT__ORDER", "strict")
        .env("ODOMETER_REFILL__DEADLINE", "20s")
        .start_ready()
        .await;
    let client = program.client();
    let before = client.next("floored").await;
    let caller = client.clone();
    let on_its_way = tokio::spawn(async move { caller.next("floored").await });
    wait::until("the second number is reserved", LIMIT, async || {
        (database.next_value("floored").await >= Some(3)).then_some(())
    })
    .await;
    let body = format!("{{\"floor\":{FLOOR}}}").into_bytes();
    let headers = [("content-type", "application/json")];
    let path = "/v1/sequences/floored/advance";
    let reply = client.send(Method::POST, path, &headers, Some(body)).await;
    let reply = reply.expect("a reply");
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(!on_its_way.is_finished(), "the number came too early");
    let over = on_its_way.await.expect("a caller does not panic");
    let after = client.next("floored").await;
    let n_advanced = Scrape::of(&client)
        .await
        .sum("odometer_abandoned_numbers_total", &[("cause", "advanced")]);
    program.stop().await;
    ([before, over, after], n_advanced)
}
