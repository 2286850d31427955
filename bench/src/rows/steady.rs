//! Computes how often a sequence in use writes to its store. Measuring this would take days.

use odometer_core::{
    definition::BlockPolicy,
    sizing::{self, Demand, Rates},
};

use crate::{
    reading::Reading,
    row::{Bound, Row, Series, Unit},
};

const DAY_S: u64 = 86_400;
/// In the first hour, the average rate is still rising to the real rate.
const SETTLED_AFTER_S: u64 = 3_600;
/// The most looks at the low-water mark in a second. A replica looks at each call.
const MAX_LOOKS: u64 = 100;

/// Computes the minutes between two writes at a steady rate, with the sizing that the program uses.
pub(crate) fn steady() -> Vec<Row> {
    let row = |per_s: u64| {
        let n_writes = n_writes(&BlockPolicy::default(), per_s);
        let minutes = (DAY_S - SETTLED_AFTER_S) as f64 / 60.0 / n_writes as f64;
        let reading = Reading::of(minutes).figure("writes", n_writes as f64);
        let title = format!(
            "minutes between two reservations of a sequence at {per_s} numbers/s, default blocks \
             (computed: 24 h in virtual time, without the first)"
        );
        Row::new(&format!("steady-{per_s}"), &title, Unit::Count)
            .series(vec![Series::new("Odometer", vec![reading])])
            .limit(Bound::AtLeast(15.0))
            .note("Each reservation is one write. Its row in the journal is another, later write.")
    };
    [1, 100, 10_000].into_iter().map(row).collect()
}

/// Returns the blocks that are reserved in a day after its first hour. The rate is `per_s` from the
/// start, and the counter begins without a block.
///
/// The order of events is the order of the actor. A block is reserved if there is none. The next
/// block is reserved when at most the low-water mark is left and no other block follows. The rates
/// are sampled each second.
fn n_writes(policy: &BlockPolicy, per_s: u64) -> u64 {
    let mut rates = Rates::default();
    let (mut current, mut next, mut n_writes) = (0_u64, 0_u64, 0_u64);
    let n_looks = per_s.min(MAX_LOOKS);
    for second in 0..DAY_S {
        for look in 0..n_looks {
            let this_second = per_s * look / n_looks;
            let wanted = per_s * (look + 1) / n_looks - this_second;
            let mut fetch = |waited_for| {
                n_writes += u64::from(second >= SETTLED_AFTER_S);
                let demand = Demand {
                    rates,
                    this_second,
                    waited_for,
                    conflicted_size: None,
                    seconds_left: None,
                };
                sizing::size(policy, &demand).preferred
            };
            if current + next < wanted {
                next += fetch(wanted - current - next);
            }
            if current < wanted {
                (current, next) = (current + next, 0);
            }
            current -= wanted;
            let mark = sizing::low_water(policy, &rates, this_second + wanted, None);
            if next == 0 && current <= mark {
                next = fetch(0);
            }
        }
        rates.sample(per_s, 1.0);
    }
    n_writes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_blocks_are_fetched_more_often() {
        let small = BlockPolicy {
            max: 6_000,
            ..BlockPolicy::default()
        };
        // At 100 numbers a second, each block lasts for a minute.
        assert_eq!(n_writes(&small, 100), (DAY_S - SETTLED_AFTER_S) / 60);
    }
}
