//! Records every number that callers got, and checks what must be true of all of them together.

use std::collections::BTreeMap;

use serde_json::Value;

/// Contiguous numbers with step 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Range {
    pub first: i64,
    pub count: u64,
}

impl Range {
    pub fn single(value: i64) -> Self {
        Self {
            first: value,
            count: 1,
        }
    }

    /// Makes the range from `first` to `last`, both included.
    pub fn between(first: i64, last: i64) -> Self {
        let count = u64::try_from(last - first + 1).expect("the last is not below the first");
        Self { first, count }
    }

    /// Reads a JSON object with `first`, `last`, `count` and `step`, which must agree.
    pub fn of_json(range: &Value) -> Self {
        let last = Self::identifier(&range["last"]);
        let range_read = Self::between(Self::identifier(&range["first"]), last);
        assert_eq!(range["step"], 1, "the ledger knows step 1 only: {range}");
        assert_eq!(range["count"], range_read.count, "count and ends: {range}");
        range_read
    }

    /// Reads a number from a JSON string. The API writes every identifier as a string.
    pub fn identifier(value: &Value) -> i64 {
        value
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("not a number in a string: {value}"))
    }

    pub fn last(&self) -> i64 {
        self.end() - 1
    }

    /// Returns the first number after the range.
    pub fn end(&self) -> i64 {
        self.first + i64::try_from(self.count).expect("a range fits")
    }

    pub fn values(&self) -> std::ops::Range<i64> {
        self.first..self.end()
    }
}

/// The issued numbers, by sequence.
#[derive(Default, Debug)]
pub struct Ledger {
    given: BTreeMap<String, Vec<Range>>,
}

impl Ledger {
    pub fn record(&mut self, sequence: &str, ranges: &[Range]) {
        match self.given.get_mut(sequence) {
            Some(given) => given.extend_from_slice(ranges),
            None => {
                self.given.insert(sequence.to_owned(), ranges.to_vec());
            }
        }
    }

    pub fn merge(&mut self, other: Self) {
        for (sequence, ranges) in other.given {
            self.record(&sequence, &ranges);
        }
    }

    pub fn n_numbers(&self) -> u64 {
        self.given.values().flatten().map(|range| range.count).sum()
    }

    pub fn sequences(&self) -> impl Iterator<Item = &str> {
        self.given.keys().map(String::as_str)
    }

    /// Returns the ranges that were issued of `sequence`, in the order in which they came.
    pub fn given(&self, sequence: &str) -> &[Range] {
        self.given.get(sequence).map_or(&[], Vec::as_slice)
    }

    /// Counts the numbers of all sequences that were issued more than once. Each repetition counts.
    pub fn n_duplicates(&self) -> u64 {
        self.given
            .values()
            .map(|ranges| n_overlapping(ranges))
            .sum()
    }

    /// Returns the highest number that was issued of `sequence`.
    pub fn highest(&self, sequence: &str) -> Option<i64> {
        let ranges = self.given.get(sequence)?;
        ranges.iter().map(Range::last).max()
    }

    /// Returns the parts of `whole` that were not issued, in order.
    pub fn gaps(&self, sequence: &str, whole: Range) -> Vec<Range> {
        let mut ranges = self.given.get(sequence).cloned().unwrap_or_default();
        ranges.sort_unstable();
        let mut gaps = Vec::new();
        let mut next = whole.first;
        for range in ranges {
            if range.first > next {
                gaps.push(Range::between(next, range.first - 1));
            }
            next = next.max(range.end());
        }
        if next < whole.end() {
            gaps.push(Range::between(next, whole.last()));
        }
        gaps
    }
}

fn n_overlapping(ranges: &[Range]) -> u64 {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut n_overlapping = 0;
    let mut end = i64::MIN;
    for range in sorted {
        if range.first < end {
            let common = range.end().min(end) - range.first;
            n_overlapping += u64::try_from(common).unwrap_or_default();
        }
        end = end.max(range.end());
    }
    n_overlapping
}

#[test]
fn the_ledger_finds_what_was_given_twice_and_what_was_not() {
    let mut ledger = Ledger::default();
    ledger.record("a", &[Range::between(1, 10), Range::between(15, 20)]);
    ledger.record("b", &[Range::between(1, 10)]);
    assert_eq!(ledger.n_duplicates(), 0);
    assert_eq!(
        ledger.gaps("a", Range::between(1, 22)),
        [Range::between(11, 14), Range::between(21, 22)]
    );
    let mut more = Ledger::default();
    more.record("a", &[Range::between(8, 16), Range::single(3)]);
    ledger.merge(more);
    assert_eq!(ledger.n_duplicates(), 3 + 2 + 1);
    assert_eq!(ledger.n_numbers(), 16 + 10 + 10);
    assert_eq!(ledger.highest("a"), Some(20));
}
