//! Reads the texts between quotes in our sources of Rust and JavaScript.

/// Stands for a value that is only known when the text is shown.
pub(super) const VALUE: &str = "Xx";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Language {
    Rust,
    JavaScript,
}

/// A text between quotes, and the line where it begins.
pub(super) struct Literal {
    pub(super) line: usize,
    pub(super) text: String,
}

/// Returns the texts with a space in them, each with its line. Users do not see texts in comments,
/// and in the tests at the end of a file.
pub(super) fn texts_of(source: &str, language: Language) -> Vec<Literal> {
    let shown = source.split("\nmod tests {").next().unwrap_or_default();
    let mut scanner = Scanner::of(shown, language);
    scanner.scan_code(false);
    let mut found = scanner.found;
    found.retain(|literal| literal.text.trim().contains(' '));
    found
}

struct Scanner {
    characters: Vec<char>,
    at: usize,
    line: usize,
    language: Language,
    found: Vec<Literal>,
}

impl Scanner {
    fn of(source: &str, language: Language) -> Self {
        Self {
            characters: source.chars().collect(),
            at: 0,
            line: 1,
            language,
            found: Vec::new(),
        }
    }

    /// Returns the character that is `ahead` characters further on, or a zero at the end.
    fn peek(&self, ahead: usize) -> char {
        self.characters
            .get(self.at + ahead)
            .copied()
            .unwrap_or('\0')
    }

    fn next(&mut self) -> char {
        let next = self.peek(0);
        self.at += 1;
        self.line += usize::from(next == '\n');
        next
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.characters.len()
    }

    fn is_at(&self, text: &str) -> bool {
        let mut expected = text.chars().enumerate();
        expected.all(|(ahead, character)| self.peek(ahead) == character)
    }

    fn skip_to(&mut self, end: &str) {
        while !self.is_at_end() && !self.is_at(end) {
            self.next();
        }
        for _ in end.chars() {
            self.next();
        }
    }

    /// Reads code up to its end, or up to the brace that closes a value in a text.
    fn scan_code(&mut self, ends_at_brace: bool) {
        let mut depth = 0_usize;
        let mut before = '\0';
        while !self.is_at_end() {
            let is_rust = self.language == Language::Rust;
            let here = self.peek(0);
            let n_hashes = self.hashes_of_raw_text(before);
            match here {
                '/' if self.is_at("//") => self.skip_to("\n"),
                '/' if self.is_at("/*") => self.skip_to("*/"),
                '/' if !is_rust && "(,=:[!&|?{};\0".contains(before) => self.skip_pattern(),
                'r' if n_hashes.is_some() => self.scan_raw(n_hashes.unwrap_or_default()),
                '\'' if is_rust => self.skip_character(),
                '"' => self.scan_text(),
                '\'' | '`' if !is_rust => self.scan_text(),
                '}' if ends_at_brace && depth == 0 => {
                    self.next();
                    return;
                }
                _ => {
                    depth =
                        depth + usize::from(here == '{') - usize::from(here == '}' && depth > 0);
                    self.next();
                }
            }
            if !here.is_whitespace() {
                before = here;
            }
        }
    }

    /// Returns the number of hashes, if a raw text begins here.
    fn hashes_of_raw_text(&self, before: char) -> Option<usize> {
        let joined = before.is_alphanumeric() || before == '_';
        let previous = self
            .at
            .checked_sub(1)
            .and_then(|at| self.characters.get(at));
        if self.language != Language::Rust || joined && previous == Some(&before) {
            return None;
        }
        let mut n_hashes = 0;
        while self.peek(1 + n_hashes) == '#' {
            n_hashes += 1;
        }
        (self.peek(0) == 'r' && self.peek(1 + n_hashes) == '"').then_some(n_hashes)
    }

