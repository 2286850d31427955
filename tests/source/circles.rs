//! Tests that few files import one another in a circle, because such files can only be read
//! together.

use std::collections::{BTreeMap, BTreeSet};

use super::parsed::{self, ModulePath, Source};

/// The most files that may import one another, directly or by way of others.
const MAX_FILES: usize = 4;

type Imports = BTreeMap<ModulePath, BTreeSet<ModulePath>>;

#[test]
fn at_most_four_files_of_a_crate_import_one_another() {
    let mut n_imports = 0;
    for folder in parsed::CRATES {
        let sources = parsed::crate_in(folder);
        let imports = imports(&sources);
        n_imports += imports.values().map(BTreeSet::len).sum::<usize>();
        for circle in circles(&imports) {
            let files = circle.iter().map(|module| &sources[module].file);
            let files: Vec<_> = files.collect();
            assert!(files.len() <= MAX_FILES, "{folder}: {files:#?}");
        }
    }
    assert!(n_imports > 500, "vacuous: {n_imports} imports");
}

#[test]
fn a_circle_of_five_files_is_found_out() {
    let chain = ["a", "b", "c", "d", "e"];
    let mut sources = BTreeMap::new();
    sources.insert(
        ModulePath::new(),
        source("mod a; mod b; mod c; mod d; mod e;", &[]),
    );
    for (k, name) in chain.iter().enumerate() {
        let next = chain[(k + 1) % chain.len()];
        let text = match k {
            0 => format!("use crate::{{{next}::Thing, a}};"),
            1 => format!("pub(crate) use super::{next}::Thing as Other;"),
            2 => format!("fn f() {{ let _ = crate::{next}::thing(); }}"),
            3 => format!("#[cfg(test)] mod tests {{ use crate::a; }} use super::{next}::*;"),
            _ => format!("impl From<super::{next}::Thing> for Of {{}} use std::fmt;"),
        };
        let module = vec![(*name).to_owned()];
        sources.insert(module.clone(), source(&text, &module));
    }
    // `b` only re-exports a name and imports nothing, so there is no circle.
    assert_eq!(
        circles(&imports(&sources)),
        Vec::<BTreeSet<ModulePath>>::new()
    );
    let module = vec!["b".to_owned()];
    sources.insert(module.clone(), source("use crate::c::Thing;", &module));
    let found = circles(&imports(&sources));
    assert_eq!(found.iter().map(BTreeSet::len).collect::<Vec<_>>(), [5]);
}

fn source(text: &str, module: &[String]) -> Source {
    parsed::source_of(&syn::parse_file(text).expect("it parses"), module)
}

/// Returns the files that each file imports.
fn imports(sources: &BTreeMap<ModulePath, Source>) -> Imports {
    let of = |(module, source): (&ModulePath, &Source)| {
        let files = source.names.iter();
        let files = files.filter_map(|name| file_of(sources, name, 0));
        let others = files.filter(|file| file != module).collect();
        (module.clone(), others)
    };
    sources.iter().map(of).collect()
}

/// Returns the file that defines what a path names. Files that only re-export the name are passed
/// over.
fn file_of(
    sources: &BTreeMap<ModulePath, Source>,
    path: &[String],
    depth: usize,
) -> Option<ModulePath> {
    let (module, rest) = (0..=path.len())
        .rev()
        .map(|n| path.split_at(n))
        .find(|(module, _)| sources.contains_key(*module))?;
    let given_on = rest
        .first()
        .and_then(|name| sources[module].reexports.get(name));
    match given_on {
        Some(target) if depth < 10 => {
            let target: ModulePath = target.iter().chain(&rest[1..]).cloned().collect();
            file_of(sources, &target, depth + 1)
        }
        Some(_) | None => Some(module.to_vec()),
    }
}

/// Returns the sets of files in which each file imports all others, in one step or in several.
fn circles(imports: &Imports) -> Vec<BTreeSet<ModulePath>> {
    let reached: Imports = imports
        .keys()
        .map(|from| (from.clone(), reached_from(from, imports)))
        .collect();
    let circle_of = |file: &ModulePath| -> BTreeSet<ModulePath> {
        let others = reached[file].iter();
        let back = others.filter(|other| reached[*other].contains(file));
        back.cloned().collect()
    };
    let circles: BTreeSet<BTreeSet<ModulePath>> = imports.keys().map(circle_of).collect();
    circles.into_iter().filter(|one| one.len() > 1).collect()
}

fn reached_from(from: &ModulePath, imports: &Imports) -> BTreeSet<ModulePath> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in &imports[file] {
            if reached.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    reached
}
