//! Finds where the head of a request ends.

/// Finds the end of a head that comes in parts.
#[derive(Default)]
pub(crate) struct EndOfHead {
    /// The last two bytes of the part before.
    before: [u8; 2],
}

impl EndOfHead {
    /// Returns the position in `part` right after the first end of a head: an empty line, or what
    /// looks like one.
    pub(crate) fn find(&mut self, part: &[u8]) -> Option<usize> {
        let end = match (self.before, part) {
            ([_, b'\n'] | [b'\n', b'\r'], [b'\n', ..]) => Some(1),
            ([_, b'\n'], [b'\r', b'\n', ..]) => Some(2),
            _ => memchr::memchr_iter(b'\n', part).find_map(|at| match part.get(at + 1..)? {
                [b'\n', ..] => Some(at + 2),
                [b'\r', b'\n', ..] => Some(at + 3),
                _ => None,
            }),
        };
        self.before = match (end, part) {
            (None, [.., first, last]) => [*first, *last],
            (None, [last]) => [self.before[1], *last],
            _ => [0; 2],
        };
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost:\r\n\r\n";

    #[test]
    fn the_end_of_a_head_is_found_however_its_lines_end() {
        for (bytes, expected) in [
            ("GET / HTTP/1.1\r\nHost:\r\n\r\nGET", Some(25)),
            ("GET / HTTP/1.1\r\nHost:\r\n\r\n", Some(25)),
            ("GET / HTTP/1.1\nHost:\n\nGET", Some(22)),
            ("GET / HTTP/1.1\r\nHost:\r\n", None),
            ("GET / HTTP/1.1\r\nHost:\r\n\r", None),
            ("", None),
        ] {
            let end = EndOfHead::default().find(bytes.as_bytes());
            assert_eq!(end, expected, "{bytes:?}");
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_wherever_it_is_cut_in_two() {
        for head in [
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            "GET / HTTP/1.1\nHost:\n\n",
        ] {
            let both = head.repeat(2);
            for (cut, _) in head.char_indices() {
                let (first, second) = both.as_bytes().split_at(cut);
                let mut end = EndOfHead::default();
                assert_eq!(end.find(first), None, "cut at {cut}");
                assert_eq!(end.find(second), Some(head.len() - cut), "cut at {cut}");
            }
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_in_single_bytes() {
        let mut end = EndOfHead::default();
        let found: Vec<_> = HEAD.iter().map(|byte| end.find(&[*byte])).collect();
        let at = found.iter().position(Option::is_some);
        assert_eq!(at, Some(HEAD.len() - 1));
    }
}
