//! Finds names that a caller may have meant by a name that does not exist.
//!
//! It makes a few short reads along the primary key. The crate `sequence` chooses the nearest
//! names.

use std::collections::BTreeSet;

use odometer_database::session::DatabaseConnection;
use sea_orm::{DbErr, Order};

use crate::rows::catalog;

/// Bounds how many names are read from one range. There are at most seven ranges.
const EACH: u64 = 50;

/// Bounds all names: `FIRST` sorts before every name, and `LAST` after every name. Names are ASCII
/// letters, digits, `.`, `_`, `:` and `-`.
const FIRST: &str = "";
const LAST: &str = "~";

/// Returns the names next to `name`, and names that begin like it in upper or lower case.
pub(crate) async fn search(
    database: &DatabaseConnection,
    name: &str,
) -> Result<Vec<String>, DbErr> {
    let mut found = BTreeSet::new();
    let below = catalog::names(database, (FIRST, name), Order::Desc, EACH);
    found.extend(below.await?);
    let above = catalog::names(database, (name, LAST), Order::Asc, EACH);
    found.extend(above.await?);
    for beginning in beginnings(name) {
        let last = format!("{beginning}{LAST}");
        let names = catalog::names(database, (&beginning, &last), Order::Asc, EACH);
        found.extend(names.await?);
    }
    Ok(found.into_iter().collect())
}

/// Returns the first half and the first character of `name`, in lower and upper case. The half is
/// also returned as it is.
fn beginnings(name: &str) -> BTreeSet<String> {
    let half = name.get(..name.len().div_ceil(2)).unwrap_or(name);
    let first = name.get(..1).unwrap_or(name);
    [
        half.to_owned(),
        half.to_ascii_lowercase(),
        half.to_ascii_uppercase(),
        first.to_ascii_lowercase(),
        first.to_ascii_uppercase(),
    ]
    .into_iter()
    .collect()
}

#[cfg(test)]
mod tests {
    use crate::suggestions::*;

    #[test]
    fn what_is_read_is_bounded() {
        for name in ["a", "Orders", "aB-9:x", "1234"] {
            let beginnings = beginnings(name);
            assert!(beginnings.len() <= 5, "{beginnings:?}");
            assert!(beginnings.iter().all(|beginning| !beginning.is_empty()));
        }
        let expected = ["O", "ORD", "Ord", "o", "ord"].map(str::to_owned);
        assert_eq!(beginnings("Orders"), BTreeSet::from(expected));
    }
}
