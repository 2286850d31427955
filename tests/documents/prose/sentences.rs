//! Splits a block of prose into sentences, and counts their words.

use super::blocks::Block;

/// A sentence, or a text without an end mark that stands for one: a heading, or a cell of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sentence {
    /// The file, and the line where the sentence begins, from 1.
    pub(super) place: String,
    pub(super) text: String,
}

/// Words after which a period ends no sentence, in lower case.
const ABBREVIATIONS: [&str; 5] = ["e.g.", "i.e.", "cf.", "vs.", "approx."];
/// Marks that may stand between the end mark and the space after it.
const CLOSING: [char; 7] = [')', ']', '"', '\'', '”', '’', '*'];
/// Marks that may begin a sentence, other than a capital and a digit.
const OPENING: [char; 9] = ['`', '"', '\'', '“', '‘', '(', '[', '$', '*'];

/// Returns the sentences of a block. A colon, a semicolon and the end of a line end none. A list of
/// names in code is no sentence.
pub(super) fn of(block: &Block) -> Vec<Sentence> {
    let text = &block.text;
    let mut sentences = Vec::new();
    let mut begin = 0;
    for end in ends(text) {
        let whole = text.get(begin..end).unwrap_or_default();
        let before = text.get(..begin).unwrap_or_default();
        let blank = &whole[..whole.len() - whole.trim_start().len()];
        begin = end;
        if !spoken(whole).is_empty() {
            let n_lines = before.matches('\n').count() + blank.matches('\n').count();
            sentences.push(Sentence {
                place: format!("{}:{}", block.file, block.line + n_lines),
                text: whole.trim().to_owned(),
            });
        }
    }
    sentences
}

/// Returns where the sentences of a text end, as offsets of bytes.
fn ends(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut begin = 0;
    let mut code_ends_at = 0;
    for (at, mark) in text.char_indices() {
        let rest = &text[at + mark.len_utf8()..];
        if at < code_ends_at {
            continue;
        }
        if mark == '`' {
            code_ends_at = rest.find('`').map_or(0, |end| at + 1 + end + 1);
        }
        if !matches!(mark, '.' | '?' | '!') {
            continue;
        }
        let after = rest.trim_start_matches(CLOSING);
        let end = text.len() - after.len();
        let next = after.trim_start();
        let sentence = &text[begin..=at];
        let goes_on = mark == '.' && belongs_to_word(sentence, next);
        if next.len() < after.len() && begins(next) && !goes_on {
            found.push(end);
            begin = end;
        }
    }
    found.push(text.len());
    found
}

/// Returns whether a text begins as a sentence does.
fn begins(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|c| c.is_uppercase() || c.is_ascii_digit() || OPENING.contains(&c))
}

/// Returns whether the period at the end of a text belongs to its last word: to an abbreviation, to
/// the initial of a name, or to the number of an item.
fn belongs_to_word(text: &str, next: &str) -> bool {
    let mut words = text.split_whitespace().rev();
    let last = words.next().unwrap_or_default();
    let last = last.trim_start_matches(OPENING);
    let before = words.next();
    let is_number = |word: &str| word.trim_end_matches('.').parse::<u32>().is_ok();
    if ABBREVIATIONS.contains(&last.to_lowercase().as_str()) || before.is_none() && is_number(last)
    {
        return true;
    }
    // A letter by itself is a quantity: "The size is N."
    let is_in_a_name = before.is_none_or(|word| word.starts_with(char::is_uppercase))
        || next.split_whitespace().next().is_some_and(is_initial);
    is_initial(last) && is_in_a_name
}

fn is_initial(word: &str) -> bool {
    let letter = word.strip_suffix('.').unwrap_or_default();
    letter.chars().count() == 1 && letter.chars().all(char::is_uppercase)
}

