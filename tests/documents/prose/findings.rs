//! Finds what is not plain English in the prose of one source.

use std::fmt;

use super::blocks::Block;
use super::sentences::{self, Sentence};

/// The most words of a sentence.
const MAX_WORDS: usize = 30;
/// The most words of the median sentence of a source.
const MAX_MEDIAN: usize = 15;
/// The fewest words that count for the median. Names in headings and cells would lower the median.
const MIN_WORDS: usize = 4;
/// The fewest sentences of a document that must say "you" to the reader.
const MIN_SENTENCES: usize = 20;

/// Words of law and of old books, with their forms.
const BANNED_WORDS: [&str; 23] = [
    "whoever", "beside", "anew", "mend", "mends", "mended", "mending", "heed", "heeds", "heeded",
    "heeding", "bear", "bears", "bore", "borne", "bearing", "thereof", "shall", "lest", "hence",
    "thereby", "thus", "wherein",
];
const BANNED_PHRASES: [&str; 1] = ["of late"];
/// Words with which "be" is plain English: "whose id must be short".
const BEFORE_BE: [&str; 10] = [
    "to", "can", "cannot", "could", "may", "might", "must", "should", "will", "would",
];
const YOU: [&str; 4] = ["you", "your", "yours", "yourself"];

/// A place that is to be rewritten.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Finding {
    /// The file and the line, or the source, if the finding is about all of it.
    pub(super) place: String,
    pub(super) kind: Kind,
}

/// What is wrong at a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    LongSentence { n_words: usize, sentence: String },
    BannedWord(String),
    HighMedian { median: usize },
    NoYou,
}

/// What was counted in one source.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Prose {
    /// The number of words of each sentence with at least [`MIN_WORDS`].
    pub(super) lengths: Vec<usize>,
    pub(super) findings: Vec<Finding>,
}

impl Prose {
    /// Checks the blocks of one source. A source that speaks to a reader must say "you".
    pub(super) fn of(name: &str, blocks: &[Block], speaks_to_a_reader: bool) -> Self {
        let sentences: Vec<Sentence> = blocks.iter().flat_map(sentences::of).collect();
        let lengths = sentences.iter().map(|it| sentences::words(&it.text).len());
        let lengths: Vec<usize> = lengths.filter(|length| *length >= MIN_WORDS).collect();
        let median = median(&lengths);

        let mut kinds = Vec::new();
        if median > MAX_MEDIAN {
            kinds.push(Kind::HighMedian { median });
        }
        if speaks_to_a_reader && lengths.len() >= MIN_SENTENCES && !sentences.iter().any(says_you) {
            kinds.push(Kind::NoYou);
        }
        let place = name.to_owned();
        let of_all = kinds.into_iter().map(|kind| Finding {
            place: place.clone(),
            kind,
        });
        let findings = sentences.iter().flat_map(of_sentence).chain(of_all);
        Self {
            findings: findings.collect(),
            lengths,
        }
    }
}

/// Returns the median, the upper one of two.
pub(super) fn median(lengths: &[usize]) -> usize {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        match &self.kind {
            Kind::LongSentence { n_words, sentence } => {
                let begin: Vec<&str> = sentence.split_whitespace().take(8).collect();
                write!(f, "{n_words} words: {} …", begin.join(" "))
            }
            Kind::BannedWord(word) => write!(f, "`{word}` is no plain English"),
            Kind::HighMedian { median } => write!(f, "the median sentence has {median} words"),
            Kind::NoYou => f.write_str("nothing says \"you\" to the reader"),
        }
    }
}

fn says_you(sentence: &Sentence) -> bool {
    let words = sentences::spoken(&sentence.text);
    words.iter().any(|word| YOU.contains(&word.as_str()))
}

fn of_sentence(sentence: &Sentence) -> Vec<Finding> {
    let n_words = sentences::words(&sentence.text).len();
    let mut kinds: Vec<Kind> = Vec::new();
    if n_words > MAX_WORDS {
        kinds.push(Kind::LongSentence {
            n_words,
            sentence: sentence.text.clone(),
        });
    }
    kinds.extend(banned(&sentence.text).into_iter().map(Kind::BannedWord));
    let findings = kinds.into_iter().map(|kind| Finding {
        place: sentence.place.clone(),
        kind,
    });
    findings.collect()
}

/// Returns the banned words and phrases of a sentence.
fn banned(sentence: &str) -> Vec<String> {
    let words = sentences::spoken(sentence);
    let is_banned = |word: &&String| BANNED_WORDS.contains(&word.as_str());
    let mut found: Vec<String> = words.iter().filter(is_banned).cloned().collect();
    let text = format!(" {} ", words.join(" "));
    for phrase in BANNED_PHRASES {
        if text.contains(&format!(" {phrase} ")) {
            found.push(phrase.to_owned());
        }
    }
    for clause in sentence.split([',', ';', ':']) {
        let words = sentences::spoken(clause);
        if has_whose_be(&words) {
            found.push("whose … be".to_owned());
        }
        if has_so_that_may(&words) {
            found.push("so that … may".to_owned());
        }
    }
    found
}

fn has_whose_be(words: &[String]) -> bool {
    let after = words.iter().skip_while(|word| *word != "whose");
    let between: Vec<&String> = after.clone().take_while(|word| *word != "be").collect();
    let plain = between.iter().any(|it| BEFORE_BE.contains(&it.as_str()));
    after.count() > between.len() && !plain
}

fn has_so_that_may(words: &[String]) -> bool {
    let mut pairs = words.windows(2);
    let at = pairs.position(|pair| pair.concat() == "sothat");
    at.is_some_and(|at| words.iter().skip(at).any(|word| word == "may"))
}
