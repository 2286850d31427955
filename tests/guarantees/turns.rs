//! Replicas that take blocks of one name in turn.

use crate::support::{
    Answer, Backend, Client, Ledger, Program, Scrape, TestDatabase, for_each_server,
};

const N_ROUNDS: usize = 20;

for_each_server!(replicas_that_take_turns_do_not_meet_conflicts);

/// Checks that a replica reads the counter first, after it has met a conflict. What it remembers of
/// the counter is old each time.
async fn replicas_that_take_turns_do_not_meet_conflicts(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let (one, other) = (options.start_ready().await, options.start_ready().await);
    let clients = [one.client(), other.client()];
    let mut ledger = Ledger::default();
    for _ in 0..N_ROUNDS {
        for client in &clients {
            match client.ask("/v1/sequences/turns/blocks?size=10").await {
                Answer::Given(ranges) => ledger.record("turns", &ranges),
                no_block @ (Answer::Refused(_) | Answer::NoReply(_)) => panic!("{no_block:?}"),
            }
        }
    }
    assert_eq!(ledger.n_numbers(), 10 * 2 * N_ROUNDS as u64);
    assert_eq!(ledger.n_duplicates(), 0);
    // There is at least one conflict. A replica that knows of no other writer tries what it
    // remembers.
    assert!((1.0..=2.0).contains(&n_conflicts(&clients).await));
    one.stop().await;
    other.stop().await;
}

async fn n_conflicts(clients: &[Client]) -> f64 {
    let mut n_conflicts = 0.0;
    for client in clients {
        n_conflicts += Scrape::of(client).await.n_reservations("conflict");
    }
    n_conflicts
}
