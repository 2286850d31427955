//! Finds heads of requests in the bytes that come on a connection.

/// The most heads that are handed out together. actix keeps as many requests of a connection.
pub(crate) const MAX_TOGETHER: usize = 16;

/// The start of the lines by which a request announces a body.
const ANNOUNCEMENTS: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];

/// Finds the ends of heads that come in parts.
#[derive(Default)]
pub(crate) struct HeadFinder {
    /// The last two bytes of the part before.
    before: [u8; 2],
    /// Whether the head began in a part before.
    has_begun: bool,
}

/// Whole heads at the start of some bytes. The first may have begun earlier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Heads {
    pub(crate) n_bytes: usize,
    pub(crate) count: usize,
}

impl HeadFinder {
    /// Returns the heads at the start of `part`, at most `most` of them, or `None` if no head ends
    /// there.
    ///
    /// A head that may announce a body is the last, because its body follows.
    pub(crate) fn find(&mut self, part: &[u8], most: usize) -> Option<Heads> {
        let was_cut = self.has_begun;
        let Some(mut n_bytes) = self.end(part) else {
            self.has_begun |= !part.is_empty();
            return None;
        };
        self.has_begun = false;
        let mut count = 1;
        let mut last = part.get(..n_bytes).filter(|_| !was_cut);
        while count < most {
            let later = part.get(n_bytes..).unwrap_or_default();
            if later.is_empty() || last.is_none_or(announces_body) {
                break;
            }
            let Some(end) = Self::default().end(later) else {
                break;
            };
            last = later.get(..end);
            n_bytes += end;
            count += 1;
        }
        Some(Heads { n_bytes, count })
    }

    /// Returns the position in `part` right after the first end of a head: an empty line, or what
    /// looks like one.
    fn end(&mut self, part: &[u8]) -> Option<usize> {
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

/// Returns whether a line of this head looks as if it announced a body.
fn announces_body(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', head).any(|at| {
        let line = head.get(at + 1..).unwrap_or_default();
        ANNOUNCEMENTS.iter().any(|start| {
            line.get(..start.len())
                .is_some_and(|line| line.eq_ignore_ascii_case(start))
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost:\r\n\r\n";

    fn end(finder: &mut HeadFinder, part: &[u8]) -> Option<usize> {
        finder.find(part, 1).map(|heads| heads.n_bytes)
    }

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
            let found = end(&mut HeadFinder::default(), bytes.as_bytes());
            assert_eq!(found, expected, "{bytes:?}");
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
                let mut finder = HeadFinder::default();
                assert_eq!(end(&mut finder, first), None, "cut at {cut}");
                let found = end(&mut finder, second);
                assert_eq!(found, Some(head.len() - cut), "cut at {cut}");
            }
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_in_single_bytes() {
        let mut finder = HeadFinder::default();
        let found: Vec<_> = HEAD.iter().map(|byte| end(&mut finder, &[*byte])).collect();
        let at = found.iter().position(Option::is_some);
        assert_eq!(at, Some(HEAD.len() - 1));
    }

    #[test]
    fn whole_heads_are_found_together_up_to_one_that_announces_a_body() {
        let with_body = b"POST / HTTP/1.1\r\ncontent-LENGTH: 25\r\n\r\n";
        let chunked = b"POST / HTTP/1.1\nTransfer-Encoding: chunked\n\n";
        let part = [HEAD, HEAD, with_body, HEAD, HEAD].concat();
        let found = HeadFinder::default().find(&part, 16).unwrap();
        let n_bytes = 2 * HEAD.len() + with_body.len();
        assert_eq!(found, Heads { n_bytes, count: 3 });
        let part = [chunked, HEAD].concat();
        let found = HeadFinder::default().find(&part, 16).unwrap();
        assert_eq!(found.n_bytes, chunked.len());
        // The last head is cut, and stays for later.
        let part = HEAD.repeat(4);
        let (cut, _last) = part.split_at(part.len() - 1);
        let found = HeadFinder::default().find(cut, 16);
        assert_eq!(found.unwrap().count, 3);
        assert_eq!(HeadFinder::default().find(&part, 2).unwrap().count, 2);
    }

    /// What was read before may have announced a body.
    #[test]
    fn a_head_that_began_earlier_is_found_alone() {
        for cut in 1..HEAD.len() {
            let mut finder = HeadFinder::default();
            let both = HEAD.repeat(2);
            let (first, second) = both.split_at(cut);
            assert_eq!(finder.find(first, 16), None);
            assert_eq!(finder.find(second, 16).unwrap().count, 1, "cut at {cut}");
            assert_eq!(finder.find(&both, 16).unwrap().count, 2, "cut at {cut}");
        }
    }
}
