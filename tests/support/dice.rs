//! Random draws of a test.
//!
//! Each test has a generator of its own, which starts from the seed of the run and the name of the
//! test. The same seed and the same name give the same draws again.

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

/// The dice of one test, shared by all of its threads.
#[derive(Clone)]
pub(crate) struct Dice(Arc<Mutex<StdRng>>);

impl Dice {
    /// Makes the dice of the test that this thread is named after.
    pub(crate) fn of_this_test() -> Self {
        let mut place = DefaultHasher::new();
        settings::seed().hash(&mut place);
        std::thread::current().name().hash(&mut place);
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(place.finish()))))
    }

    /// Makes this thread draw from these dice from now on.
    pub(crate) fn take_up(&self) {
        DICE.set(Some(self.clone()));
    }
}

/// Draws one value of `range`.
///
/// # Panics
/// If the range is empty, or if no test runs on this thread.
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
