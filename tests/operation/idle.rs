//! Sequences that nobody uses for some time.

use std::time::Duration;

use crate::support::{Backend, Program, Scrape, TestDatabase, for_each_backend, run, wait};

const LIMIT: Duration = Duration::from_secs(20);

for_each_backend!(an_idle_sequence_returns_its_rest_and_goes_on_without_a_gap);

async fn an_idle_sequence_returns_its_rest_and_goes_on_without_a_gap(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .env("ODOMETER_IDLE__PARK", "1s")
        .env("ODOMETER_IDLE__UNLOAD", "2s")
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 100)
        .start_ready()
        .await;
    let client = program.client();
    assert_eq!(client.next("idle").await, 1);
    for expected in 2..=3 {
        wait::until("its rest is returned", LIMIT, async || {
            let journal = database.journal("idle").await;
            journal
                .iter()
                .any(|row| row.fate == "returned" && row.next_unissued == expected)
                .then_some(())
        })
        .await;
        assert_eq!(client.next("idle").await, expected);
    }
    assert_eq!(Scrape::of(&client).await.n_abandoned(), 0.0);
    program.stop().await;
}

#[test]
fn a_parked_sequence_keeps_its_block_and_needs_no_actor() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_IDLE__PARK", "1s")
            .env("ODOMETER_DEFAULT__BLOCK__MIN", 100)
            .start_ready()
            .await;
        let client = program.client();
        assert_eq!(client.next("parked").await, 1);
        wait::until("no actor is left", LIMIT, async || {
            let scrape = Scrape::of(&client).await;
            assert!(scrape.has("odometer_actors"));
            (scrape.sum("odometer_actors", &[]) == 0.0).then_some(())
        })
        .await;
        let before = Scrape::of(&client).await.n_reservations("reserved");
        for expected in 2..=99 {
            assert_eq!(client.next("parked").await, expected);
        }
        assert_eq!(Scrape::of(&client).await.n_reservations("reserved"), before);
        // The block is used up, so the actor comes back.
        assert_eq!(client.next("parked").await, 100);
        assert_eq!(client.next("parked").await, 101);
        program.stop().await;
    });
}
