//! Writes replies as clients of Redis read them, in the version of the protocol that they chose.

use super::error_line::ErrorLine;

/// Replies that wait to be written, in the order of their commands.
#[derive(Default)]
pub(super) struct Replies {
    bytes: Vec<u8>,
    is_resp3: bool,
    /// How many of the replies are errors.
    n_errors: u64,
}

impl Replies {
    /// Returns whether the client chose RESP3.
    pub(super) fn is_resp3(&self) -> bool {
        self.is_resp3
    }

    /// Writes RESP3 from now on, or RESP2.
    pub(super) fn write_resp3(&mut self, is_resp3: bool) {
        self.is_resp3 = is_resp3;
    }

    /// Returns what waits.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets what waits, because it is written. Keeps memory for `kept` bytes at most.
    pub(super) fn clear(&mut self, kept: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(kept);
    }

    /// Returns how many errors were written since the last call.
    pub(super) fn take_errors(&mut self) -> u64 {
        std::mem::take(&mut self.n_errors)
    }

    /// Writes a word or a short text without line ends.
    pub(super) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Writes an error.
    pub(super) fn error(&mut self, error: &ErrorLine) {
        self.n_errors += 1;
        self.line(b'-', error.text());
    }

    /// Writes a number.
    #[inline]
    pub(super) fn integer(&mut self, number: i64) {
        self.line(b':', itoa::Buffer::new().format(number).as_bytes());
    }

    /// Writes a text of any bytes.
    pub(super) fn bulk(&mut self, text: &[u8]) {
        self.length(b'$', text.len());
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Writes a text for people.
    pub(super) fn verbatim(&mut self, text: &str) {
        if !self.is_resp3 {
            return self.bulk(text.as_bytes());
        }
        const FORM: &[u8] = b"txt:";
        self.length(b'=', FORM.len() + text.len());
        self.bytes.extend_from_slice(FORM);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Writes that there is no value.
    pub(super) fn nothing(&mut self) {
        let nothing: &[u8] = if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" };
        self.bytes.extend_from_slice(nothing);
    }

    /// Writes that there is no list.
    pub(super) fn no_list(&mut self) {
        let nothing: &[u8] = if self.is_resp3 { b"_\r\n" } else { b"*-1\r\n" };
        self.bytes.extend_from_slice(nothing);
    }

    /// Begins a list, to which the next `n` replies belong.
    pub(super) fn list(&mut self, n: usize) {
        self.length(b'*', n);
    }

    /// Begins `n` pairs of a name and a value, which are the next replies.
    pub(super) fn pairs(&mut self, n: usize) {
        match self.is_resp3 {
            true => self.length(b'%', n),
            false => self.length(b'*', 2 * n),
        }
    }

    fn length(&mut self, marker: u8, length: usize) {
        self.line(marker, itoa::Buffer::new().format(length).as_bytes());
    }

    #[inline]
    fn line(&mut self, marker: u8, text: &[u8]) {
        self.bytes.push(marker);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Replies), is_resp3: bool) -> String {
        let mut replies = Replies::default();
        replies.write_resp3(is_resp3);
        write(&mut replies);
        String::from_utf8_lossy(replies.bytes()).into_owned()
    }

    #[test]
    fn each_reply_has_its_form_in_both_versions() {
        type Write = fn(&mut Replies);
        let cases: [(Write, &str, &str); 9] = [
            (|it| it.simple("OK"), "+OK\r\n", "+OK\r\n"),
            (|it| it.integer(-7), ":-7\r\n", ":-7\r\n"),
            (|it| it.bulk(b"a\r\n"), "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n"),
            (|it| it.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (|it| it.verbatim("ab"), "$2\r\nab\r\n", "=6\r\ntxt:ab\r\n"),
            (|it| it.nothing(), "$-1\r\n", "_\r\n"),
            (|it| it.no_list(), "*-1\r\n", "_\r\n"),
            (|it| it.list(2), "*2\r\n", "*2\r\n"),
            (|it| it.pairs(2), "*4\r\n", "%2\r\n"),
        ];
        for (write, resp2, resp3) in cases {
            assert_eq!(written(write, false), resp2);
            assert_eq!(written(write, true), resp3);
        }
    }

    #[test]
    fn an_error_is_one_line_and_is_counted() {
        let mut replies = Replies::default();
        replies.error(&ErrorLine::new("ERR a\r\nb"));
        assert_eq!(replies.bytes(), b"-ERR a  b\r\n");
        assert_eq!((replies.take_errors(), replies.take_errors()), (1, 0));
        replies.clear(0);
        assert!(replies.bytes().is_empty());
    }
}
