//! Gives the reader of formats, and of the ids of a format, texts that nobody would write.

use proptest::prelude::*;

use super::identity::{Random, definition, numbers, periods};
use super::*;
use crate::fuzz::edit::{edit, edited};
use crate::tests::properties;

/// Sets how many periods and numbers are printed for each definition.
const PERIODS: usize = 2;
const NUMBERS: usize = 4;

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn a_format_is_refused_or_reads_what_it_prints_and_nothing_else(
        seed in any::<u64>(),
        (of_pattern, of_id) in (edit(), edit()),
    ) {
        let mut random = Random(seed);
        let definition = std::iter::repeat_with(|| definition(&mut random))
            .find(|definition| Format::of(definition).is_ok())
            .unwrap();
        let other = Definition {
            format: edited(&definition.format, &of_pattern),
            ..definition.clone()
        };
        for definition in [definition, other] {
            let Ok(format) = Format::of(&definition) else {
                continue;
            };
            let numbers = numbers(&definition, &mut random);
            for period in periods(definition.period, &mut random).into_iter().take(PERIODS) {
                for value in numbers.iter().rev().take(NUMBERS) {
                    look(&definition, &format, (&period, *value), |id| edited(id, &of_id));
                }
            }
        }
    }
}

/// Checks the id of a pair, and another text that is made from the id.
fn look(
    definition: &Definition,
    format: &Format,
    (period, value): (&Period, i64),
    other: impl Fn(&str) -> String,
) {
    let mut id = String::new();
    let printer = format.printer(period);
    printer.print(value, &mut id);
    assert!(id.len() <= printer.room(), "{definition:?}: {id}");
    assert_eq!(
        format.read(&id),
        Ok((period.clone(), value)),
        "{definition:?}: {id}"
    );
    let other = other(&id);
    if let Ok((period, value)) = format.read(&other) {
        let mut again = String::new();
        format.printer(&period).print(value, &mut again);
        assert_eq!(again, other, "{definition:?}");
    }
}
