//! Prints the numbers of a format.

use super::Format;
use super::base::Base;
use super::check_digit::Check;
use super::date;
use super::parse::{FormatPart, NumberFormat};
use crate::period::Period;

/// Prints the numbers of one period. What is the same for all numbers is computed once.
#[derive(Clone, Debug)]
pub struct Printer {
    pieces: Vec<Piece>,
    number: NumberFormat,
    room: usize,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Value,
    Check(Check),
}

impl Format {
    /// Creates the printer for a period. The period must be one of the definition's.
    #[must_use]
    pub fn printer(&self, period: &Period) -> Printer {
        let period = period.as_str();
        let mut pieces: Vec<Piece> = Vec::with_capacity(self.parts.len());
        let mut text = String::new();
        for part in &self.parts {
            let piece = match part {
                FormatPart::Text(literal) => {
                    text.push_str(literal);
                    continue;
                }
                FormatPart::Period => {
                    text.push_str(period);
                    continue;
                }
                FormatPart::Date(part) => {
                    text.push_str(&part.of(period));
                    continue;
                }
                FormatPart::Value => Piece::Value,
                FormatPart::Check(check) => Piece::Check(*check),
            };
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(piece);
        }
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        let room = pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Value => self.number.base.most_digits(),
            Piece::Check(check) => check.length(),
        });
        let room = room.sum();
        Printer {
            pieces,
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
            None if period.is_empty() => self.kind == crate::period::PeriodKind::None,
            None => Period::parse(period).is_ok(),
        }
    }
}

impl Printer {
    /// Appends a number as it is printed. If `out` has [`room`](Self::room), nothing is allocated.
    pub fn print(&self, value: i64, out: &mut String) {
        let start = out.len();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Value => self.number.base.print(value, self.number.width, out),
                Piece::Check(check) => {
                    let before = out.as_bytes().get(start..).unwrap_or_default();
                    Base::Decimal.print(check.of(before), check.length(), out);
                }
            }
        }
    }

    /// Returns the most bytes that an id takes.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room
    }
}
