//! Tests what decides the size of a block, and that any input gives a valid size.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may fail loudly"
)]

use proptest::prelude::*;

use super::*;
use crate::definition::Span;

fn policy(min: u64, max: u64) -> BlockPolicy {
    BlockPolicy {
        min,
        max,
        ..BlockPolicy::default()
    }
}

fn demand(average: f64, last_second: f64) -> Demand {
    Demand {
        rates: Rates {
            average,
            last_second,
        },
        this_second: 0,
        waited_for: 0,
        conflicted_size: None,
        seconds_left: None,
    }
}

fn sized(policy: &BlockPolicy, demand: &Demand) -> (u64, SizeReason) {
    let size = size(policy, demand);
    (size.preferred, size.why)
}

#[test]
fn each_part_of_the_formula_can_decide() {
    let wide = policy(1, 1_000_000_000);
    assert_eq!(
        sized(&wide, &demand(100.0, 10.0)),
        (180_000, SizeReason::Average)
    );
    assert_eq!(
        sized(&wide, &demand(1.0, 100.0)),
        (6_000, SizeReason::LastSecond)
    );
    let busy = Demand {
        this_second: 200,
        ..demand(1.0, 100.0)
    };
    assert_eq!(sized(&wide, &busy), (12_000, SizeReason::LastSecond));
    let waited = Demand {
        waited_for: 9,
        ..demand(0.001, 0.0)
    };
    assert_eq!(sized(&wide, &waited), (9, SizeReason::Waiting));
    let conflicts = Demand {
        conflicted_size: Some(70_000),
        ..demand(1.0, 100.0)
    };
    assert_eq!(sized(&wide, &conflicts), (140_000, SizeReason::Conflicts));
    assert_eq!(
        sized(&policy(10, 50), &demand(0.0, 0.0)),
        (10, SizeReason::Minimum)
    );
    assert_eq!(sized(&policy(10, 50), &busy), (50, SizeReason::Maximum));
    assert_eq!(sized(&wide, &demand(0.0, 0.0)), (1, SizeReason::Waiting));
}

#[test]
fn what_is_waited_for_is_not_cut_to_the_maximum() {
    let waited = Demand {
        waited_for: 80,
        ..demand(1.0, 100.0)
    };
    assert_eq!(
        size(&policy(10, 50), &waited),
        Size {
            preferred: 80,
            at_least: 80,
            why: SizeReason::Waiting
        }
    );
}

#[test]
fn the_end_of_a_range_is_shared_out_and_really_issued() {
    let size = size(&policy(1, 1_000_000), &demand(100.0, 0.0));
    let granted = |left| grant(&size, left);
    let of = |count, why| Granted { count, why };
    assert_eq!(granted(u64::MAX), of(180_000, SizeReason::Average));
    assert_eq!(granted(4096 * 1000), of(1000, SizeReason::Left));
    assert_eq!(granted(4097), of(1, SizeReason::Left));
    assert_eq!(granted(1), of(1, SizeReason::Left));
    assert_eq!(granted(0), of(0, SizeReason::Left));
    let waiting = Size {
        at_least: 5,
        ..size
    };
    assert_eq!(grant(&waiting, 100), of(5, SizeReason::Waiting));
    assert_eq!(grant(&waiting, 5), of(5, SizeReason::Waiting));
    assert_eq!(grant(&waiting, 4), of(4, SizeReason::Left));
    assert_eq!(max_at_once(0), 0);
    assert_eq!(max_at_once(4095), 1);
    assert_eq!(max_at_once(8192), 2);
    assert_eq!(max_at_once(u64::MAX), MAX_COUNT);
}

#[test]
fn the_average_takes_five_minutes_and_the_last_second_one() {
    let mut rates = Rates::default();
    for _ in 0..300 {
        rates.sample(1000, 1.0);
    }
    let reached = 1000.0 * (1.0 - (-1.0_f64).exp());
    assert!((rates.average() - reached).abs() < 1.0, "{rates:?}");
    assert!((rates.last_second - 1000.0).abs() < 1e-9);
    rates.sample(0, 300.0);
    let fallen = reached * (-1.0_f64).exp();
    assert!((rates.average() - fallen).abs() < 1.0, "{rates:?}");
    assert!(rates.last_second.abs() < 1e-9);
}

