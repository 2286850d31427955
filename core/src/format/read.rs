//! Reads ids back: exactly the ids that a format prints.

use super::Format;
use super::date::{self, DatePart};
use super::error::InvalidId;
use super::parse::FormatPart;
use crate::definition::Definition;
use crate::period::Period;

/// Bounds how many characters of a caller's text a message shows.
const SHOWN: usize = 40;

impl Definition {
    /// Returns the period and the number that an id was printed from.
    ///
    /// The id may be of the present format or of a former one, because no id of a former format is
    /// printed again.
    ///
    /// # Errors
    /// [`InvalidId`] says what is wrong with the text as an id of the present format.
    pub fn read(&self, id: &str) -> Result<(Period, i64), InvalidId> {
        let today = Format::unchecked(self, &self.format);
        let read = match today {
            Ok(format) => format.read(id),
            // A definition is created only if its format can be parsed.
            Err(_) => Err(of_other_length(id)),
        };
        read.or_else(|refused| {
            let former = self.former_formats.iter().rev();
            let mut former = former.filter_map(|former| self.at_the_time_of(former).ok());
            let read = former.find_map(|format| format.read(id).ok());
            read.ok_or(refused)
        })
    }
}

impl Format {
    /// Returns the period and the number that an id was printed from.
    ///
    /// # Errors
    /// [`InvalidId`] says what is wrong with the text. Only what the format prints is read: check
    /// digits are verified, and a number that is written in another way is refused.
    pub fn read(&self, id: &str) -> Result<(Period, i64), InvalidId> {
        let cut = self.cut(id)?;
        let mut number = None;
        let mut at = 0;
        for (part, &text) in self.parts.iter().zip(&cut) {
            match part {
                FormatPart::Text(expected) if text == expected => {}
                FormatPart::Text(expected) => {
                    return Err(InvalidId::new(format!(
                        "An id of this sequence has {expected:?} at character {}; this one has \
                         {text:?}.",
                        at + 1
                    )));
                }
                FormatPart::Value => number = Some(self.number(text, at)?),
                FormatPart::Period | FormatPart::Date(_) => {}
                FormatPart::Check(check) => {
                    let before = id.as_bytes().get(..at).unwrap_or_default();
                    let expected = format!("{:0width$}", check.of(before), width = check.length());
                    if text != expected {
                        return Err(InvalidId::new(format!(
                            "The check digits {text:?} at character {} do not fit what stands \
                             before them: a character is wrong.",
                            at + 1
                        )));
                    }
                }
            }
            at += text.len();
        }
        let period = self.period_of(&cut);
        if !self.has_period(&period) {
            return Err(InvalidId::no_period(&period));
        }
        let period = Period::from_stored(&period);
        // A format without a value cannot be created.
        let value = number.unwrap_or_default();
        self.check_printed(id, &period, value)?;
        self.check_range(value)?;
        Ok((period, value))
    }

