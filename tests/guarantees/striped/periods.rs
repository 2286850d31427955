//! Periods of sequences that several databases share.

use std::collections::BTreeMap;

use serde_json::json;

use super::{KINDS, LIMIT, Stripes, change, n_twice, residues};
use crate::support::{Link, Program, dice, run, wait};

#[test]
fn periods_of_a_striped_sequence_count_for_themselves() {
    run(async {
        let stripes = Stripes::new().await;
        let options = stripes.options(Program::options());
        let programs = [options.start_ready().await, options.start_ready().await];
        let clients = programs.each_ref().map(Program::client);
        clients[0]
            .define("keyed", &json!({"period": "keyed"}))
            .await;
        clients[0].define("daily", &json!({"period": "day"})).await;
        let mut given: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        let mut take = async |n_rounds: usize| {
            for n_call in 0..3 * n_rounds {
                // The order is random. In a fixed order, each period would always meet the same
                // database of the rotation.
                let asked = [
                    "keyed/next?period=eod-7",
                    "keyed/next?period=eod-8",
                    "daily/next",
                ];
                let asked = asked[dice::roll(0..asked.len())];
                let path = format!("/v1/sequences/{asked}");
                let reply = clients[n_call % 2].post(&path).await.expect("a reply");
                assert_eq!(reply.status, 200, "{path}: {reply:?}");
                let period = reply.json()["period"].to_string();
                given.entry(period).or_default().extend(reply.values());
            }
            given.clone()
        };
        take(100).await;
        stripes.set(1, Link::Cut);
        take(60).await;
        stripes.set(1, Link::Whole);
        // This includes what was created while a database was away.
        let given = wait::until("every database gives of every period", LIMIT, async || {
            let given = take(30).await;
            let is_spread = |values: &Vec<i64>| residues(values).len() == KINDS.len();
            given.values().all(is_spread).then_some(given)
        })
        .await;
        assert!(given.len() >= 3, "{:?}", given.keys());
        for (period, values) in &given {
            assert_eq!(n_twice(values), 0, "{period}: {values:?}");
            let lowest = values.iter().min().copied();
            let is_new = values.len() < 60;
            assert!(
                is_new || lowest <= Some(KINDS.len().try_into().expect("few")),
                "{period}"
            );
        }
        let path = "/v1/sequences/keyed/periods/eod-7";
        let removed = change(&clients[0], "DELETE", path, None).await;
        assert_eq!(removed.status, 204, "{removed:?}");
        for client in &clients {
            wait::until("the period is gone", LIMIT, async || {
                let path = "/v1/sequences/keyed/next?period=eod-7";
                let reply = client.post(path).await.expect("a reply");
                (reply.code().as_deref() == Some("period_removed")).then_some(())
            })
            .await;
        }
    });
}
