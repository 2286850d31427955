//! Numbers in the order in which callers got them, and the first error.

use std::fmt;

use odometer_client::Error;

/// What callers got.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Given {
    numbers: Vec<i64>,
    error: Option<String>,
}

impl Given {
    /// Takes numbers until there are enough, or until an error.
    pub(crate) fn by(count: u64, mut take: impl FnMut() -> Result<i64, Error>) -> Self {
        let mut given = Self::default();
        for _ in 0..count {
            given.add(take());
            if given.error.is_some() {
                break;
            }
        }
        given
    }

    /// Returns no numbers, because of an error that is not the library's.
    pub(crate) fn failed(error: &str) -> Self {
        Self {
            numbers: Vec::new(),
            error: Some(error.replace(' ', "_")),
        }
    }

    pub(crate) fn add(&mut self, result: Result<i64, Error>) {
        match result {
            Ok(number) => self.numbers.push(number),
            Err(error) => {
                self.error.get_or_insert_with(|| error.code().to_owned());
            }
        }
    }

    /// Leaves the error out.
    pub(crate) fn forgive(&mut self) {
        self.error = None;
    }

    /// Returns whether the last digit of the last number is 0.
    pub(crate) fn ends_with_zero(&self) -> bool {
        self.numbers.last().is_some_and(|last| last % 10 == 0)
    }

    /// Adds what others got.
    pub(crate) fn join(&mut self, other: Self) {
        self.numbers.extend(other.numbers);
        self.error = self.error.take().or(other.error);
    }

    /// Writes it in a line, which [`Self::from_line`] reads.
    pub(crate) fn to_line(&self) -> String {
        let numbers: Vec<String> = self.numbers.iter().map(i64::to_string).collect();
        let error = self.error.as_deref().unwrap_or_default();
        format!("{}|{error}\n", numbers.join(","))
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let (numbers, error) = line.trim_end().split_once('|')?;
        let numbers = numbers.split(',').filter(|number| !number.is_empty());
        let numbers: Result<Vec<i64>, _> = numbers.map(str::parse).collect();
        Some(Self {
            numbers: numbers.ok()?,
            error: (!error.is_empty()).then(|| error.to_owned()),
        })
    }
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("given ")?;
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for number in &self.numbers {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
                Some(_) | None => ranges.push((*number, *number)),
            }
        }
        for (index, (first, last)) in ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{first}")?;
            if first != last {
                write!(f, "-{last}")?;
            }
        }
        if let Some(error) = &self.error {
            write!(f, " error {error}")?;
        }
        Ok(())
    }
}