#[test]
fn a_long_gap_counts_like_the_seconds_it_is_made_of() {
    let (mut at_once, mut one_by_one) = (Rates::resume(50.0), Rates::resume(50.0));
    at_once.sample(40 * 120, 120.0);
    for _ in 0..120 {
        one_by_one.sample(40, 1.0);
    }
    assert!((at_once.average() - one_by_one.average()).abs() < 1e-9);
}

#[test]
fn a_reserve_has_no_length_without_a_rate() {
    assert_eq!(Rates::default().reserve_seconds(5), None);
    assert_eq!(Rates::resume(2.0).reserve_seconds(5), Some(2.5));
    for rate in [f64::NAN, f64::INFINITY, -1.0, f64::NEG_INFINITY] {
        assert_eq!(Rates::resume(rate), Rates::default());
    }
}

/// Simulates a sequence that starts from nothing and takes numbers at a steady rate, second by
/// second.
///
/// It returns how many blocks were fetched, and how many of their numbers are left. If `period` is
/// given, a calendar period ends after that many seconds.
fn fetched(policy: &BlockPolicy, rate: u64, seconds: u64, period: Option<u64>) -> (u64, u64) {
    let mut rates = Rates::default();
    let (mut current, mut next, mut signalled, mut n_fetched) = (0_u64, 0_u64, false, 0);
    for second in 0..seconds {
        for this_second in 1..=rate {
            let seconds_left =
                period.map(|period| float(period - second) - float(this_second - 1) / float(rate));
            if current == 0 {
                (current, next, signalled) = (next, 0, false);
            }
            let demand = Demand {
                rates,
                this_second,
                waited_for: u64::from(current == 0),
                conflicted_size: None,
                seconds_left,
            };
            if current == 0 {
                current = size(policy, &demand).preferred;
                n_fetched += 1;
            }
            current -= 1;
            let mark = low_water(policy, &rates, this_second, seconds_left);
            if !signalled && current <= mark {
                signalled = true;
                next = size(policy, &demand).preferred;
                n_fetched += 1;
            }
        }
        rates.sample(rate, 1.0);
        assert!(second > 0 || n_fetched < 10, "{n_fetched} in a second");
    }
    (n_fetched, current + next)
}

#[test]
fn a_steady_sequence_fetches_one_block_in_half_an_hour() {
    let policy = BlockPolicy::default();
    for rate in [1, 10, 1000] {
        let first_hour = fetched(&policy, rate, 3_600, None).0;
        let three_hours = fetched(&policy, rate, 3 * 3_600, None).0;
        assert!(first_hour < 30, "{rate}/s: {first_hour} in the first hour");
        let later = three_hours - first_hour;
        assert!((3..=5).contains(&later), "{rate}/s: {later} in two hours");
    }
}

#[test]
fn near_its_cut_over_a_period_fetches_one_block_in_reserve_and_no_dribble() {
    let policy = BlockPolicy::default();
    let period = 3 * 3_600;
    for rate in [1, 10, 1000] {
        let (before, _) = fetched(&policy, rate, period - 2_700, Some(period));
        let (in_all, left) = fetched(&policy, rate, period, Some(period));
        let late = in_all - before;
        assert!(
            (1..=4).contains(&late),
            "{rate}/s: {late} in the last 45 min"
        );
        assert!(left <= rate * 900, "{rate}/s: {left} left at the cut-over");
    }
}

