//! A database that answers nothing, and closes nothing, holds nobody up for long.

use std::time::{Duration, Instant};

use super::{KINDS, Stripes, n_twice, until_all_give};
use crate::support::{Link, Program, run};

/// How long a call may take to find out, in milliseconds; a third of it may be lost to one database.
const DEADLINE_MS: u64 = 3_000;
/// A call that waited for the silent one.
const SLOW: Duration = Duration::from_millis(700);
/// So many calls may wait for it while it is silent: one finds out, one tries it again now and then.
const MAX_SLOW: usize = 6;
const N_CALLS: usize = 600;

#[test]
fn a_silent_database_holds_up_few_calls_and_fails_none() {
    run(async {
        let stripes = Stripes::new().await;
        let program = stripes
            .options(Program::options())
            .env("ODOMETER_REFILL__DEADLINE", format!("{DEADLINE_MS}ms"))
            .start_ready()
            .await;
        let client = program.client();
        let mut values = until_all_give(&client, "orders").await;
        for k in 0..KINDS.len() {
            stripes.set(k, Link::BlackHole);
            let mut n_slow = 0;
            let mut residues = [0; KINDS.len()];
            for _ in 0..N_CALLS {
                let sent = Instant::now();
                let path = "/v1/sequences/orders/next";
                let reply = client.post(path).await.expect("a reply");
                assert_eq!(reply.status, 200, "without {k}: {reply:?}");
                let value = reply.number();
                residues[super::residue(value)] += 1;
                values.push(value);
                n_slow += usize::from(sent.elapsed() > SLOW);
            }
            assert!(
                n_slow <= MAX_SLOW,
                "{n_slow} of {N_CALLS} calls waited for {k}"
            );
            for (other, n) in residues.iter().enumerate() {
                // What it gave before may still be in memory.
                let is_as_expected = if other == k { *n <= 40 } else { *n >= 100 };
                assert!(is_as_expected, "without {k}: {residues:?}");
            }
            // What is in a black hole stays there.
            stripes.set(k, Link::Cut);
            stripes.set(k, Link::Whole);
            values.extend(until_all_give(&client, "orders").await);
        }
        assert_eq!(n_twice(&values), 0);
    });
}
