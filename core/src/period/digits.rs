//! Reads the numbers in the texts of periods, times of day and dates.

use std::str::FromStr;

/// Reads a number that consists of this many ASCII digits.
pub(crate) fn digits<N: FromStr>(text: &str, length: usize) -> Option<N> {
    let is_number = text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Reads two numbers of two digits each, with `divider` between them.
pub(crate) fn two_numbers(text: &str, divider: char) -> Option<(i8, i8)> {
    let (first, second) = text.split_once(divider)?;
    Some((digits(first, 2)?, digits(second, 2)?))
}
