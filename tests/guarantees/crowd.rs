//! A crowd arrives at a name that nobody has used before.

use std::time::Duration;

use crate::support::{
    Answer, Backend, Client, Ledger, Program, Range, Scrape, TestDatabase, for_each_backend,
    for_each_server,
};

const N_CALLERS: usize = 1_000;
/// A reservation for each caller would be a thousand; one for each that arrived meanwhile is this.
const MOST_RESERVATIONS: f64 = 50.0;

for_each_backend!(a_thousand_callers_of_a_new_name_share_its_refills);

async fn a_thousand_callers_of_a_new_name_share_its_refills(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    let client = program.client();
    let ledger = crowd(std::slice::from_ref(&client), N_CALLERS).await;

    assert_eq!(ledger.n_numbers(), 1_000);
    // One after the other, from the first on: nothing twice, nothing burnt.
    assert_eq!(ledger.gaps("crowd", Range::between(1, 1_000)), []);
    let scrape = Scrape::of(&client).await;
    let n_reserved = scrape.n_reservations("reserved");
    assert!(
        (1.0..=MOST_RESERVATIONS).contains(&n_reserved),
        "{n_reserved} reservations for {N_CALLERS} callers"
    );
    assert_eq!(scrape.n_reservations("conflict"), 0.0);
    assert_eq!(scrape.n_abandoned(), 0.0);
    assert!(database.next_value("crowd").await > Some(1_000));
    program.stop().await;
}

for_each_backend!(a_reservation_for_each_caller_is_found_out);

async fn a_reservation_for_each_caller_is_found_out(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .without_guards("refill-for-each")
        .database(&database.url)
        .start_ready()
        .await;
    let client = program.client();
    crowd(std::slice::from_ref(&client), N_CALLERS).await;
    let n_reserved = Scrape::of(&client).await.n_reservations("reserved");
    assert!(n_reserved > MOST_RESERVATIONS, "{n_reserved} reservations");
    program.stop().await;
}

for_each_server!(replicas_that_use_a_new_name_at_once_create_it_once);

async fn replicas_that_use_a_new_name_at_once_create_it_once(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let mut programs = Vec::new();
    for _ in 0..3 {
        programs.push(options.start_ready().await);
    }
    let clients: Vec<Client> = programs.iter().map(Program::client).collect();
    for round in 0..10 {
        let sequence = format!("birth-{round}");
        let path = format!("/v1/sequences/{sequence}/next");
        let calls: Vec<_> = clients
            .iter()
            .cycle()
            .take(12)
            .map(|client| {
                let (client, path) = (client.clone(), path.clone());
                tokio::spawn(async move { client.ask(&path).await })
            })
            .collect();
        let mut ledger = Ledger::default();
        for call in calls {
            ledger.record(&sequence, &given(call.await.expect("no panic")));
        }
        assert_eq!(ledger.n_numbers(), 12);
        assert_eq!(ledger.n_duplicates(), 0, "{ledger:?}");
    }
    let born = "SELECT COUNT(*) FROM sequence WHERE name LIKE 'birth-%'";
    assert_eq!(database.number(born).await, Some(10));
}

/// Lets `n_callers` ask for one number each, all at once.
async fn crowd(clients: &[Client], n_callers: usize) -> Ledger {
    let start = std::sync::Arc::new(tokio::sync::Barrier::new(n_callers));
    let calls: Vec<_> = (0..n_callers)
        .map(|caller| {
            let client = clients[caller % clients.len()].clone();
            let start = std::sync::Arc::clone(&start);
            tokio::spawn(async move {
                start.wait().await;
                client.ask("/v1/sequences/crowd/next").await
            })
        })
        .collect();
    let mut ledger = Ledger::default();
    for call in calls {
        let answer = tokio::time::timeout(Duration::from_secs(60), call);
        let answer = answer.await.expect("all are answered").expect("no panic");
        ledger.record("crowd", &given(answer));
    }
    ledger
}

fn given(answer: Answer) -> Vec<Range> {
    match answer {
        Answer::Given(ranges) => ranges,
        Answer::Refused(reply) => panic!("refused: {reply:?}"),
        Answer::NoReply(error) => panic!("no reply: {error:?}"),
    }
}
