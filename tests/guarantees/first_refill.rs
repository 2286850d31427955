//! The very first reservation of a sequence fails.

use std::time::Duration;

use crate::support::{Answer, Backend, Client, Program, TestDatabase, for_each_backend, wait};

const N_SEQUENCES: usize = 5;

for_each_backend!(a_failed_first_refill_lets_nobody_have_what_was_never_reserved);

async fn a_failed_first_refill_lets_nobody_have_what_was_never_reserved(backend: Backend) {
    let outcome = first_calls(backend, "first-refill-error").await;
    assert_eq!(outcome.not_reserved, Vec::<String>::new());
    assert!(
        outcome.n_refused + outcome.n_errors > 0,
        "vacuous: no reservation failed"
    );
}

for_each_backend!(numbers_invented_after_a_failed_first_refill_are_found_out);

async fn numbers_invented_after_a_failed_first_refill_are_found_out(backend: Backend) {
    let guards = "first-refill-error,first-refill-invents";
    let outcome = first_calls(backend, guards).await;
    assert!(!outcome.not_reserved.is_empty(), "the check finds nothing");
}

struct Outcome {
    /// Numbers that were not below the high-water mark that the store had after their issue.
    not_reserved: Vec<String>,
    n_refused: usize,
    /// 1 if the metrics count a failed reservation, else 0.
    n_errors: usize,
}

async fn first_calls(backend: Backend, guards: &str) -> Outcome {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .without_guards(guards)
        .database(&database.url)
        .start_ready()
        .await;
    let client = program.client();
    let mut outcome = Outcome {
        not_reserved: Vec::new(),
        n_refused: 0,
        n_errors: 0,
    };
    for sequence in (0..N_SEQUENCES).map(|number| format!("first-{number}")) {
        for _ in 0..3 {
            let value = take_until_given(&client, &sequence, &mut outcome.n_refused).await;
            let stored = database.next_value(&sequence).await;
            if Some(value) >= stored {
                let found = format!("{sequence}: {value} of {stored:?}");
                outcome.not_reserved.push(found);
            }
        }
    }
    let scrape = crate::support::Scrape::of(&client).await;
    let failed = scrape.n_reservations("not_committed") + scrape.n_reservations("uncertain");
    outcome.n_errors = usize::from(failed > 0.0);
    outcome
}

async fn take_until_given(client: &Client, sequence: &str, n_refused: &mut usize) -> i64 {
    let path = format!("/v1/sequences/{sequence}/next");
    wait::until(
        "a number is given",
        Duration::from_secs(20),
        async || match client.ask(&path).await {
            Answer::Given(ranges) => ranges.first().map(|range| range.first),
            Answer::Refused(reply) => {
                assert_eq!(reply.status, 503, "{reply:?}");
                *n_refused += 1;
                None
            }
            Answer::NoReply(error) => panic!("{error:?}"),
        },
    )
    .await
}
