//! What a test leaves to chance: drawn by the seed of the run, for each test from a place of its
//! own, so that a seed and a name begin alike again.

use std::{
    cell::RefCell,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use rand::{
    RngExt, SeedableRng,
    distr::uniform::{SampleRange, SampleUniform},
    rngs::StdRng,
};

use super::settings;

thread_local! {
    static DICE: RefCell<Option<Dice>> = const { RefCell::new(None) };
}

/// The dice of one test, on whichever of its threads.
#[derive(Clone)]
pub(crate) struct Dice(Arc<Mutex<StdRng>>);

impl Dice {
    /// Those of the test that this thread is named after.
    pub(crate) fn of_this_test() -> Self {
        let mut place = DefaultHasher::new();
        settings::seed().hash(&mut place);
        std::thread::current().name().hash(&mut place);
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(place.finish()))))
    }

    /// What is drawn on this thread from now on is drawn with them.
    pub(crate) fn take_up(&self) {
        DICE.set(Some(self.clone()));
    }
}

/// One of `range`.
///
/// # Panics
/// When the range is empty, or no test runs on this thread.
pub fn roll<T: SampleUniform>(range: impl SampleRange<T>) -> T {
    DICE.with_borrow(|dice| {
        let Dice(dice) = dice.as_ref().expect("a test runs on this thread");
        let mut dice = dice.lock().unwrap_or_else(PoisonError::into_inner);
        dice.random_range(range)
    })
}

#[test]
fn a_seed_and_a_name_begin_alike_again() {
    let begin = || {
        Dice::of_this_test().take_up();
        [roll(0..1000), roll(0..1000), roll(0..1000)]
    };
    assert_eq!(begin(), begin());
}
