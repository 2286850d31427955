//! What happens to a number too long for its format.

use serde::{Deserialize, Serialize};

/// What happens to a number too long for its format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// It is not issued.
    #[default]
    Refuse,
    /// It is printed wider.
    Widen,
}
