//! Decides whether two formats can print the same id.

use super::Format;
use super::charset::CharSet;
use super::parse::FormatPart;
use crate::period::PeriodKind;

const KEY_CHARACTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._:-";

/// The known facts about all ids of a format.
struct Outline {
    /// The characters that each of the first places may have, as far as each place belongs to one
    /// part.
    from_start: Vec<CharSet>,
    /// The same from the last place backwards.
    from_end: Vec<CharSet>,
    /// The characters that each id has. A character that each id has several times is listed as
    /// often.
    has_always: Vec<u8>,
    /// The characters that each part may have, and the most places that the part may have.
    may_have: Vec<(CharSet, usize)>,
    least: usize,
    most: usize,
}

impl Format {
    /// Returns whether it is certain that no id of this format is an id of the other format.
    ///
    /// The answer comes from places, characters and lengths. `false` means that it is not certain.
    #[must_use]
    pub fn cannot_print_any_of(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.outline(), other.outline());
        ours.is_longer_than(&theirs)
            || theirs.is_longer_than(&ours)
            || ours.has_more_than_fits(&theirs)
            || theirs.has_more_than_fits(&ours)
            || differ(&ours.from_start, &theirs.from_start)
            || differ(&ours.from_end, &theirs.from_end)
    }

    fn outline(&self) -> Outline {
        let lengths = || self.parts.iter().map(|part| self.length(part));
        let has_always = self.parts.iter().flat_map(|part| match part.text() {
            Some(text) => text.as_bytes(),
            None if *part == FormatPart::Period && self.kind == PeriodKind::Week => b"W",
            None => b"",
        });
        // Here, each character of a text is a part of its own.
        let may_have = self.parts.iter().flat_map(|part| match part.text() {
            Some(text) => text.bytes().map(|byte| (CharSet::one(byte), 1)).collect(),
            None => vec![(self.characters(part), self.length(part).most)],
        });
        Outline {
            from_start: self.places(self.parts.iter(), false),
            from_end: self.places(self.parts.iter().rev(), true),
            has_always: has_always.copied().collect(),
            may_have: may_have.collect(),
            least: lengths().map(|length| length.least).sum(),
            most: lengths().map(|length| length.most).sum(),
        }
    }

    /// Returns the characters that each place may have, up to the first place that may belong to
    /// two parts.
    fn places<'a>(
        &'a self,
        parts: impl Iterator<Item = &'a FormatPart>,
        backwards: bool,
    ) -> Vec<CharSet> {
        let mut places = Vec::new();
        for part in parts {
            let length = self.length(part);
            let mut of_part = match part.text() {
                Some(text) => text.bytes().map(CharSet::one).collect(),
                None => vec![self.characters(part); length.least],
            };
            if backwards {
                of_part.reverse();
            }
            places.append(&mut of_part);
            if length.fixed().is_none() {
                break;
            }
        }
        places
    }

    /// Returns the characters that a part may print.
    fn characters(&self, part: &FormatPart) -> CharSet {
        match part {
            FormatPart::Text(text) => CharSet::of(text.as_bytes()),
            FormatPart::Value => self.digits(),
            FormatPart::Date(_) | FormatPart::Check(_) => CharSet::DIGITS,
            FormatPart::Period => match self.kind {
                PeriodKind::Week => CharSet::DIGITS.or(CharSet::one(b'W')),
                PeriodKind::Keyed => CharSet::of(KEY_CHARACTERS),
                PeriodKind::None | PeriodKind::Day | PeriodKind::Month | PeriodKind::Year => {
                    CharSet::DIGITS
                }
            },
        }
    }
}

impl Outline {
    fn is_longer_than(&self, other: &Self) -> bool {
        self.least > other.most
    }

    /// Returns whether each id has some character more often than an id of the other format can
    /// have it.
    fn has_more_than_fits(&self, other: &Self) -> bool {
        self.has_always.iter().any(|byte| {
            let ours = self.has_always.iter().filter(|always| *always == byte);
            let theirs = other.may_have.iter().filter(|(may, _)| may.has(*byte));
            ours.count() > theirs.map(|(_, most)| *most).sum()
        })
    }
}

/// Returns whether the two have no character in common at some place.
fn differ(ours: &[CharSet], theirs: &[CharSet]) -> bool {
    ours.iter()
        .zip(theirs)
        .any(|(ours, theirs)| !ours.meets(*theirs))
}
