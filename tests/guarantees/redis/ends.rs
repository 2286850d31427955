//! The end of a sequence whose numbers Redis gives.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde_json::json;

use super::{LIMIT, Stage, n_steps, sum};
use crate::support::{Answer, Backend, Client, Ledger, Program, Range, for_each_server, wait};

/// The last number: far more numbers than the callers of a few steps take together.
const LAST: i64 = 10_000;

for_each_server!(a_redis_sequence_gives_its_last_number);

async fn a_redis_sequence_gives_its_last_number(backend: Backend) {
    for fallback in ["none", "database"] {
        let stage = Stage::new(backend, fallback).await;
        let programs = stage.start(Program::options()).await;
        let clients: Vec<Client> = programs.iter().map(Program::client).collect();
        let definition = json!({"order": "strict", "max": LAST.to_string()});
        clients[0].define("short", &definition).await;
        let n_exhausted = Arc::new(AtomicU64::new(0));
        let callers: Vec<_> = clients
            .iter()
            .cycle()
            .take(8)
            .map(|client| tokio::spawn(take_all(client.clone(), Arc::clone(&n_exhausted))))
            .collect();
        let mut ledger = Ledger::default();
        for caller in callers {
            ledger.merge(caller.await.expect("a caller does not panic"));
        }
        assert_eq!(ledger.n_duplicates(), 0);
        // On a busy machine leases come late. The database's row then goes on above the closed
        // window.
        let n_fallbacks = sum(&programs, "odometer_redis_fallbacks_total").await;
        let gaps = ledger.gaps("short", Range::between(1, LAST));
        let n_lost: f64 = gaps.iter().map(|gap| gap.count as f64).sum();
        let n_counted = sum(&programs, "odometer_abandoned_numbers_total").await;
        assert!(
            n_lost <= n_counted || n_fallbacks > 0.0,
            "{n_counted} counted: {gaps:?}"
        );
        // This bound holds even if a busy machine closes windows early.
        assert!(n_lost < LAST as f64 / 2.0, "{gaps:?}");
        let n_steps = n_steps(&programs).await;
        assert!(n_steps >= 5.0, "vacuous: {n_steps} steps");
        assert!(n_exhausted.load(Ordering::Relaxed) >= 8, "vacuous: no end");

        // With a higher `max` the sequence goes on.
        let more = json!({"max": (2 * LAST).to_string()});
        clients[0].define("short", &more).await;
        for expected in [LAST + 1, LAST + 2] {
            let path = "/v1/sequences/short/next";
            let number = wait::until("it goes on", LIMIT, async || {
                let reply = clients[1].post(path).await.expect("a reply");
                (reply.status == 200).then(|| reply.number())
            })
            .await;
            assert_eq!(number, expected);
        }
    }
}

/// Takes numbers in ever smaller batches until none is left.
async fn take_all(client: Client, n_exhausted: Arc<AtomicU64>) -> Ledger {
    let mut ledger = Ledger::default();
    for count in [70, 7, 1] {
        loop {
            let path = format!("/v1/sequences/short/next?count={count}");
            match client.ask(&path).await {
                Answer::Given(ranges) => ledger.record("short", &ranges),
                Answer::Refused(reply) => {
                    let code = reply.code();
                    assert_eq!(code.as_deref(), Some("sequence_exhausted"), "{reply:?}");
                    n_exhausted.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                Answer::NoReply(error) => panic!("{path}: {error:?}"),
            }
        }
    }
    ledger
}
