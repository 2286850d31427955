//! Notes of callers while a dump is restored: the numbers that they got, and each other answer.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::support::{Answer, Client, Ledger, Range};

/// The outcome of all callers together.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) ledger: Ledger,
    pub(super) n_went_back: u64,
    /// Answers that are neither numbers nor the expected refusal, by their code.
    pub(super) unexpected: BTreeMap<String, u64>,
}

impl Outcome {
    /// Returns how many numbers of each sequence were issued twice, if any were.
    pub(super) fn twice(&self) -> BTreeMap<String, u64> {
        let alone = |sequence: &str| {
            let mut ledger = Ledger::default();
            ledger.record(sequence, self.ledger.given(sequence));
            ledger.n_duplicates()
        };
        let counted = self
            .ledger
            .sequences()
            .map(|name| (name.to_owned(), alone(name)));
        counted.filter(|(_, n_twice)| *n_twice > 0).collect()
    }
}

/// The notes of all callers together.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) outcome: Mutex<Outcome>,
    pub(super) n_given: AtomicU64,
    /// Set while the tables are being replaced. The database may be away then.
    pub(super) is_restoring: AtomicBool,
    pub(super) is_over: AtomicBool,
}

impl Notes {
    pub(super) fn given(&self, sequence: &str, ranges: &[Range]) {
        let n_now = ranges.iter().map(|range| range.count).sum();
        self.n_given.fetch_add(n_now, Ordering::Relaxed);
        let mut outcome = self.outcome.lock().expect("nobody panics with it");
        outcome.ledger.record(sequence, ranges);
    }

    pub(super) async fn call(&self, client: &Client, sequence: &str, path: &str) -> Option<String> {
        let may_be_away = self.is_restoring.load(Ordering::SeqCst);
        let answer = client
            .ask(&format!("/v1/sequences/{sequence}/{path}"))
            .await;
        let code = match answer {
            Answer::Given(ranges) => {
                self.given(sequence, &ranges);
                return None;
            }
            Answer::Refused(reply) => reply.code().unwrap_or(reply.body),
            Answer::NoReply(error) => error.to_string(),
        };
        let may_be_away = may_be_away || self.is_restoring.load(Ordering::SeqCst);
        let mut outcome = self.outcome.lock().expect("nobody panics with it");
        let is_away = matches!(
            code.as_str(),
            "store_unavailable" | "refill_timeout" | "internal"
        );
        if code == "store_went_back" {
            outcome.n_went_back += 1;
        } else if !(may_be_away && is_away) {
            *outcome.unexpected.entry(code.clone()).or_default() += 1;
        }
        Some(code)
    }
}
