//! A database that answers nothing and closes nothing delays no caller for long.

use std::time::{Duration, Instant};

use super::{KINDS, Stripes, n_twice, until_all_give};
use crate::support::{Link, Program, run};

/// How long a call may take to find out, in milliseconds. A third of it may be lost to one
/// database.
const DEADLINE_MS: u64 = 3_000;
/// A call that takes this long waited for the silent database.
const SLOW: Duration = Duration::from_millis(700);
/// How many calls may wait for the silent database. One call finds out, and from time to time one
/// call tries it again.
const MAX_SLOW: usize = 6;
const N_CALLS: usize = 600;
const MAX_CALLS: usize = 20 * N_CALLS;
/// How many numbers each of the other databases must give meanwhile.
const ENOUGH: usize = 100;
const MAX_IN_MEMORY: usize = 40;

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
            let since = n_passed_over(&program, &stripes, k);
            // A database that is slow by itself is passed over as well, and gives its part later.
            let give_enough = |residues: &[usize; KINDS.len()]| {
                let mut all = residues.iter().enumerate();
                all.all(|(other, n)| other == k || *n >= ENOUGH)
            };
            let mut n_calls = 0;
            while n_calls < N_CALLS || (n_calls < MAX_CALLS && !give_enough(&residues)) {
                n_calls += 1;
                let sent = Instant::now();
                let path = "/v1/sequences/orders/next";
                let reply = client.post(path).await.expect("a reply");
                assert_eq!(reply.status, 200, "without {k}: {reply:?}");
                let value = reply.number();
                residues[super::residue(value)] += 1;
                values.push(value);
                n_slow += usize::from(sent.elapsed() > SLOW);
            }
            assert!(give_enough(&residues), "without {k}: {residues:?}");
            // A call that found out about another database was delayed by that database.
            let n_found_out = n_passed_over(&program, &stripes, k) - since;
            assert!(
                n_slow <= MAX_SLOW + n_found_out,
                "{n_slow} of {n_calls} calls waited for {k}; others were slow {n_found_out} times"
            );
            // Numbers that the silent database gave before may still be in memory.
            assert!(residues[k] <= MAX_IN_MEMORY, "without {k}: {residues:?}");
            // A connection in a black hole stays silent until it is cut.
            stripes.set(k, Link::Cut);
            stripes.set(k, Link::Whole);
            values.extend(until_all_give(&client, "orders").await);
        }
        assert_eq!(n_twice(&values), 0);
    });
}

/// Returns how many times the program has passed over another database than `k`.
fn n_passed_over(program: &Program, stripes: &Stripes, k: usize) -> usize {
    let own = format!(":{}/", stripes.proxies[k].port());
    let lines = program.log_lines();
    let others = lines
        .iter()
        .filter(|line| line.contains("a database is passed over") && !line.contains(&own));
    others.count()
}