    /// Cuts an id into as many texts as the format has parts.
    fn cut<'a>(&self, id: &'a str) -> Result<Vec<&'a str>, InvalidId> {
        let length = || of_other_length(id);
        let lengths: Vec<_> = self.parts.iter().map(|part| self.length(part)).collect();
        let fixed: usize = lengths.iter().filter_map(|length| length.fixed()).sum();
        let free = id.len().checked_sub(fixed).ok_or_else(length)?;
        let n_varying = lengths
            .iter()
            .filter(|length| length.fixed().is_none())
            .count();
        let run = (n_varying > 1).then(|| self.run_of_digits(id));
        let mut rest = id;
        let mut cut = Vec::with_capacity(self.parts.len());
        // The part of `free` that does not belong to the value belongs to the key, in either order.
        let for_value = run.unwrap_or(free).min(free);
        let for_key = run.map_or(free, |_| free - for_value);
        for (part, bounds) in self.parts.iter().zip(lengths) {
            let wanted = match (bounds.fixed(), part) {
                (Some(length), _) => length,
                (None, FormatPart::Value) => for_value,
                (None, _) => for_key,
            };
            if !(bounds.least..=bounds.most).contains(&wanted) {
                return Err(length());
            }
            let (text, behind) = rest.split_at_checked(wanted).ok_or_else(length)?;
            cut.push(text);
            rest = behind;
        }
        if rest.is_empty() {
            Ok(cut)
        } else {
            Err(length())
        }
    }

    /// Returns how many characters the value has, if the length of the key varies, too.
    ///
    /// If the key comes first, the value is the run of digits before the parts after the value.
    /// Otherwise, the value is the run of digits after the parts before it, without the check
    /// digits right after the value.
    fn run_of_digits(&self, id: &str) -> usize {
        let digits = self.digits();
        let fixed = |part: &FormatPart| self.length(part).fixed();
        let value = self.place_of(&FormatPart::Value);
        let key = self.place_of(&FormatPart::Period);
        let value_at = value.unwrap_or_default();
        let bytes = id.as_bytes();
        if key < value {
            let behind: usize = self.parts.iter().skip(value_at + 1).filter_map(fixed).sum();
            let up_to = bytes.len().saturating_sub(behind);
            let before = bytes.get(..up_to).unwrap_or_default();
            return before.iter().rev().take_while(|c| digits.has(**c)).count();
        }
        let before: usize = self.parts.iter().take(value_at).filter_map(fixed).sum();
        let from = bytes.get(before..).unwrap_or_default();
        let run = from.iter().take_while(|c| digits.has(**c)).count();
        let behind = self.parts.iter().skip(value_at + 1);
        let checks = behind.take_while(|part| matches!(part, FormatPart::Check(_)));
        run.saturating_sub(checks.filter_map(fixed).sum())
    }

    /// Returns the period, as far as the parts of an id show it.
    fn period_of(&self, cut: &[&str]) -> String {
        let told = |wanted: FormatPart| {
            let mut parts = self.parts.iter().zip(cut).rev();
            let told = parts.find(|(part, _)| **part == wanted);
            told.map(|(_, text)| *text)
        };
        if let Some(period) = told(FormatPart::Period) {
            return period.to_owned();
        }
        let date = |part| told(FormatPart::Date(part));
        let year = date(DatePart::Year).unwrap_or_default();
        match (
            date(DatePart::Month),
            date(DatePart::Day),
            date(DatePart::DayOfYear),
        ) {
            (None, _, Some(of_year)) | (_, None, Some(of_year)) => {
                let in_year = date::month_and_day(year, of_year);
                format!("{year}{}", in_year.unwrap_or_else(|| of_year.to_owned()))
            }
            (month, day, _) => {
                format!(
                    "{year}{}{}",
                    month.unwrap_or_default(),
                    day.unwrap_or_default()
                )
            }
        }
    }

    fn number(&self, text: &str, at: usize) -> Result<i64, InvalidId> {
        let number = self.number.base.read(text);
        number.ok_or_else(|| {
            InvalidId::new(format!(
                "{:?} at character {} is no number as `{{{}}}` prints it, or one above 2^63 - 1.",
                text.chars().take(SHOWN).collect::<String>(),
                at + 1,
                self.number.field()
            ))
        })
    }

    fn check_range(&self, value: i64) -> Result<(), InvalidId> {
        let (start, step, limit) = (self.start, self.step, self.limit);
        if !(start..=limit).contains(&value) {
            let has = format!("has {start} to {limit}");
            return Err(InvalidId::not_of_the_sequence(value, &has));
        }
        if value
            .abs_diff(start)
            .is_multiple_of(step.unsigned_abs().max(1))
        {
            Ok(())
        } else {
            let goes = format!("goes from {start} in steps of {step}");
            Err(InvalidId::not_of_the_sequence(value, &goes))
        }
    }

    /// Refuses an id that can be read but is printed in another way.
    ///
    /// Such an id has too many zeros, or two parts of a date that contradict each other.
    fn check_printed(&self, id: &str, period: &Period, value: i64) -> Result<(), InvalidId> {
        let mut printed = String::new();
        self.printer(period).print(value, &mut printed);
        if printed == id {
            return Ok(());
        }
        let alike = printed.bytes().zip(id.bytes());
        let alike = alike.take_while(|(printed, found)| printed == found);
        let at = alike.count() + 1;
        Err(InvalidId::new(format!(
            "The number {value} is printed otherwise by this sequence, from character {at} on."
        )))
    }
}

fn of_other_length(id: &str) -> InvalidId {
    let length = id.chars().count();
    InvalidId::new(format!(
        "An id of this sequence does not have {length} characters."
    ))
}
