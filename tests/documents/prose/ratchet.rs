//! Compares the findings with the list of sources that are not rewritten yet. The list can only
//! shrink.

use std::collections::BTreeMap;

/// Returns the number of findings of each listed source. A line is a number and a name.
pub(super) fn listed(list: &str) -> BTreeMap<String, usize> {
    let mut sources = BTreeMap::new();
    for line in list.lines() {
        let (number, name) = line.split_once(' ').unwrap_or_default();
        let n_findings = number
            .parse()
            .unwrap_or_else(|_| panic!("no number: {line}"));
        let twice = sources.insert(name.to_owned(), n_findings);
        assert!(twice.is_none() && n_findings > 0, "twice, or zero: {line}");
    }
    sources
}

/// Returns what is wrong with the list, a sentence for each source.
pub(super) fn complaints(
    listed: &BTreeMap<String, usize>,
    found: &BTreeMap<String, usize>,
) -> Vec<String> {
    let gone = listed.keys().filter(|name| !found.contains_key(*name));
    let mut complaints: Vec<String> = gone
        .map(|name| format!("{name} is not there: delete its line from the list"))
        .collect();
    for (name, n_found) in found {
        let n_listed = listed.get(name).copied().unwrap_or_default();
        if *n_found > n_listed {
            complaints.push(format!(
                "{name} has {n_found} findings, of {n_listed} allowed"
            ));
        } else if *n_found == 0 && n_listed > 0 {
            complaints.push(format!(
                "{name} is rewritten: delete its line from the list"
            ));
        } else if *n_found < n_listed {
            complaints.push(format!(
                "{name} has {n_found} findings: lower its {n_listed}"
            ));
        }
    }
    complaints
}

#[test]
fn the_list_of_sources_to_rewrite_can_only_shrink() {
    let listed = listed("3 a.md\n1 b c\n");
    let complain = |numbers: &[(&str, usize)]| {
        let found = numbers.iter().map(|(name, n)| ((*name).to_owned(), *n));
        complaints(&listed, &found.collect())
    };
    assert_eq!(complain(&[("a.md", 3), ("b c", 1), ("d.md", 0)]), [""; 0]);
    for (wrong, told) in [
        (
            [("a.md", 4), ("b c", 1), ("d.md", 0)],
            "a.md has 4 findings, of 3",
        ),
        ([("a.md", 2), ("b c", 1), ("d.md", 0)], "lower its 3"),
        ([("a.md", 0), ("b c", 1), ("d.md", 0)], "a.md is rewritten"),
        (
            [("a.md", 3), ("b c", 1), ("d.md", 1)],
            "d.md has 1 findings, of 0",
        ),
        ([("a.md", 3), ("bc", 0), ("d.md", 0)], "b c is not there"),
    ] {
        let complaints = complain(&wrong);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].contains(told), "{complaints:?}");
    }
}
