//! Tests that everything that a user reads is plain English. Sentences are short, banned words are
//! not used, and documents speak to their reader.

use std::collections::BTreeMap;
use std::path::Path;

use findings::{Kind, Prose};

mod blocks;
mod findings;
mod literals;
mod ratchet;
mod sentences;
mod sources;

/// The sources that are not rewritten yet, each with its number of findings.
const TO_REWRITE: &str = "tests/documents/prose/to_rewrite.txt";

/// Prints every finding, which a run with `--nocapture` shows.
#[test]
fn everything_that_a_user_reads_is_plain_english() {
    let mut found = BTreeMap::new();
    let mut lengths = Vec::new();
    for source in sources::all() {
        let name = source.name;
        let prose = Prose::of(&name, &source.blocks, source.speaks_to_a_reader);
        for finding in &prose.findings {
            println!("{finding}");
        }
        print_counts(&name, prose.findings.len(), &prose.lengths);
        found.insert(name, prose.findings.len());
        lengths.extend(prose.lengths);
    }
    print_counts("everything", found.values().sum(), &lengths);
    assert!(lengths.len() >= 5_000, "vacuous: {}", lengths.len());
    let list = sources::read(Path::new(TO_REWRITE));
    let complaints = ratchet::complaints(&ratchet::listed(&list), &found);
    assert!(
        complaints.is_empty(),
        "{}\nThe findings are printed above. The list is {TO_REWRITE}.",
        complaints.join("\n")
    );
}

fn print_counts(name: &str, n_findings: usize, lengths: &[usize]) {
    let (n_sentences, median) = (lengths.len(), findings::median(lengths));
    println!("{name}: {n_findings} findings, {n_sentences} sentences, median {median} words");
}

/// Returns the kinds of findings in a document that speaks to a reader.
fn kinds_in(text: &str) -> Vec<Kind> {
    let prose = Prose::of("a.md", &blocks::of_markdown("a.md", text), true);
    prose.findings.into_iter().map(|it| it.kind).collect()
}

#[test]
fn a_bad_text_is_found() {
    let banned = |word: &str| Kind::BannedWord(word.to_owned());
    let long = format!("It is {}so.\n", "very ".repeat(28));
    let found = kinds_in(&long);
    assert!(
        matches!(
            &found[..],
            [
                Kind::LongSentence { n_words: 31, .. },
                Kind::HighMedian { median: 31 }
            ]
        ),
        "{found:?}"
    );
    // A cell of a table counts, and a semicolon ends no sentence.
    let cell = format!("| A |\n|---|\n| it is {}; so it is |\n", "very ".repeat(28));
    assert!(matches!(
        kinds_in(&cell)[0],
        Kind::LongSentence { n_words: 33, .. }
    ));
    let whole = format!(
        "{}{}",
        "You see.\n",
        "It has a `long`, but plain and clear, sentence here.\n".repeat(21)
    );
    assert_eq!(kinds_in(&whole), []);
    assert_eq!(kinds_in(&whole.replace("You", "We")), [Kind::NoYou]);
    let middling = "It is a sentence of sixteen words, and that is one word more than is good.\n";
    assert_eq!(kinds_in(middling), [Kind::HighMedian { median: 16 }]);

    for (text, word) in [
        ("Whoever reads is here.", "whoever"),
        ("It lies beside (and **not** under) a file.", "beside"),
        ("Start it anew.", "anew"),
        ("It mends a name.", "mends"),
        ("Heed the log.", "heed"),
        ("It bears a name.", "bears"),
        ("It was slow of\nlate.", "of late"),
        ("The name thereof is long.", "thereof"),
        ("You shall not pass.", "shall"),
        ("Stop it, lest it repeats.", "lest"),
        ("Hence it is so.", "hence"),
        ("It is thereby so.", "thereby"),
        ("A name whose owner be gone.", "whose … be"),
        ("Stop it so that it may rest.", "so that … may"),
    ] {
        assert_eq!(kinds_in(text), [banned(word)], "{text}");
    }
    for plain in [
        "Besides, a bearer token is here.",
        "The option `beside` is set with `shall not`.",
        "A name whose owner must be there.",
        "A name whose owner is there, so it can be seen.",
        "It stops so that it can rest, and may start again.",
    ] {
        assert_eq!(kinds_in(plain), [], "{plain}");
    }
}
