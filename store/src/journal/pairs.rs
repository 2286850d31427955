//! Blocks of the journal side by side: which have numbers in common.

use entity::block;
use odometer_process::faults::{self, Fault};

/// Two blocks that seem to overlap, the lower first.
pub(crate) type OverlapPair = (block::Model, block::Model);

/// The last number that a row answers for: of what was given back, another row does.
///
/// An abandoned rest counts as given back: `odometer recover` abandons blocks that were returned
/// when the store was saved, and whoever adopted one after that writes a row of its own.
fn last_counted(row: &block::Model) -> i64 {
    if faults::is(Fault::RestsOverlap) {
        return row.last;
    }
    match row.fate.as_str() {
        "returned" | "adopted" | "abandoned" => row.next_unissued.saturating_sub(row.step),
        _ => row.last,
    }
}

/// Pairs of `rows`, which come in order, of which the second begins within the first. Where any two
/// overlap, one that begins lower reaches into the next.
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

/// Whether two rows answer for the same numbers.
pub(crate) fn overlap(one: &block::Model, other: &block::Model) -> bool {
    !faults::is(Fault::OverlapsUnseen)
        && one.first <= last_counted(other)
        && other.first <= last_counted(one)
}

/// Whether both are of the time before the store went back: rows of then may be of two histories,
/// and `odometer recover` has raised every counter above both.
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
            // Adopted and returned again without a number issued.
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
