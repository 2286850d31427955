//! Notes of callers while a dump is restored: the numbers that they got, and each other answer.

use std::{
    collections::{BTreeMap, BTreeSet},
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
    /// Answers that are neither numbers nor the expected refusal: their code, and the call.
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
    /// The names that a replica may still answer from work that it began while the tables were
    /// being replaced: all but those that it has refused since. `None` before a restore, and if
    /// nobody notices it.
    refused_since: Mutex<Option<BTreeSet<Key>>>,
    pub(super) is_over: AtomicBool,
}

/// The URL of a replica, and a name.
type Key = (String, String);

impl Notes {
    pub(super) fn given(&self, sequence: &str, ranges: &[Range]) {
        let n_now = ranges.iter().map(|range| range.count).sum();
        self.n_given.fetch_add(n_now, Ordering::Relaxed);
        let mut outcome = self.outcome.lock().expect("nobody panics with it");
        outcome.ledger.record(sequence, ranges);
    }

    /// Notes that the tables are being replaced, and whether the replicas will notice it.
    pub(super) fn begin_restore(&self, notices: bool) {
        self.is_restoring.store(true, Ordering::SeqCst);
        let refused = notices.then(BTreeSet::new);
        *self.refused_since.lock().expect("nobody panics with it") = refused;
    }

    /// Notes that each replica has refused each name since the restore.
    pub(super) fn end_restore(&self) {
        *self.refused_since.lock().expect("nobody panics with it") = None;
    }

    /// Returns whether an answer may say that the database is away. A call joins the work of calls
    /// before it, so a replica may say so until it has refused the name.
    fn may_be_away(&self, key: &Key) -> bool {
        let refused = self.refused_since.lock().expect("nobody panics with it");
        let is_unsettled = refused.as_ref().is_some_and(|it| !it.contains(key));
        is_unsettled || self.is_restoring.load(Ordering::SeqCst)
    }

    fn note_refused(&self, key: Key) {
        let mut refused = self.refused_since.lock().expect("nobody panics with it");
        if let Some(refused) = refused.as_mut() {
            refused.insert(key);
        }
    }

    pub(super) async fn call(&self, client: &Client, sequence: &str, path: &str) -> Option<String> {
        let key = (client.url().to_owned(), sequence.to_owned());
        let may_be_away = self.may_be_away(&key);
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
        let may_be_away = may_be_away || self.may_be_away(&key);
        let mut outcome = self.outcome.lock().expect("nobody panics with it");
        let is_away = matches!(
            code.as_str(),
            "store_unavailable" | "refill_timeout" | "internal"
        );
        if code == "store_went_back" {
            outcome.n_went_back += 1;
            self.note_refused(key);
        } else if !(may_be_away && is_away) {
            let what = format!("{code}: {path} of {sequence} at {}", key.0);
            *outcome.unexpected.entry(what).or_default() += 1;
        }
        Some(code)
    }
}
