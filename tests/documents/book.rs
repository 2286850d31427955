//! Tests that the book has every document, and that each of its pages leads back to the index.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use super::markdown::Document;
use crate::support::{directory, settings};

const FOLDER: &str = "docs";
const SUMMARY: &str = "docs/SUMMARY.md";
const INDEX: &str = "docs/index.md";
/// The script that makes the book, the start of its line that copies the documents, and the word
/// for the folder of the copy.
const SCRIPT: &str = "release/book";
const COPY: &str = "cp --parents -R ";
const COPIED_TO: &str = "\"$source/\"";
/// The documents in the root that people look for first.
const IN_THE_ROOT: [&str; 4] = [
    "GUARANTEES.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
];

/// Returns the documents of a folder to which a document links.
fn linked_in(path: &str) -> BTreeSet<PathBuf> {
    let document = Document::read(path);
    let folder = document.path.parent().expect("a document has a folder");
    let files = document
        .links()
        .into_iter()
        .map(|link| link.split('#').next().unwrap_or_default());
    files.map(|file| folder.join(file)).collect()
}

/// Returns the documents of the book, without its summary.
fn documents_of_the_book() -> Vec<Document> {
    let mut documents = Document::all();
    documents.retain(|it| it.path.starts_with(FOLDER) && it.path != Path::new(SUMMARY));
    assert!(documents.len() >= 60, "vacuous: {}", documents.len());
    documents
}

#[test]
fn the_summary_of_the_book_has_every_document() {
    let listed = linked_in(SUMMARY);
    for document in documents_of_the_book() {
        let path = &document.path;
        assert!(listed.contains(path), "{} is not listed", path.display());
    }
}

#[test]
fn the_index_and_the_pages_of_the_book_lead_to_each_other() {
    let listed = linked_in(INDEX);
    for document in documents_of_the_book() {
        let path = &document.path;
        // The decisions are a folder of their own.
        let is_page = path.parent() == Some(Path::new(FOLDER));
        if !is_page || path == Path::new(INDEX) {
            continue;
        }
        assert!(listed.contains(path), "{} is not listed", path.display());
        let leads_back = document.links().contains(&"index.md");
        assert!(leads_back, "{} does not lead back", path.display());
    }
}

#[test]
fn the_book_has_every_file_that_a_document_links_to() {
    let script = std::fs::read_to_string(settings::repository().join(SCRIPT));
    let script = script.expect("the script is there");
    let copy = script.lines().find(|line| line.starts_with(COPY));
    let copy = copy
        .expect("the script copies")
        .replace(COPIED_TO, "\"$1\"");
    let book = directory("book");
    let copied = Command::new("bash")
        .args(["-euc", &copy, SCRIPT])
        .arg(book.path())
        .current_dir(settings::repository())
        .status();
    assert!(copied.is_ok_and(|status| status.success()), "{copy}");
    let mut n_links = 0;
    for document in Document::all() {
        let folder = document.path.parent().expect("a document has a folder");
        for link in document.links() {
            let file = link.split('#').next().unwrap_or_default();
            let target = book.path().join(folder).join(file);
            let is_there = link.starts_with("https://") || target.exists();
            assert!(is_there, "{link} of {}", document.path.display());
            n_links += 1;
        }
    }
    assert!(n_links >= 500, "vacuous: {n_links} links");
}

#[test]
fn the_readme_and_the_index_lead_to_the_documents_in_the_root() {
    let links = [("", "README.md"), ("../", INDEX), ("../", SUMMARY)];
    for (way, path) in links {
        let document = Document::read(path);
        for name in IN_THE_ROOT {
            let link = format!("{way}{name}");
            let is_there = document.links().contains(&link.as_str());
            assert!(is_there, "{path} does not lead to {name}");
        }
    }
}
