//! Tests that a name means one type in a crate, private types included.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::parsed;

/// Names that several types of a crate share, and why.
const EXCEPTIONS: [(&str, &[&str], &str); 2] = [
    (
        "entity",
        &["Model", "Relation"],
        "SeaORM asks for these names in the module of each table",
    ),
    (
        "migration",
        &["Migrator"],
        "the build with faults has a step more",
    ),
];

#[test]
fn no_two_types_of_a_crate_have_one_name() {
    let mut n_types = 0;
    for folder in parsed::CRATES {
        let sources = parsed::crate_in(folder);
        let mut files_of = BTreeMap::<&str, Vec<&PathBuf>>::new();
        for source in sources.values() {
            for name in &source.types {
                files_of.entry(name).or_default().push(&source.file);
            }
        }
        n_types += files_of.len();
        files_of.retain(|_, files| files.len() > 1);
        let exceptions = EXCEPTIONS.iter().find(|(of, ..)| *of == folder);
        for name in exceptions.map_or(&[][..], |(_, names, _)| names) {
            let was_doubled = files_of.remove(name).is_some();
            assert!(was_doubled, "{folder}: `{name}` is no exception any more");
        }
        assert!(files_of.is_empty(), "{folder}: {files_of:#?}");
    }
    assert!(n_types > 500, "vacuous: {n_types} types");
}

#[test]
fn types_are_seen_however_private_and_those_of_functions_and_tests_are_not() {
    let text = "struct A; pub(crate) enum B {} trait C {} type D = A; mod inner { union E { a: u8 } } \
                fn f() { struct Local; } #[cfg(test)] mod tests { struct OfTests; } \
                #[cfg(all(test, not(loom)))] struct AlsoOfTests; impl T for A { type Associated = u8; }";
    let parsed = syn::parse_file(text).expect("it parses");
    let types = parsed::source_of(&parsed, &[]).types;
    assert_eq!(types, ["A", "B", "C", "D", "E"]);
}
