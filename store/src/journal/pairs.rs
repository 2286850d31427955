//! Compares blocks of the journal, and finds those that have numbers in common.

use entity::block;
use odometer_process::faults::{self, Fault};

/// Two blocks that seem to overlap, the lower one first.
pub(crate) type OverlapPair = (block::Model, block::Model);

/// Returns the last number that a row counts for. Another row counts for numbers that were
/// returned.
///
/// An abandoned rest counts as returned. `odometer recover` abandons blocks that were returned in
/// the state to which the store went back. A process that adopted such a block later has written a
/// row of its own.
fn last_counted(row: &block::Model) -> i64 {
    if faults::is(Fault::RestsOverlap) {
        return row.last;
    }
    match row.fate.as_str() {
        "returned" | "adopted" | "abandoned" => row.next_unissued.saturating_sub(row.step),
        _ => row.last,
    }
}

/// Returns the pairs of `rows` in which the second block begins within the first. `rows` come in
/// order.
///
/// If any two blocks overlap, a block that begins lower reaches into the next one. So each row is
/// compared with `highest`, the one that reaches highest so far.
pub(crate) fn sweep(
    highest: &mut Option<block::Model>,
    rows: impl IntoIterator<Item = block::Model>,
) -> Vec<OverlapPair> {
    let mut pairs = Vec::new();
    for row in rows {
        if last_counted(&row) < row.first {
            continue;
        }
        let before = highest
            .take_if(|before| before.sequence == row.sequence && before.period == row.period);
        *highest = Some(match before {
            Some(before) => {
                if overlap(&before, &row) {
                    pairs.push((before.clone(), row.clone()));
                }
                if last_counted(&before) < last_counted(&row) {
                    row
                } else {
                    before
                }
            }
            None => row,
        });
    }
    pairs
}

/// Returns whether two rows count for the same numbers.
pub(crate) fn overlap(one: &block::Model, other: &block::Model) -> bool {
    !faults::is(Fault::OverlapsUnseen)
        && one.first <= last_counted(other)
        && other.first <= last_counted(one)
}

/// Returns whether both blocks were reserved before the last recovery. Their rows may come from two
/// histories of the store, and `odometer recover` has raised every counter above both.
pub(crate) fn is_of_before(
    recovered_at: Option<i64>,
    one: &block::Model,
    other: &block::Model,
) -> bool {
    recovered_at.is_some_and(|at| one.reserved_at < at && other.reserved_at < at)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn row(sequence: &str, first: i64, last: i64, fate: &str, next_unissued: i64) -> block::Model {
        block::Model {
            id: Uuid::new_v4(),
            sequence: sequence.to_owned(),
            period: String::new(),
            first,
            last,
            step: 1,
            holder: "h".to_owned(),
            reserved_at: 0,
            fate: fate.to_owned(),
            next_unissued,
        }
    }

    fn n_pairs(rows: Vec<block::Model>) -> usize {
        sweep(&mut None, rows).len()
    }

    #[test]
    fn rests_that_were_adopted_lie_within_their_block_and_do_not_overlap_it() {
        let chain = vec![
            row("a", 1, 100, "adopted", 41),
            // Adopted, and returned again before a number was issued.
            row("a", 41, 100, "adopted", 41),
            row("a", 41, 100, "adopted", 61),
            row("a", 61, 100, "returned", 70),
            row("a", 101, 200, "held", 101),
            row("b", 1, 100, "spent", 101),
        ];
        assert_eq!(n_pairs(chain), 0);
    }

    #[test]
    fn blocks_with_a_number_in_common_are_found() {
        let spent = row("a", 1, 100, "spent", 101);
        for (other, expected) in [
            (row("a", 100, 150, "held", 100), 1),
            (row("a", 101, 150, "held", 101), 0),
            (row("a", 50, 60, "spent", 61), 1),
            (row("a", 50, 60, "returned", 51), 1),
            (row("a", 50, 60, "returned", 50), 0),
            (row("b", 50, 60, "spent", 61), 0),
        ] {
            assert_eq!(
                n_pairs(vec![spent.clone(), other.clone()]),
                expected,
                "{other:?}"
            );
        }
    }

    #[test]
    fn a_long_block_is_compared_with_all_that_begin_within_it() {
        let rows = vec![
            row("a", 1, 1000, "held", 1),
            row("a", 10, 20, "held", 10),
            row("a", 30, 40, "held", 30),
            row("a", 1000, 1001, "held", 1000),
            row("a", 1001, 1002, "held", 1001),
        ];
        assert_eq!(n_pairs(rows), 4);
    }

    #[test]
    fn the_walk_goes_on_where_it_stopped() {
        let mut highest = None;
        assert!(sweep(&mut highest, [row("a", 1, 1000, "held", 1)]).is_empty());
        assert_eq!(
            sweep(&mut highest, [row("a", 500, 501, "held", 500)]).len(),
            1
        );
        assert_eq!(
            sweep(&mut highest, [row("b", 500, 501, "held", 500)]).len(),
            0
        );
    }

    #[test]
    fn rows_of_the_time_before_a_recovery_are_passed_over() {
        let row = |reserved_at| block::Model {
            reserved_at,
            ..row("a", 1, 100, "held", 1)
        };
        for (one, other, recovered_at, expected) in [
            (10, 20, None, false),
            (10, 20, Some(30), true),
            (10, 30, Some(30), false),
            (40, 20, Some(30), false),
        ] {
            let is_of_before = is_of_before(recovered_at, &row(one), &row(other));
            assert_eq!(is_of_before, expected, "{one} {other} {recovered_at:?}");
        }
    }
}
