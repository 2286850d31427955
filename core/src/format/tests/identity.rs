//! Tests random definitions, periods and numbers: each id is read back, and no two pairs of a
//! definition have the same id.
//!
//! A pair is a period and a number.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::*;
use crate::tests::seed_for;

/// Sets how many periods and numbers are printed for each definition.
const PERIODS: usize = 8;
const NUMBERS: usize = 16;

/// Bounds from below how many definitions have each kind of period, and how many have each field.
const MIN_OF_EACH: usize = 20;

/// A random generator that can be repeated: SplitMix64 (Steele, Lea and Flood, 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(n).unwrap()).unwrap()
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Returns a number from 0 to 2^63 − 1. All lengths are equally likely.
    fn number(&mut self) -> i64 {
        let shift = self.below(63) + 1;
        i64::try_from(self.next() >> shift).unwrap()
    }
}

/// The findings of a run.
#[derive(Default)]
struct Findings {
    n_cases: usize,
    /// Pairs that print the id of another pair.
    repeated: Vec<String>,
    /// Ids that are not read as the pair that they were printed from.
    misread: Vec<String>,
    kinds: BTreeMap<String, usize>,
    fields: BTreeMap<String, usize>,
}

const KINDS: [PeriodKind; 6] = [
    PeriodKind::None,
    PeriodKind::Day,
    PeriodKind::Week,
    PeriodKind::Month,
    PeriodKind::Year,
    PeriodKind::Keyed,
];

const FIELDS: [&str; 20] = [
    "{value}",
    "{value:06}",
    "{value:02}",
    "{value:b36}",
    "{value:b36:03}",
    "{value:b62:06}",
    "{value:b62}",
    "{value:crockford}",
    "{value:crockford:04}",
    "{period}",
    "{yyyy}",
    "{yy}",
    "{MM}",
    "{dd}",
    "{JJJ}",
    "{check:luhn}",
    "{check:mod97}",
    "{{",
    "}}",
    "{period}",
];

const LITERALS: [&str; 14] = [
    "-", "/", ".", "#", ":", "_", "A", "z", "0", "1", "11", "W", "-1", "A-",
];

/// Returns a definition whose format may be one that is refused.
pub(super) fn definition(random: &mut Random) -> Definition {
    let step = random.one(&[1, 1, 1, 2, 7, 10, 100, 999_983]);
    let start = random.one(&[0, 1, 1, 5, 99, 1_000, 123_456]);
    let most = (i64::MAX - step - start) / step;
    Definition {
        start,
        step,
        max: start + (random.number() % most) * step,
        period: random.one(&KINDS),
        overflow: random.one(&[Overflow::Refuse, Overflow::Widen]),
        format: pattern(random),
        ..Definition::default()
    }
}

/// Returns a pattern with one field for the number, and random parts around it, valid or not.
fn pattern(random: &mut Random) -> String {
    let mut parts: Vec<&str> = (0..random.below(6))
        .map(|_| match random.below(2) {
            0 => random.one(&LITERALS),
            _ => random.one(&FIELDS[9..]),
        })
        .collect();
    let value = random.one(&FIELDS[..9]);
    parts.insert(random.below(parts.len() + 1), value);
    parts.concat()
}

/// Returns periods that are close to each other: centuries, ends of years, and keys of digits and
/// separators.
pub(super) fn periods(kind: PeriodKind, random: &mut Random) -> BTreeSet<Period> {
    let mut one = || {
        let year = random.one(&["2026", "2026", "2126", "1926", "2027", "2024"]);
        let month = random.one(&["01", "02", "11", "12"]);
        let day = random.one(&["01", "02", "11", "12", "28"]);
        match kind {
            PeriodKind::None => String::new(),
            PeriodKind::Year => year.to_owned(),
            PeriodKind::Month => format!("{year}{month}"),
            PeriodKind::Day => format!("{year}{month}{day}"),
            PeriodKind::Week => format!("{year}W{month}"),
            PeriodKind::Keyed => {
                let mut key = random.one(&["1", "1", "0", "A", "2026"]).to_owned();
                for _ in 0..random.below(4) {
                    key.push_str(random.one(&["1", "0", "-", "A", "z", ".", "-1", "_", ":"]));
                }
                key
            }
        }
    };
    let labels = (0..PERIODS).map(|_| one());
    labels.map(|label| Period::from_stored(&label)).collect()
}

/// Returns numbers at which the number of digits changes, small numbers, and random numbers.
pub(super) fn numbers(definition: &Definition, random: &mut Random) -> BTreeSet<i64> {
    let mut one = || {
        let base: i64 = random.one(&[10, 32, 36, 62]);
        let power = base.pow(u32::try_from(random.below(10)).unwrap());
        match random.below(4) {
            0 => power - 1,
            1 => power + i64::try_from(random.below(3)).unwrap(),
            2 => random.one(&[0, 1, 2, 10, 11, 12, 101, 110, 111, 1_111]),
            _ => random.number(),
        }
    };
    let wanted: Vec<i64> = (0..NUMBERS).map(|_| one()).collect();
    let (start, step) = (definition.start, definition.step);
    let on_step =
        |number: i64| start + (number.min(definition.last()) - start).max(0) / step * step;
    wanted.into_iter().map(on_step).collect()
}

