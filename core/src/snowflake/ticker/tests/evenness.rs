//! Tests that ids of a slow sequence are spread evenly modulo small numbers. Users who shard by ids
//! need this.

use super::super::super::layout::{High, Layout};
use super::super::{Moment, Ticker};

const MODULI: [u64; 4] = [2, 4, 16, 1000];
const N_IDS: u64 = 10_000;

/// Returns the instants, in milliseconds, of 10 calls a second. A call comes up to 10 ms late.
fn instants() -> impl Iterator<Item = u64> {
    // The seed is fixed, because one seed in a thousand is uneven by chance.
    let mut dice = super::threads::Dice(20_261_122);
    (0..N_IDS).map(move |n| 1_000 + n * 100 + dice.roll(10))
}

/// Returns the chi-square statistic of ids modulo `modulus` against an even spread.
fn chi_square(ids: &[i64], modulus: u64) -> f64 {
    let mut counts = vec![0_u32; usize::try_from(modulus).unwrap()];
    for id in ids {
        counts[usize::try_from(id.unsigned_abs() % modulus).unwrap()] += 1;
    }
    let expected = ids.len() as f64 / modulus as f64;
    let squares = counts.iter().map(|n| (f64::from(*n) - expected).powi(2));
    squares.sum::<f64>() / expected
}

/// Returns the value that the statistic exceeds once in 1,000 even spreads.
///
/// It is the approximation of E. B. Wilson and M. M. Hilferty, "The Distribution of Chi-Square",
/// PNAS 17 (1931).
fn critical(degrees: f64) -> f64 {
    const Z: f64 = 3.0902;
    let spread = 2.0 / (9.0 * degrees);
    degrees * (1.0 - spread + Z * spread.sqrt()).powi(3)
}

fn uneven(ids: &[i64]) -> Vec<u64> {
    let is_uneven = |modulus: &u64| chi_square(ids, *modulus) > critical(*modulus as f64 - 1.0);
    MODULI.into_iter().filter(is_uneven).collect()
}

#[test]
fn critical_values_are_those_of_the_tables() {
    for (degrees, exact) in [
        (1.0, 10.828),
        (3.0, 16.266),
        (15.0, 37.697),
        (999.0, 1142.8),
    ] {
        let critical = critical(degrees);
        assert!(
            (critical / exact - 1.0).abs() < 0.04,
            "{degrees}: {critical}"
        );
    }
}

#[test]
fn ids_of_a_slow_sequence_are_even() {
    for high in [High::Time, High::Worker] {
        let layout = Layout {
            high,
            ..Layout::default()
        };
        let ticker = Ticker::new(&layout);
        ticker.open(3, 0, u64::MAX, 1_000).unwrap();
        let ids = instants().map(|tick| {
            let (ahead, batch_ahead) = (0, 0);
            let moment = Moment {
                tick,
                ahead,
                batch_ahead,
            };
            ticker.take(|| moment).unwrap()
        });
        let ids: Vec<i64> = ids.collect();
        assert_eq!(uneven(&ids), [0; 0], "{high:?}");
    }
}

/// Shows the fault of other generators: most ids of their slow sequences are even.
#[test]
fn a_counter_that_starts_again_with_each_tick_is_found_out() {
    let layout = Layout::default();
    let ids: Vec<i64> = instants().map(|tick| layout.compose(3, tick, 0)).collect();
    let found = uneven(&ids);
    assert!(found.starts_with(&[2, 4, 16]), "{found:?}");
}
