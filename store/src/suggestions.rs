//! Names that may have been meant by one that does not exist: a few short reads along the primary
//! key, of which the nearest are chosen elsewhere.

use std::collections::BTreeSet;

use odometer_database::session::DatabaseConnection;
use sea_orm::{DbErr, Order};

use crate::rows::catalog;

/// Names read of each of at most seven ranges.
const EACH: u64 = 50;

/// Sorts before every name, and after every name: names are ASCII letters, digits, `.`, `_`, `:`
/// and `-`.
const FIRST: &str = "";
const LAST: &str = "~";

/// Names beside `name`, and those that share its beginning in any case.
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

/// The first half and the first character of `name`, as it is and in both cases.
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