/// Returns the words of a text. Inline code is one word, and so is all that is joined to it.
pub(super) fn words(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut begin = 0;
    let mut in_code = false;
    for (at, c) in text.char_indices() {
        if c == '`' {
            in_code = !in_code && text[at + 1..].contains('`');
        }
        if !in_code && (c.is_whitespace() || c == '—') {
            found.push(&text[begin..at]);
            begin = at + c.len_utf8();
        }
    }
    found.push(&text[begin..]);
    found.retain(|word| word.contains(char::is_alphanumeric) || word.matches('`').count() > 1);
    found
}

/// Returns the words of a text outside inline code, in lower case and without marks around them.
pub(super) fn spoken(text: &str) -> Vec<String> {
    let words = words(text).into_iter().map(|word| {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '`');
        bare.to_lowercase()
    });
    words.filter(|word| !word.contains('`')).collect()
}

fn split(text: &str) -> Vec<String> {
    let block = Block {
        file: "a".to_owned(),
        line: 1,
        text: text.to_owned(),
    };
    let sentences = of(&block).into_iter();
    sentences.map(|sentence| sentence.text).collect()
}

#[test]
fn end_marks_end_sentences() {
    let three = split("Is it? Yes! It is.");
    assert_eq!(three, ["Is it?", "Yes!", "It is."]);
    let quoted = split("He said \"stop.\" Then (he went.) \"Yes.\" 3 came. `x` did.");
    let wanted = [
        "He said \"stop.\"",
        "Then (he went.)",
        "\"Yes.\"",
        "3 came.",
        "`x` did.",
    ];
    assert_eq!(quoted, wanted);
    assert_eq!(split("No mark"), ["No mark"]);
    assert_eq!(
        split("The size is N. The rest is k."),
        ["The size is N.", "The rest is k."]
    );
    assert_eq!(split("  "), [""; 0]);
    assert_eq!(split("`one` `or two`, — `three`"), [""; 0]);
}

#[test]
fn colons_semicolons_and_lines_end_no_sentence() {
    for whole in [
        "Two things: The one; The other.",
        "A line\ngoes On.",
        "Wait… More",
        "It is slow. or not",
    ] {
        assert_eq!(split(whole), [whole]);
    }
}

#[test]
fn abbreviations_versions_initials_and_code_end_no_sentence() {
    for whole in [
        "Use a server, e.g. MariaDB, or (i.e. PostgreSQL) another.",
        "It is as D. E. Knuth wrote, cf. Sedgewick.",
        "Since MySQL 9.7 and v1.2.3 it runs.",
        "The file a.Txt and `Stop. Now. It` and `x. Y`.",
        "1. Do this",
        "Write to example.com/A.B?C=D!",
    ] {
        assert_eq!(split(whole), [whole]);
    }
    assert_eq!(
        split("It needs 9.7. Then `a. B`. C."),
        ["It needs 9.7.", "Then `a. B`.", "C."]
    );
    // A single backtick is no code.
    assert_eq!(split("A ` here. And there."), ["A ` here.", "And there."]);
}

#[test]
fn each_sentence_has_its_line() {
    let block = Block {
        file: "a".to_owned(),
        line: 7,
        text: "One\nline. Two.\nThree.\n\nFour.".to_owned(),
    };
    let places: Vec<String> = of(&block).into_iter().map(|it| it.place).collect();
    assert_eq!(places, ["a:7", "a:8", "a:9", "a:11"]);
}

#[test]
fn words_are_counted_as_a_reader_counts_them() {
    for (text, n_words) in [
        ("One two three.", 3),
        ("Run `tests/run --all a b` now", 3),
        ("`a b`s, (`c d`) and — none", 4),
        ("A well-kept crate's 10,000 numbers", 5),
        ("here—there", 2),
        ("a\nb / c", 3),
        ("An open ` here is", 4),
        ("– … —", 0),
    ] {
        assert_eq!(words(text).len(), n_words, "{text}: {:?}", words(text));
    }
    let heard = spoken("Mend (it), \"Beside\" `shall we` whose?");
    assert_eq!(heard, ["mend", "it", "beside", "whose"]);
}
