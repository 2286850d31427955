//! Says what happens to a number that is too long for its format.

use serde::{Deserialize, Serialize};

/// The rule for a number that is too long for its format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// The number is not issued.
    #[default]
    Refuse,
    /// The number is printed with more digits.
    Widen,
}
