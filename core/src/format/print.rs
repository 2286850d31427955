//! Prints the numbers of a format.

use super::Format;
use super::base::Base;
use super::date;
use super::parse::{FormatPart, NumberFormat, push_text};
use crate::period::{Period, PeriodKind};

/// Prints the numbers of one period. What is the same for all numbers is computed once.
#[derive(Clone, Debug)]
pub struct Printer {
    /// The parts of the format. A text is in the place of the period and of each part of its date.
    parts: Vec<FormatPart>,
    number: NumberFormat,
    room: usize,
}

impl Format {
    /// Creates the printer for a period. The period must be one of the definition's.
    #[must_use]
    pub fn printer(&self, period: &Period) -> Printer {
        let period = period.as_str();
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            match part {
                FormatPart::Text(literal) => push_text(&mut parts, literal),
                FormatPart::Period => push_text(&mut parts, period),
                FormatPart::Date(part) => push_text(&mut parts, &part.of(period)),
                FormatPart::Value | FormatPart::Check(_) => parts.push(part.clone()),
            }
        }
        let n_digits = self.number.base.most_digits();
        let others = parts.iter().filter(|part| **part != FormatPart::Value);
        let room = n_digits + others.map(|part| self.length(part).most).sum::<usize>();
        Printer {
            parts,
            number: self.number,
            room,
        }
    }

    /// Returns whether the format prints decimal numbers and nothing else.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let is_bare = matches!((self.number.base, self.number.width), (Base::Decimal, 0));
        is_bare && self.parts.len() == 1
    }

    /// Returns whether the definition can have the period, as far as the period's text shows.
    pub(crate) fn has_period(&self, period: &str) -> bool {
        match date::length(self.kind) {
            Some(_) => date::exists(self.kind, period),
            None if period.is_empty() => self.kind == PeriodKind::None,
            None => Period::parse(period).is_ok(),
        }
    }
}

impl Printer {
    /// Appends a number as it is printed. If `out` has [`room`](Self::room), nothing is allocated.
    pub fn print(&self, value: i64, out: &mut String) {
        let start = out.len();
        for part in &self.parts {
            match part {
                FormatPart::Text(text) => out.push_str(text),
                FormatPart::Value => self.number.base.print(value, self.number.width, out),
                FormatPart::Check(check) => {
                    let before = out.as_bytes().get(start..).unwrap_or_default();
                    Base::Decimal.print(check.of(before), check.length(), out);
                }
                // A printer has texts in their place.
                FormatPart::Period | FormatPart::Date(_) => {}
            }
        }
    }

    /// Returns the most bytes that an id takes.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room
    }
}
