//! Tests that the ids of layouts can be read, and that ticks are times.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::epoch::DEFAULT_EPOCH_MS;
use super::layout::*;

/// Returns any layout that a definition may have.
fn layouts() -> impl Strategy<Value = Layout> {
    let widths = (1_u32..=22, 1_u32..=22).prop_flat_map(|(worker, sequence)| {
        let least = 32_u32.saturating_sub(sequence).max(1);
        (least..=63 - worker - sequence, Just(worker), Just(sequence))
    });
    let high = prop_oneof![Just(High::Time), Just(High::Worker)];
    let unit = prop_oneof![
        Just(LayoutUnit::Millisecond),
        Just(LayoutUnit::TenMilliseconds),
        Just(LayoutUnit::Second)
    ];
    let epoch_ms = 0_i64..2_000_000_000_000;
    (widths, high, unit, epoch_ms).prop_map(|((time, worker, sequence), high, unit, epoch_ms)| {
        Layout {
            high,
            epoch_ms,
            unit,
            time,
            worker,
            sequence,
        }
    })
}

#[test]
fn a_layout_is_written_as_the_contract_has_it() {
    let default = json!({
        "high": "time", "epoch": "2026-01-01T00:00:00Z", "unit": "1ms",
        "time": 41, "worker": 10, "sequence": 12
    });
    assert_eq!(serde_json::to_value(Layout::default()).unwrap(), default);
    let text = serde_json::to_string(&Layout::default()).unwrap();
    assert!(text.starts_with(r#"{"high":"time","epoch":"2026-01-01T"#));
    let read: Layout = serde_json::from_value(json!({"high": "worker", "later": 1})).unwrap();
    assert_eq!(
        read,
        Layout {
            high: High::Worker,
            ..Layout::default()
        }
    );
}

#[test]
fn snowflakes_are_those_that_others_compose() {
    // The id and the time of a famous post.
    let twitter = Layout {
        epoch_ms: 1_288_834_974_657,
        ..Layout::default()
    };
    let parts = twitter.read(1_541_815_603_606_036_480).unwrap();
    assert_eq!(twitter.unix_ms_of(parts.tick), 1_656_432_460_105);
    assert_eq!((parts.worker, parts.counter), (378, 0));
    assert_eq!(
        twitter.compose(378, parts.tick, 0),
        1_541_815_603_606_036_480
    );
}

#[test]
fn the_preset_stays_below_what_javascript_counts_for_87_years() {
    let preset = Layout::preset_53_bit();
    assert_eq!(preset.highest(), crate::runway::EXACT);
    assert_eq!(preset.workers(), 64);
    let years = preset.days_left(DEFAULT_EPOCH_MS) / 365.25;
    assert!((87.0..88.0).contains(&years), "{years}");
    let years = Layout::default().days_left(DEFAULT_EPOCH_MS) / 365.25;
    assert!((69.0..70.0).contains(&years), "{years}");
    assert_eq!(Layout::default().highest(), i64::MAX);
}

#[test]
fn a_sample_has_ids_from_a_tick_on() {
    let layout = Layout::default();
    let first = layout.compose(0, 5, 0);
    assert_eq!(layout.sample(5, 3), [first, first + 1, first + 2]);
    let narrow = Layout {
        sequence: 1,
        ..layout
    };
    let first = narrow.compose(0, 5, 0);
    let next = narrow.compose(0, 6, 0);
    assert_eq!(narrow.sample(5, 3), [first, first + 1, next]);
}

#[test]
fn widths_that_no_definition_has_panic_nowhere() {
    let absurd = Layout {
        epoch_ms: i64::MAX,
        time: u32::MAX,
        worker: u32::MAX,
        sequence: u32::MAX,
        ..Layout::default()
    };
    let _ = absurd.compose(u32::MAX, u64::MAX, u64::MAX);
    let _ = absurd.read(i64::MAX);
    assert_eq!(absurd.tick_at(i64::MIN), None);
    assert_eq!(absurd.ends_at_ms(), i64::MAX);
    assert_eq!(absurd.workers(), u32::MAX);
}

proptest! {
    #![proptest_config(crate::tests::properties())]

    #[test]
    fn what_is_composed_is_read_back(
        layout in layouts(), tick in any::<u64>(), worker in any::<u32>(), counter in any::<u64>(),
    ) {
        let parts = Parts {
            tick: tick & ((1 << layout.time) - 1),
            worker: worker % layout.workers(),
            counter: counter % layout.ids_a_tick(),
        };
        let id = layout.compose(parts.worker, parts.tick, parts.counter);
        prop_assert!((0..=layout.highest()).contains(&id));
        prop_assert_eq!(layout.read(id), Some(parts));
        prop_assert_eq!(layout.compose(worker, tick, counter), id);
    }

    #[test]
    fn what_is_read_is_composed_again_and_nothing_else_is_read(
        layout in layouts(), id in any::<i64>(),
    ) {
        let read = layout.read(id);
        prop_assert_eq!(read.is_some(), (0..=layout.highest()).contains(&id));
        if let Some(parts) = read {
            prop_assert_eq!(layout.compose(parts.worker, parts.tick, parts.counter), id);
        }
    }

    #[test]
    fn ids_ascend_with_what_stands_high(
        layout in layouts(),
        ticks in prop::collection::btree_set(0_u64..1 << 10, 2),
        workers in prop::collection::btree_set(0_u32..2, 2),
    ) {
        let ticks: Vec<u64> = ticks.into_iter().collect();
        let workers: Vec<u32> = workers.into_iter().collect();
        let id = |worker: usize, tick: usize| layout.compose(workers[worker], ticks[tick], 0);
        prop_assert!(id(0, 0) < id(0, 1) && id(1, 0) < id(1, 1));
        match layout.high {
            High::Time => prop_assert!(id(1, 0) < id(0, 1)),
            High::Worker => prop_assert!(id(0, 1) < id(1, 0)),
        }
    }

    #[test]
    fn a_tick_begins_at_its_time_and_lasts_for_the_unit(
        layout in layouts(), tick in 0_u64..1 << 40,
    ) {
        let begins = layout.unix_ms_of(tick);
        let ends = layout.unix_ms_of(tick + 1);
        prop_assert_eq!(ends - begins, layout.unit.ms());
        prop_assert_eq!(layout.tick_at(begins), Some(tick));
        prop_assert_eq!(layout.tick_at(ends - 1), Some(tick));
        prop_assert_eq!(layout.tick_at(layout.epoch_ms - 1), None);
    }

    #[test]
    fn whole_ticks_lie_wholly_between_two_instants(
        layout in layouts(), from in 0_i64..1 << 40, length in 0_i64..100_000,
    ) {
        let from_ms = layout.epoch_ms + from;
        let until_ms = from_ms + length;
        let (first, end) = layout.whole_ticks(from_ms, until_ms);
        prop_assert!(layout.unix_ms_of(first) >= from_ms);
        prop_assert!(layout.unix_ms_of(end) <= until_ms);
        prop_assert!(first == 0 || layout.unix_ms_of(first - 1) < from_ms);
        prop_assert!(layout.unix_ms_of(end + 1) > until_ms);
        prop_assert_eq!(layout.whole_ticks(layout.epoch_ms - 1, until_ms), (0, end));
    }

    #[test]
    fn a_layout_ends_where_its_bits_do_but_for_some_room(layout in layouts()) {
        let all = 1_u128 << layout.time;
        let end = u128::from(layout.end_tick());
        let left = (all - end) * u128::from(layout.ids_a_tick());
        prop_assert!(left >= u128::from(HEADROOM), "{}", left);
        prop_assert!(left < u128::from(HEADROOM) + u128::from(layout.ids_a_tick()));
        prop_assert_eq!(layout.days_left(i64::MAX), 0.0);
    }
}

#[test]
fn ids_of_different_parts_differ() {
    for high in [High::Time, High::Worker] {
        let layout = Layout {
            high,
            ..Layout::default()
        };
        let mut ids = BTreeSet::new();
        for tick in 0..16 {
            for worker in 0..16 {
                ids.extend((0..16).map(|counter| layout.compose(worker, tick, counter)));
            }
        }
        assert_eq!(ids.len(), 16 * 16 * 16);
    }
}