impl Findings {
    fn look(&mut self, definition: &Definition, format: &Format, random: &mut Random) {
        let mut printed: HashMap<String, (Period, i64)> = HashMap::new();
        *self
            .kinds
            .entry(format!("{:?}", definition.period))
            .or_default() += 1;
        for field in FIELDS
            .into_iter()
            .filter(|field| definition.format.contains(field))
        {
            *self.fields.entry(field.to_owned()).or_default() += 1;
        }
        let numbers = numbers(definition, random);
        for period in periods(definition.period, random) {
            let printer = format.printer(&period);
            for value in &numbers {
                let mut id = String::new();
                printer.print(*value, &mut id);
                self.n_cases += 1;
                let pair = (period.clone(), *value);
                let found = || format!("{definition:?} prints {id:?} for {pair:?}");
                if format.read(&id) != Ok(pair.clone()) {
                    self.misread
                        .push(format!("{}, reads {:?}", found(), format.read(&id)));
                }
                if let Some(other) = printed.get(&id) {
                    self.repeated.push(format!("{} and {other:?}", found()));
                }
                printed.insert(id, pair);
            }
        }
    }
}

/// Returns how many pairs are printed: the number for each commit, or the number for the guarantee
/// at full size.
#[expect(
    clippy::disallowed_methods,
    reason = "how much is tested is no configuration of the program"
)]
fn n_cases() -> usize {
    match std::env::var_os("ODOMETER_TESTS_FULL").is_some_and(|full| full == "1") {
        true => 5_000_000,
        false => 100_000,
    }
}

#[test]
fn what_is_printed_is_read_back_and_no_two_print_the_same() {
    let mut findings = Findings::default();
    let mut random = Random(seed_for(0));
    while findings.n_cases < n_cases() {
        let definition = definition(&mut random);
        if let Ok(format) = Format::of(&definition) {
            findings.look(&definition, &format, &mut random);
        }
        assert!(findings.misread.is_empty(), "{}", findings.misread[0]);
        assert!(findings.repeated.is_empty(), "{}", findings.repeated[0]);
    }
    for (what, met) in [
        (KINDS.len(), &findings.kinds),
        (FIELDS.len() - 1, &findings.fields),
    ] {
        assert_eq!(met.len(), what, "{met:?}");
        assert!(met.values().all(|n| *n >= MIN_OF_EACH), "{met:?}");
    }
}

#[test]
fn without_the_rules_the_same_look_finds_ids_that_repeat() {
    for (kind, pattern) in [
        (PeriodKind::Day, "{value}"),
        (PeriodKind::Day, "{yy}{MM}{dd}-{value}"),
        (PeriodKind::Week, "{yyyy}-{value}"),
        (PeriodKind::Month, "{MM}-{value}"),
        (PeriodKind::Year, "{yy}-{value}"),
        (PeriodKind::Keyed, "A-{value}"),
        (PeriodKind::Keyed, "{period}{value}"),
        (PeriodKind::Keyed, "{value}{period}"),
        (PeriodKind::Keyed, "{value}1{period}"),
    ] {
        let definition = defined(kind, pattern);
        Format::of(&definition).unwrap_err();
        let format = Format::unchecked(&definition, pattern).unwrap();
        let (mut findings, mut random) = (Findings::default(), Random(seed_for(1)));
        while findings.n_cases < 20_000 && findings.repeated.is_empty() {
            findings.look(&definition, &format, &mut random);
        }
        assert!(!findings.repeated.is_empty(), "{kind:?} {pattern}");
        assert!(!findings.misread.is_empty(), "{kind:?} {pattern}");
    }
}

/// Prints the ids of all pairs of these periods and numbers.
fn some_ids(
    format: &Format,
    periods: &BTreeSet<Period>,
    numbers: &BTreeSet<i64>,
) -> BTreeSet<String> {
    let printers = periods.iter().map(|period| format.printer(period));
    let ids = printers.flat_map(|printer| {
        numbers.iter().map(move |value| {
            let mut id = String::new();
            printer.print(*value, &mut id);
            id
        })
    });
    ids.collect()
}

/// Counts random pairs of formats of one definition, and the pairs that have ids in common.
///
/// The first result is for pairs that are said to share no id. The second result is for the other
/// pairs.
fn common_ids(n_pairs: usize) -> [(usize, usize); 2] {
    let mut random = Random(seed_for(2));
    let mut met = [(0, 0); 2];
    while met.iter().map(|(n, _)| n).sum::<usize>() < n_pairs {
        let one = definition(&mut random);
        let mut other = one.clone();
        // The two formats are often similar, as a format and its successor are.
        let (old, new) = match random.below(2) {
            0 => (random.one(&LITERALS), random.one(&LITERALS)),
            _ => (random.one(&FIELDS), random.one(&FIELDS)),
        };
        other.format = match random.below(3) {
            0 => pattern(&mut random),
            _ => one.format.replacen(old, new, 1),
        };
        other.overflow = random.one(&[Overflow::Refuse, Overflow::Widen]);
        if one.format == other.format {
            continue;
        }
        let (Ok(first), Ok(second)) = (Format::of(&one), Format::of(&other)) else {
            continue;
        };
        let periods = periods(one.period, &mut random);
        let fits = |number: &i64| *number <= one.last().min(other.last());
        let numbers: BTreeSet<i64> = numbers(&one, &mut random)
            .into_iter()
            .filter(fits)
            .collect();
        let ids = some_ids(&first, &periods, &numbers);
        let shares = !ids.is_disjoint(&some_ids(&second, &periods, &numbers));
        let is_said_apart = second.cannot_print_any_of(&first);
        let (n, n_shared) = &mut met[usize::from(!is_said_apart)];
        *n += 1;
        *n_shared += usize::from(shares);
    }
    met
}

#[test]
fn formats_that_are_said_to_share_no_id_share_none() {
    let [(n_apart, n_shared), _] = common_ids(n_cases() / 50);
    assert!(n_apart >= 500, "vacuous: {n_apart}");
    assert_eq!(n_shared, 0);
}

#[test]
fn of_those_that_are_not_said_to_some_do() {
    let [_, (n, n_shared)] = common_ids(2_000);
    assert!(n_shared >= 50, "{n_shared} of {n}");
}
