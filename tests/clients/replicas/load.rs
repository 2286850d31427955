//! Callers that take numbers by one driver until a test is over.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::task::JoinHandle;

use super::SEQUENCE;
use crate::{
    clients::{
        driver::{Driver, Hooks},
        language::Language,
    },
    support::{Ledger, wait},
};

/// What four threads of the driver do at once.
const STEP: &str = "threads 4 10";
/// The time between two steps. It bounds the rate, and so the size of a refill.
const BETWEEN_STEPS: Duration = Duration::from_millis(20);
/// How many numbers are given between two faults, so that each fault meets refills.
const BETWEEN_FAULTS: u64 = 400;
const LIMIT: Duration = Duration::from_secs(60);

/// A driver under load.
pub(super) struct Load {
    n_given: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    callers: JoinHandle<(Driver, Outcome)>,
}

/// What came of a load.
pub(super) struct Outcome {
    pub(super) ledger: Ledger,
    pub(super) errors: Vec<String>,
    pub(super) hooks: Hooks,
    /// How many numbers were buffered at the end.
    left: u64,
}

impl Load {
    pub(super) async fn start(language: Language, options: &Value) -> Self {
        let driver = Driver::start(language, options).await;
        let (n_given, is_over) = (Arc::default(), Arc::default());
        let callers = take_until_over(driver, Arc::clone(&n_given), Arc::clone(&is_over));
        Self {
            n_given,
            is_over,
            callers: tokio::spawn(callers),
        }
    }

    /// Waits until many more numbers were given.
    pub(super) async fn goes_on(&self) {
        let wanted = self.n_given.load(Ordering::Relaxed) + BETWEEN_FAULTS;
        wait::until("numbers are given again", LIMIT, async || {
            let is_over = self.callers.is_finished();
            assert!(!is_over, "the callers ended before the test");
            (self.n_given.load(Ordering::Relaxed) >= wanted).then_some(())
        })
        .await;
    }

    /// Ends the load, and waits until no refill is under way.
    pub(super) async fn end(self) -> Outcome {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.callers.await;
        let (mut driver, mut outcome) = ended.expect("the driver answered every step");
        // The numbers of a refill that is under way are in none of the counts.
        wait::until("every number is accounted for", LIMIT, async || {
            let more = driver.hooks().await;
            outcome.hooks.add(more);
            outcome.left = driver.left().await;
            (outcome.n_kept() == outcome.hooks.n_brought()).then_some(())
        })
        .await;
        driver.exit().await;
        outcome
    }
}

impl Outcome {
    /// Checks that no caller saw an error, that no number came twice, and that the library lost
    /// none of the numbers that it got.
    pub(super) fn check(&self) {
        assert_eq!(self.errors, Vec::<String>::new(), "errors that callers saw");
        assert_eq!(self.ledger.n_duplicates(), 0, "numbers that came twice");
        assert_eq!(
            self.n_kept(),
            self.hooks.n_brought(),
            "given, buffered and dropped, instead of those that the refills brought"
        );
    }

    /// Returns how many numbers were given, are buffered, or were dropped on purpose.
    fn n_kept(&self) -> u64 {
        self.ledger.n_numbers() + self.left + self.hooks.n_dropped()
    }

    /// Returns how many times a refill came from another endpoint than the successful one before.
    pub(super) fn n_moves(&self) -> usize {
        let good = self.hooks.refills.iter().filter(|refill| refill.is_ok());
        let endpoints: Vec<&str> = good.map(|refill| refill.endpoint.as_str()).collect();
        let pairs = endpoints.windows(2);
        pairs.filter(|pair| pair.first() != pair.last()).count()
    }
}

async fn take_until_over(
    mut driver: Driver,
    n_given: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
) -> (Driver, Outcome) {
    let mut outcome = Outcome {
        ledger: Ledger::default(),
        errors: Vec::new(),
        hooks: Hooks::default(),
        left: 0,
    };
    while !is_over.load(Ordering::Relaxed) {
        let given = driver.take(STEP).await;
        n_given.fetch_add(given.n_numbers(), Ordering::Relaxed);
        outcome.ledger.record(SEQUENCE, &given.ranges);
        outcome.errors.extend(given.error);
        // A library buffers the numbers of ten seconds. So the next step needs a refill, too.
        driver.obey("forget").await;
        tokio::time::sleep(BETWEEN_STEPS).await;
    }
    (driver, outcome)
}
