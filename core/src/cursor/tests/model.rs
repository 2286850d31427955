//! Tests random operations on a cursor and on a queue of blocks, which must agree.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::{Cursor, SHORT_OF_THE_WRAP};
use crate::block::Block;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Take,
    TakeBatch { count: u64, contiguous: bool },
    Fill { count: u64, step: i64, left: u64 },
    Close,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => Just(Operation::Take),
        4 => (0_u64..12, any::<bool>())
            .prop_map(|(count, contiguous)| Operation::TakeBatch { count, contiguous }),
        4 => (1_u64..10, 1_i64..4, 0_u64..12)
            .prop_map(|(count, step, left)| Operation::Fill { count, step, left }),
        1 => Just(Operation::Close),
    ]
}

/// A block with numbers left, and the low-water mark while its signal is not given.
struct Filled {
    rest: Block,
    low_water: Option<u64>,
}

#[derive(Default)]
struct Model {
    /// The blocks with numbers left, in order.
    blocks: VecDeque<Filled>,
    next_first: i64,
    issued: u64,
}

impl Model {
    fn room(&self) -> usize {
        3 - self.blocks.len()
    }

    fn fill(&mut self, count: u64, step: i64, left: u64) -> Block {
        let rest = Block::new(self.next_first, count, step).unwrap();
        self.next_first = rest.end();
        if self.room() > 0 {
            self.blocks.push_back(Filled {
                rest,
                low_water: Some(left),
            });
        }
        rest
    }

    /// Takes at most `count` numbers from the first block.
    fn take_front(&mut self, count: u64) -> (Block, bool) {
        let mut first = self.blocks.pop_front().unwrap();
        let (taken, rest) = first.rest.split_front(count);
        let left = rest.map_or(0, |rest| rest.count());
        let low_water = first.low_water.is_some_and(|mark| left <= mark);
        if low_water {
            first.low_water = None;
        }
        if let Some(rest) = rest {
            self.blocks.push_front(Filled { rest, ..first });
        }
        let taken = taken.unwrap();
        self.issued += taken.count();
        (taken, low_water)
    }

    fn take_batch(&mut self, count: u64, contiguous: bool) -> Option<(Vec<Block>, bool)> {
        let rest = |n: usize| self.blocks.get(n).map(|block| block.rest);
        let left = |n: usize| rest(n).map_or(0, |rest| rest.count());
        let goes_on = rest(0)
            .zip(rest(1))
            .is_some_and(|(first, next)| first.joined(next).is_some());
        let reach = left(0) + if contiguous && !goes_on { 0 } else { left(1) };
        if count == 0 || reach < count {
            return None;
        }
        let (first, mut low_water) = self.take_front(count);
        let mut ranges = vec![first];
        if first.count() < count {
            let (second, low) = self.take_front(count - first.count());
            low_water |= low;
            match first.joined(second) {
                Some(both) => ranges = vec![both],
                None => ranges.push(second),
            }
        }
        Some((ranges, low_water))
    }

    fn rest(&self) -> Vec<Block> {
        self.blocks.iter().map(|block| block.rest).collect()
    }
}

/// Does one operation on the cursor and on the model.
fn step(cursor: &Cursor, model: &mut Model, operation: Operation) {
    match operation {
        Operation::Take => {
            let expected = model.take_batch(1, true);
            let taken = cursor.take();
            let taken = taken.map(|taken| (taken.value, taken.low_water));
            assert_eq!(
                taken,
                expected.map(|(ranges, low)| (ranges[0].first(), low))
            );
        }
        Operation::TakeBatch { count, contiguous } => {
            let expected = model.take_batch(count, contiguous);
            let taken = cursor.take_batch(count, contiguous);
            let taken = taken.map(|batch| (batch.ranges.as_slice().to_vec(), batch.low_water));
            assert_eq!(taken, expected);
        }
        Operation::Fill { count, step, left } => {
            let fits = model.room() > 0;
            let block = model.fill(count, step, left);
            assert_eq!(cursor.fill(block, left).is_ok(), fits);
        }
        Operation::Close => {
            assert_eq!(cursor.close(), model.rest());
            model.blocks.clear();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..crate::tests::properties() })]

    #[test]
    fn a_cursor_gives_what_a_queue_of_blocks_would_give(
        operations in prop::collection::vec(operation(), 1..80),
        short_of_wrap in 0_u32..4,
    ) {
        let cursor = Cursor::starting_at_generation(SHORT_OF_THE_WRAP - short_of_wrap);
        let mut model = Model::default();
        for operation in operations {
            step(&cursor, &mut model, operation);
            prop_assert_eq!(cursor.rest(), model.rest());
            let left: u64 = model.rest().iter().map(Block::count).sum();
            prop_assert_eq!(cursor.remaining(), left);
            prop_assert_eq!(cursor.issued(), model.issued);
            prop_assert_eq!(cursor.room(), model.room());
            prop_assert_eq!(cursor.take_abandoned(), 0);
        }
    }
}
