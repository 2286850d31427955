//! Finds the beginnings of the names that globs can fit, so that no other names are looked through.

use odometer_core::glob::Glob;

/// Returns the beginnings of all names that begin with `filter` and can fit one of the globs, in
/// byte order. No beginning begins with another one.
pub(crate) fn beginnings<'a>(globs: &'a [Glob], filter: &'a str) -> Vec<&'a str> {
    let beginnings = globs.iter().map(Glob::beginning);
    let both = beginnings.filter_map(|beginning| match beginning.starts_with(filter) {
        true => Some(beginning),
        false => filter.starts_with(beginning).then_some(filter),
    });
    let mut all: Vec<&str> = both.collect();
    all.sort_unstable();
    // What begins with an earlier one stands behind it.
    all.dedup_by(|later, earlier| later.starts_with(*earlier));
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_core::name::SequenceName;
    use odometer_tests::fuzz::check;
    use proptest::collection::vec;

    use super::*;

    #[test]
    fn only_beginnings_that_can_fit_are_looked_through_and_none_twice() {
        for (globs, filter, expected) in [
            (&["b-*", "a"][..], "", &["a", "b-"][..]),
            (&["a*", "ab*", "abc", "b?"], "", &["a", "b"]),
            (&["a*", "ab*", "abc", "b?"], "ab", &["ab"]),
            (&["abc", "abd*"], "ab", &["abc", "abd"]),
            (&["*-eu", "a"], "", &[""]),
            (&["a*"], "b", &[]),
        ] {
            let globs: Vec<Glob> = globs
                .iter()
                .map(|glob| Glob::parse(glob).unwrap())
                .collect();
            assert_eq!(beginnings(&globs, filter), expected, "{globs:?} {filter}");
        }
    }

    /// Each name that fits a glob is looked through once.
    #[test]
    fn fuzz_each_name_that_fits_begins_with_one_of_the_beginnings() {
        let glob = "[ab][ab-]{0,2}([*?]|\\[ab\\]|\\[!a\\])?[ab-]{0,1}[*]?|[*][ab-]{1,2}";
        let inputs = (
            vec(glob, 0..5),
            "([ab][ab-]{0,2})?",
            vec("[ab][ab-]{0,4}", 1..9),
        );
        check(&inputs, 10, |(globs, filter, names)| {
            let globs = globs.iter().filter_map(|glob| Glob::parse(glob).ok());
            let globs: Vec<Glob> = globs.collect();
            let all = beginnings(&globs, &filter);
            assert!(all.is_sorted() && all.iter().all(|one| one.starts_with(&filter)));
            let mut n_fitting = 0;
            for name in names {
                let begins = all.iter().filter(|one| name.starts_with(**one)).count();
                let named = SequenceName::parse(&name).unwrap();
                let fits = name.starts_with(&filter) && globs.iter().any(|glob| glob.fits(&named));
                assert!(begins == 1 || (begins == 0 && !fits), "{name}: {all:?}");
                n_fitting += usize::from(fits);
            }
            n_fitting > 0
        });
    }
}