#[test]
fn no_more_is_fetched_than_is_needed_to_the_cut_over() {
    let wide = policy(1, 1_000_000_000);
    let ends_in = |seconds, demand| Demand {
        seconds_left: Some(seconds),
        ..demand
    };
    let steady = demand(100.0, 10.0);
    assert_eq!(
        sized(&wide, &ends_in(1_800.0, steady)),
        (180_000, SizeReason::Average)
    );
    assert_eq!(
        sized(&wide, &ends_in(1_799.0, steady)),
        (179_900, SizeReason::Cutover)
    );
    assert_eq!(
        sized(&wide, &ends_in(0.5, steady)),
        (100, SizeReason::Cutover)
    );
    assert_eq!(
        sized(&wide, &ends_in(-5.0, steady)),
        (100, SizeReason::Cutover)
    );
    // The highest rate counts, waiting callers come first, and `block.min` does not raise the size.
    let busy = demand(1.0, 100.0);
    assert_eq!(
        sized(&wide, &ends_in(30.0, busy)),
        (3_000, SizeReason::Cutover)
    );
    let waited = Demand {
        waited_for: 5_000,
        ..busy
    };
    assert_eq!(
        sized(&wide, &ends_in(30.0, waited)),
        (5_000, SizeReason::Waiting)
    );
    let least = policy(10_000, 20_000);
    assert_eq!(
        sized(&least, &ends_in(30.0, busy)),
        (3_000, SizeReason::Cutover)
    );
    assert_eq!(
        sized(&least, &ends_in(30.0, demand(0.0, 0.0))),
        (1, SizeReason::Waiting)
    );
    let mark = |left| low_water(&wide, &steady.rates, 0, left);
    assert_eq!(
        [mark(None), mark(Some(9e9)), mark(Some(900.0))],
        [90_000; 3]
    );
    assert_eq!(mark(Some(60.0)), 6_000);
    assert_eq!(
        [mark(Some(0.0)), mark(Some(-1.0)), mark(Some(f64::NAN))],
        [0; 3]
    );
}

fn any_rate() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        0.0..1e6,
        Just(0.0),
        Just(f64::NAN),
        Just(f64::MAX),
        Just(f64::MIN_POSITIVE),
    ]
}

fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0_u64..10_000,
        Just(0),
        Just(u64::MAX),
        Just(MAX_COUNT)
    ]
}

fn any_policy() -> impl Strategy<Value = BlockPolicy> {
    (any_number(), any_number(), 0_u64..1 << 40, any::<u64>()).prop_map(
        |(min, max, hold, refill)| BlockPolicy {
            min,
            max,
            hold: Span::from_seconds(hold),
            refill: Span::from_seconds(refill),
        },
    )
}

fn any_demand() -> impl Strategy<Value = Demand> {
    let rates = (any_rate(), any_number(), any_rate());
    (
        rates,
        any_number(),
        any_number(),
        prop::option::of(any_number()),
        prop::option::of(any_rate()),
    )
        .prop_map(
            |(
                (average, numbers, seconds),
                this_second,
                waited_for,
                conflicted_size,
                seconds_left,
            )| {
                let mut rates = Rates::resume(average);
                rates.sample(numbers, seconds);
                Demand {
                    rates,
                    this_second,
                    waited_for,
                    conflicted_size,
                    seconds_left,
                }
            },
        )
}

#[test]
fn only_a_block_that_was_sized_for_a_lower_rate_warms_up() {
    let rates = |average, last_second| Rates {
        average,
        last_second,
    };
    let wide = policy(1, 1_000_000_000);
    let asked = |rates: &Rates, size, why| is_warming_up(&wide, rates, (size, why), u64::MAX);
    let risen = rates(10.0, 100.0);
    // `hold` needs 90,000 numbers at 100 a second.
    assert!(asked(&risen, 6_000, Some(SizeReason::LastSecond)));
    assert!(asked(&risen, 89_999, Some(SizeReason::Average)));
    assert!(asked(&risen, 5, None));
    assert!(!asked(&risen, 90_000, Some(SizeReason::Average)));
    // The block before had the size for this rate, or the sequence rests.
    assert!(!asked(
        &rates(100.0, 90.0),
        180_000,
        Some(SizeReason::Average)
    ));
    assert!(!asked(&rates(0.0, 0.0), 1, Some(SizeReason::Minimum)));
    for cut in [
        SizeReason::Maximum,
        SizeReason::Cutover,
        SizeReason::Left,
        SizeReason::Limit,
    ] {
        assert!(!asked(&risen, 6_000, Some(cut)), "{cut}");
    }
    // No block may be as long as `hold` at this rate, and none is.
    let block = (6_000, Some(SizeReason::LastSecond));
    let bounded = |max, left| is_warming_up(&policy(1, max), &risen, block, left);
    assert!(bounded(90_000, u64::MAX) && !bounded(89_999, u64::MAX));
    assert!(bounded(u64::MAX, 90_000 * 4096) && !bounded(u64::MAX, 90_000 * 4096 - 1));
    let short = BlockPolicy {
        refill: Span::from_minutes(14),
        ..BlockPolicy::default()
    };
    assert!(!is_warming_up(&short, &risen, block, u64::MAX));
}

