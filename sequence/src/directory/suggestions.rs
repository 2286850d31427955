//! Suggests names to a caller who used a name that does not exist.

use std::time::{Duration, Instant};

use odometer_core::name::SequenceName;

use crate::directory::calls::Directory;

/// Bounds how many names are suggested.
const MAX_SUGGESTIONS: usize = 3;

/// Bounds how long a refusal waits for its suggestions.
const TIMEOUT: Duration = Duration::from_millis(500);

impl Directory {
    /// Returns names of live sequences that are similar to `name`, the nearest first. Returns none
    /// if the database does not answer in time, or if many searches were made in the last second.
    pub async fn near(&self, name: &SequenceName) -> Vec<String> {
        if !self.shared.searches.take(Instant::now()) {
            return Vec::new();
        }
        let names = self.shared.store.names_like(name, TIMEOUT).await;
        nearest(name.as_str(), names)
    }
}

fn nearest(wanted: &str, names: Vec<String>) -> Vec<String> {
    let mut ranked: Vec<(usize, String)> = names
        .into_iter()
        .filter_map(|name| Some((distance(wanted, &name)?, name)))
        .collect();
    ranked.sort();
    ranked.truncate(MAX_SUGGESTIONS);
    ranked.into_iter().map(|(_, name)| name).collect()
}

/// Returns how far apart two names are; `None` if they are equal, or too different to be confused.
///
/// Names that differ only in case or punctuation have distance 0. Otherwise the distance counts the
/// characters that were left out, added, replaced, or swapped with a neighbour.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    if wanted == name {
        return None;
    }
    let (wanted, name) = (wanted.to_ascii_lowercase(), name.to_ascii_lowercase());
    if letters(&wanted) == letters(&name) {
        return Some(0);
    }
    let most = (wanted.len() / 3).clamp(1, 3);
    if wanted.len().abs_diff(name.len()) > most {
        return None;
    }
    let edits = strsim::osa_distance(&wanted, &name);
    // In a name of two characters, one wrong character is too many.
    (edits <= most && edits < wanted.len().min(name.len()).div_ceil(2).max(1)).then_some(edits)
}

fn letters(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}

#[cfg(test)]
mod tests {
    use crate::directory::suggestions::*;

    fn of(wanted: &str, names: &[&str]) -> Vec<String> {
        nearest(wanted, names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_nearest_three_are_suggested_nearest_first() {
        let names = [
            "order",
            "orders-eu",
            "Orders",
            "oders",
            "invoices",
            "odrers",
            "or",
        ];
        assert_eq!(of("orders", &names), ["Orders", "oders", "odrers"]);
        assert_eq!(of("orders_eu", &names), ["orders-eu"]);
        assert_eq!(of("ORDERSEU", &names), ["orders-eu", "Orders"]);
    }

    #[test]
    fn what_nobody_would_mistake_is_not_suggested() {
        assert!(of("orders", &["orders", "tickets", "o", "borderless"]).is_empty());
        assert!(of("ab", &["cd", "ax", "abc-def"]).is_empty());
        assert_eq!(of("a", &["A", "b"]), ["A"]);
    }
}
