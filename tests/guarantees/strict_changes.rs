//! Changes to the counter of a strict sequence: a floor is raised while a number is on its way, and
//! the database goes back.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::support::{
    Backend, Client, Options, Program, Scrape, TestDatabase, for_each_backend, for_each_server,
    wait,
};

const FLOOR: i64 = 1_000;
const LIMIT: Duration = Duration::from_secs(20);
/// The most tries until a floor is raised in time.
const MAX_SCENES: usize = 5;

for_each_backend!(nothing_below_a_floor_leaves_a_strict_sequence);

async fn nothing_below_a_floor_leaves_a_strict_sequence(backend: Backend) {
    for period in [None, Some("eod-7")] {
        let options = Program::options().without_guards("strict-arrives-late");
        let (numbers, n_advanced) = advanced(backend, options, period).await;
        assert_eq!(n_advanced, 1.0, "vacuous: no number was on its way");
        assert_eq!(numbers, [1, FLOOR, FLOOR + 1], "{period:?}");
    }
}

for_each_server!(without_looking_at_the_floor_a_strict_sequence_issues_below_it);

async fn without_looking_at_the_floor_a_strict_sequence_issues_below_it(backend: Backend) {
    for period in [None, Some("eod-7")] {
        let options = Program::options().without_guards("strict-arrives-late,floor-unheld");
        let (numbers, _) = advanced(backend, options, period).await;
        assert!(numbers[1] < FLOOR, "the check finds nothing: {numbers:?}");
    }
}

/// Raises a floor while a number is on its way. Returns the number before, this number, and the
/// number after. Also returns how many numbers the floor cost.
async fn advanced(backend: Backend, options: Options, period: Option<&str>) -> ([i64; 3], f64) {
    for _ in 0..MAX_SCENES {
        if let Some(outcome) = raised_meanwhile(backend, options.clone(), period).await {
            return outcome;
        }
    }
    panic!("the second number always came before the floor was raised");
}

/// Tries this once. Returns `None` if a busy machine raised the floor only after the second number
/// had arrived.
async fn raised_meanwhile(
    backend: Backend,
    options: Options,
    period: Option<&str>,
) -> Option<([i64; 3], f64)> {
    let database = TestDatabase::prepared(backend).await;
    let program = options
        .database(&database.url)
        .env("ODOMETER_REFILL__DEADLINE", "20s")
        .start_ready()
        .await;
    let client = program.client();
    let kind = period.map_or("none", |_| "keyed");
    let definition = json!({"order": "strict", "period": kind});
    client.define("floored", &definition).await;
    let asked = period.map_or(String::new(), |period| format!("?period={period}"));
    let path = format!("/v1/sequences/floored/next{asked}");
    let next = |client: Client, path: String| async move {
        client.post(&path).await.expect("a reply").number()
    };
    let before = next(client.clone(), path.clone()).await;
    let on_its_way = tokio::spawn(next(client.clone(), path.clone()));
    let counter = format!(
        "SELECT next_value FROM counter WHERE sequence = 'floored' AND period = '{}'",
        period.unwrap_or_default()
    );
    wait::until("the second number is reserved", LIMIT, async || {
        (database.number(&counter).await >= Some(3)).then_some(())
    })
    .await;
    let mut body = json!({"floor": FLOOR.to_string()});
    if let Some(period) = period {
        body["period"] = json!(period);
    }
    let headers = [("content-type", "application/json")];
    let body = body.to_string().into_bytes();
    let advance = "/v1/sequences/floored/advance";
    let reply = client
        .send(Method::POST, advance, &headers, Some(body))
        .await;
    let reply = reply.expect("a reply");
    assert_eq!(reply.status, 200, "{reply:?}");
    if on_its_way.is_finished() {
        return None;
    }
    let over = on_its_way.await.expect("a caller does not panic");
    let after = next(client.clone(), path).await;
    let abandoned = "odometer_abandoned_numbers_total";
    let scrape = Scrape::of(&client).await;
    let n_advanced = scrape.sum(abandoned, &[("cause", "advanced")]);
    program.stop().await;
    Some(([before, over, after], n_advanced))
}

for_each_server!(a_strict_counter_that_went_back_gives_nothing_until_it_is_recovered);

async fn a_strict_counter_that_went_back_gives_nothing_until_it_is_recovered(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let (program, client) = gone_back(&database, &options).await;
    let path = "/v1/sequences/back/next";
    let reply = client.post(path).await.expect("a reply");
    assert_eq!(
        reply.code().as_deref(),
        Some("store_went_back"),
        "{reply:?}"
    );
    let finished = options.run(&["recover", "--yes", "--skip", "100"]);
    assert_eq!(finished.code, Some(0), "{finished}");
    let first = wait::until("it serves again", LIMIT, async || {
        let reply = client.post(path).await.expect("a reply");
        (reply.status == 200).then(|| reply.number())
    })
    .await;
    assert!(first > 5, "{first} was given before");
    program.stop().await;
}

for_each_server!(without_looking_back_a_strict_counter_repeats_numbers);

async fn without_looking_back_a_strict_counter_repeats_numbers(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options()
        .without_guards("no-went-back-checks")
        .database(&database.url);
    let (_program, client) = gone_back(&database, &options).await;
    let again = client.next("back").await;
    assert!(again <= 5, "the check finds nothing: {again}");
}

/// Takes 1 to 5 from a strict sequence, and makes its counter forget the last two.
async fn gone_back(database: &TestDatabase, options: &Options) -> (Program, Client) {
    let options = options.clone().env("ODOMETER_DEFINITION_REFRESH", "2s");
    let program = options.start_ready().await;
    let client = program.client();
    client.define("back", &json!({"order": "strict"})).await;
    for number in 1..=5 {
        assert_eq!(client.next("back").await, number);
    }
    let lose = "UPDATE counter SET next_value = 4 WHERE sequence = 'back'";
    database.execute(lose).await;
    (program, client)
}