#[test]
fn a_sequence_that_became_busy_warms_up_once() {
    const A_SECOND: u64 = 100;
    let policy = policy(1, 1_000_000_000);
    let mut rates = Rates::default();
    let (mut block, mut next) = ((1, SizeReason::Minimum), None);
    let mut left = 1;
    let mut changes = Vec::new();
    for second in 0..7200_u32 {
        rates.sample(A_SECOND, 1.0);
        let demand = Demand {
            rates,
            ..Demand::default()
        };
        if next.is_none() && left <= low_water(&policy, &rates, A_SECOND, None) {
            next = Some(sized(&policy, &demand));
        }
        if left < A_SECOND {
            block = next.take().unwrap();
            left += block.0;
        }
        left -= A_SECOND;
        let newest = next.unwrap_or(block);
        let reserve = rates.reserve_seconds(left + next.map_or(0, |(size, _)| size));
        let is_short = reserve.unwrap() < 899.0;
        let is_warming = is_warming_up(&policy, &rates, (newest.0, Some(newest.1)), u64::MAX);
        assert!(is_warming || !is_short, "only short after {second} s");
        if changes.last() != Some(&is_warming) {
            changes.push(is_warming);
        }
    }
    assert_eq!(changes, [true, false]);
}

proptest! {
    #![proptest_config(crate::tests::properties())]

    #[test]
    fn rates_stay_finite_and_positive(
        average in any_rate(),
        samples in prop::collection::vec((any_number(), any_rate()), 0..20),
    ) {
        let mut rates = Rates::resume(average);
        for (numbers, seconds) in samples {
            rates.sample(numbers, seconds);
            for rate in [rates.average(), rates.last_second] {
                prop_assert!(rate.is_finite() && rate >= 0.0, "{:?}", rates);
            }
            if let Some(seconds) = rates.reserve_seconds(u64::MAX) {
                prop_assert!(seconds.is_finite() && seconds >= 0.0);
            }
        }
    }

    #[test]
    fn a_size_lies_between_what_is_waited_for_and_the_bounds(
        policy in any_policy(),
        demand in any_demand(),
    ) {
        let size = size(&policy, &demand);
        prop_assert_eq!(size.at_least, demand.waited_for.clamp(1, MAX_COUNT));
        prop_assert!(size.preferred >= size.at_least);
        prop_assert!(size.preferred <= policy.max.max(size.at_least).min(MAX_COUNT));
        let least = policy.min.min(policy.max).min(MAX_COUNT);
        prop_assert!(size.preferred >= least || demand.seconds_left.is_some());
        let mark = |left| low_water(&policy, &demand.rates, demand.this_second, left);
        let low_water = mark(demand.seconds_left);
        let is_over = demand.seconds_left.is_some_and(|left| left.is_nan() || left <= 0.0);
        prop_assert!(
            low_water > 0 || demand.this_second == 0 || policy.hold.seconds() == 0 || is_over
        );
        prop_assert!(low_water <= mark(None));
    }

    #[test]
    fn a_cut_over_only_makes_a_block_smaller(policy in any_policy(), demand in any_demand()) {
        let bounded = size(&policy, &demand);
        let endless = size(&policy, &Demand { seconds_left: None, ..demand });
        prop_assert!(bounded.preferred <= endless.preferred);
        if let Some(seconds) = demand.seconds_left {
            let rate = demand.rates.average().max(demand.rates.last_second);
            let rate = rate.max(float(demand.this_second));
            let needed = ceil_saturating(rate * seconds.max(1.0));
            prop_assert!(bounded.preferred <= needed.max(bounded.at_least));
        } else {
            prop_assert_eq!(bounded, endless);
        }
    }

    #[test]
    fn a_grant_is_never_more_than_is_left(
        policy in any_policy(),
        demand in any_demand(),
        left in any_number(),
    ) {
        let size = size(&policy, &demand);
        let granted = grant(&size, left);
        prop_assert!(granted.count <= left && granted.count <= size.preferred);
        prop_assert!(granted.count >= size.at_least.min(left));
        prop_assert!(granted.count >= size.preferred.min(max_at_once(left)));
        prop_assert!(granted.count <= max_at_once(left).max(size.at_least));
    }
}

#[test]
fn each_reason_is_at_its_place() {
    for (place, why) in SizeReason::ALL.into_iter().enumerate() {
        assert_eq!(why as usize, place);
    }
}