    fn scan_raw(&mut self, n_hashes: usize) {
        let line = self.line;
        for _ in 0..n_hashes + 2 {
            self.next();
        }
        let begin = self.at;
        let end = format!("\"{}", "#".repeat(n_hashes));
        self.skip_to(&end);
        let end = (self.at - end.len()).min(self.characters.len());
        let text: String = self.characters[begin..end].iter().collect();
        self.found.push(Literal { line, text });
    }

    /// Skips a regular expression.
    fn skip_pattern(&mut self) {
        self.next();
        let mut in_class = false;
        while !self.is_at_end() && self.peek(0) != '\n' {
            match self.next() {
                '\\' => {
                    self.next();
                }
                '[' => in_class = true,
                ']' => in_class = false,
                '/' if !in_class => return,
                _ => {}
            }
        }
    }

    /// Skips a character between two quotes, or the quote of a lifetime.
    fn skip_character(&mut self) {
        self.next();
        if self.peek(0) == '\\' {
            self.next();
            self.next();
            self.skip_to("'");
        } else if self.peek(1) == '\'' {
            self.next();
            self.next();
        }
    }

    fn scan_text(&mut self) {
        let line = self.line;
        let quote = self.next();
        let mut text = String::new();
        loop {
            assert!(!self.is_at_end(), "the text of line {line} is open");
            let next = self.next();
            match next {
                _ if next == quote => break,
                '\\' => self.scan_escape(&mut text),
                '$' if quote == '`' && self.peek(0) == '{' => {
                    self.next();
                    self.scan_code(true);
                    text.push_str(VALUE);
                }
                '{' if self.language == Language::Rust => self.scan_value(&mut text),
                _ => text.push(next),
            }
        }
        self.found.push(Literal { line, text });
    }

    fn scan_escape(&mut self, text: &mut String) {
        match self.next() {
            'n' => text.push('\n'),
            '\n' => {
                while self.peek(0).is_whitespace() && !self.is_at_end() {
                    self.next();
                }
            }
            escaped => text.push(escaped),
        }
    }

    /// Reads a value of a format, which ends at a brace. Two braces are no value.
    fn scan_value(&mut self, text: &mut String) {
        let ahead = (0..).take_while(|ahead| !"}\"\0".contains(self.peek(*ahead)));
        let n_inside = ahead.count();
        if self.peek(0) == '{' || self.peek(n_inside) != '}' {
            text.push('{');
            return;
        }
        for _ in 0..=n_inside {
            self.next();
        }
        text.push_str(VALUE);
    }
}

fn seen(source: &str, language: Language) -> Vec<(usize, String)> {
    let found = texts_of(source, language).into_iter();
    found.map(|literal| (literal.line, literal.text)).collect()
}

#[test]
fn texts_of_rust_are_found() {
    let source = "// \"no comment\"\nfn f<'a>(x: &'a str) { let c = '\"';\n\
                  g(\"one \\\"two\\\"\", '\\''); h(r#\"raw \"text\" here\"#, \"{x} of {} is \\\n\
                  \x20     left\", \"short\"); }\n\
                  #[error(\"the name `{0}` is used\")]\n#[cfg(test)]\nmod tests {\n\"of tests\"\n}\n";
    let wanted = [
        (3, "one \"two\"".to_owned()),
        (3, "raw \"text\" here".to_owned()),
        (3, "Xx of Xx is left".to_owned()),
        (5, "the name `Xx` is used".to_owned()),
    ];
    assert_eq!(seen(source, Language::Rust), wanted);
}

#[test]
fn texts_of_javascript_are_found() {
    let source = "/* 'no comment' */ const a = 'it isn\\'t so';\nb(/[\"'/]'/, \"two words\");\n\
                  c(`of ${d ? `${e} inner ones` : { f: 1 }.f} outer`, g / h, 'i / j');\n";
    let wanted = [
        (1, "it isn't so".to_owned()),
        (2, "two words".to_owned()),
        (3, "Xx inner ones".to_owned()),
        (3, "of Xx outer".to_owned()),
        (3, "i / j".to_owned()),
    ];
    assert_eq!(seen(source, Language::JavaScript), wanted);
}
