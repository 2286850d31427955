//! Time-ordered ids under faults: clocks are stepped, and processes are killed, stopped and
//! continued. No id is issued twice.

mod clocks;
mod frozen;
mod stage;

use std::time::Duration;

use self::stage::{Callers, NAME, definition};
use crate::support::{Backend, Program, TestDatabase, for_each_backend, settings};

for_each_backend!(replicas_of_a_time_ordered_sequence_repeat_no_id);

async fn replicas_of_a_time_ordered_sequence_repeat_no_id(backend: Backend) {
    let n_wanted = settings::at_size(500_000, 10_000_000);
    for high in ["time", "worker"] {
        let database = TestDatabase::prepared(backend).await;
        let options = Program::options().database(&database.url);
        let mut programs = Vec::new();
        for _ in 0..backend.replicas(3) {
            programs.push(options.start_ready().await);
        }
        let wanted = definition(high, "10s");
        programs[0].client().define(NAME, &wanted).await;
        let mut all = stage::Got::default();
        while all.ledger.n_numbers() < n_wanted {
            let callers: Vec<Callers> = programs
                .iter()
                .map(|program| Callers::start(&program.client(), &[1, 7, 1000]))
                .collect();
            tokio::time::sleep(settings::at_size(
                Duration::from_millis(500),
                Duration::from_secs(5),
            ))
            .await;
            for callers in callers {
                all.merge(callers.stop().await);
            }
        }
        assert_eq!(all.ledger.n_duplicates(), 0, "{high}: ids given twice");
        all.check_refusals(&[]);
        assert_eq!(all.n_cut, 0);
        for program in programs {
            program.stop().await;
        }
    }
}
