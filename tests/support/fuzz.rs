//! Gives a reader what nobody would write, and counts what it takes.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;

use crate::settings::properties;

/// A change of a text in one place: a piece stands for up to two characters.
#[derive(Clone, Debug)]
pub struct Edit {
    at: Index,
    n: usize,
    piece: &'static str,
}

/// Makes a change with one of `pieces`, or without a piece.
pub fn edit(pieces: &'static [&'static str]) -> impl Strategy<Value = Edit> {
    let piece = prop_oneof![1 => Just(""), 3 => select(pieces)];
    (any::<Index>(), 0..3_usize, piece).prop_map(|(at, n, piece)| Edit { at, n, piece })
}

impl Edit {
    /// Returns the text with the change.
    pub fn of(&self, text: &str) -> String {
        let n_before = self.at.index(text.chars().count() + 1);
        let before = text.chars().take(n_before);
        let after = text.chars().skip(n_before + self.n);
        before.chain(self.piece.chars()).chain(after).collect()
    }
}

/// Gives a test the inputs of a strategy. The test returns whether the reader took the input.
///
/// # Panics
/// If the test panics, with the smallest input with which it does. Also if the reader took fewer
/// than one in `one_in` inputs.
pub fn check<S: Strategy>(inputs: &S, one_in: u32, test: impl Fn(S::Value) -> bool) {
    let (n_inputs, n_taken) = (Cell::new(0_u32), Cell::new(0_u32));
    let mut runner = TestRunner::new(properties());
    let checked = runner.run(inputs, |input| {
        n_inputs.set(n_inputs.get() + 1);
        n_taken.set(n_taken.get() + u32::from(test(input)));
        Ok(())
    });
    if let Err(failure) = checked {
        panic!("{failure}\n{runner}");
    }
    let (n_inputs, n_taken) = (n_inputs.get(), n_taken.get());
    println!("{n_taken} of {n_inputs} inputs were taken");
    assert!(
        n_taken.saturating_mul(one_in) >= n_inputs,
        "vacuous: {n_taken} of {n_inputs} inputs were taken"
    );
}
