//! Remembers the last command for numbers, because the next one is usually the same.

use std::borrow::Cow;

use super::key_rules::KeyTarget;

/// The most bytes of a command that is remembered. Connections keep their memory for it.
const MAX_REMEMBERED: usize = 256;

/// The last command for numbers that was answered from memory, on one connection.
#[derive(Default)]
pub(super) struct LastTake {
    /// As it came; empty if there is none.
    command: Vec<u8>,
    name: String,
    period: Option<String>,
    n: u64,
}

impl LastTake {
    /// Remembers a command for `n` numbers, and where its key leads. A long command is not
    /// remembered.
    pub(super) fn remember(&mut self, command: &[u8], target: KeyTarget<'_>, n: u64) {
        self.command.clear();
        if command.len() > MAX_REMEMBERED {
            return;
        }
        // As much memory as the longest one needs, and not twice that.
        self.command.reserve_exact(command.len());
        self.command.extend_from_slice(command);
        target.name.as_ref().clone_into(&mut self.name);
        self.period = target.period.map(Cow::into_owned);
        self.n = n;
    }

    /// Returns where the key leads.
    #[inline]
    pub(super) fn target(&self) -> KeyTarget<'_> {
        KeyTarget {
            name: Cow::Borrowed(&self.name),
            period: self.period.as_deref().map(Cow::Borrowed),
        }
    }

    /// Returns how many numbers the command is for.
    #[inline]
    pub(super) fn n(&self) -> u64 {
        self.n
    }

    /// Returns how many bytes the command has; 0 if there is none.
    #[inline]
    pub(super) fn n_bytes(&self) -> usize {
        self.command.len()
    }

    /// Returns how often the command stands at the beginning of `input`, at most `max` times.
    ///
    /// What begins with a whole command is that command, whatever follows.
    #[inline]
    pub(super) fn count_in(&self, input: &[u8], max: usize) -> usize {
        let command = self.command.as_slice();
        if command.is_empty() {
            return 0;
        }
        let parts = input.chunks_exact(command.len()).take(max);
        parts.take_while(|part| *part == command).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads_to<'a>(name: &'a str, period: Option<&'a str>) -> KeyTarget<'a> {
        KeyTarget {
            name: Cow::Borrowed(name),
            period: period.map(Cow::Borrowed),
        }
    }

    #[test]
    fn the_same_command_is_counted_as_often_as_it_came_whole() {
        let mut last = LastTake::default();
        assert_eq!(last.count_in(b"", 9), 0);
        assert_eq!(last.count_in(b"INCR a\n", 9), 0);
        last.remember(b"INCR a\n", leads_to("a", None), 1);
        for (input, n_times) in [
            (&b"INCR a\nINCR a\nINCR a"[..], 2),
            (b"INCR a\nINCR b\nINCR a\n", 1),
            (b"INCR ab\n", 0),
            (b"incr a\n", 0),
            (b"INCR a", 0),
            (b"", 0),
        ] {
            assert_eq!(last.count_in(input, 9), n_times, "{}", input.escape_ascii());
        }
        assert_eq!(last.count_in(b"INCR a\nINCR a\n", 1), 1);
        assert_eq!(last.count_in(b"INCR a\nINCR a\n", 0), 0);
    }

    #[test]
    fn a_command_leads_where_it_led_when_it_was_remembered() {
        let mut last = LastTake::default();
        for (name, period, n) in [
            ("orders", Some("2026"), 1),
            ("a", Some("2027"), 5),
            ("orders", None, 1),
        ] {
            last.remember(b"as it came", leads_to(name, period), n);
            assert_eq!(last.target(), leads_to(name, period));
            assert_eq!((last.n(), last.n_bytes()), (n, 10));
        }
    }

    #[test]
    fn a_long_command_is_not_remembered_and_neither_is_the_one_before_it() {
        let mut last = LastTake::default();
        last.remember(b"INCR a\n", leads_to("a", None), 1);
        let long = vec![b'a'; MAX_REMEMBERED + 1];
        for n_bytes in [200, 201, MAX_REMEMBERED] {
            let command = long.get(..n_bytes).unwrap_or_default();
            last.remember(command, leads_to("a", None), 1);
            assert_eq!(last.count_in(command, 9), 1);
        }
        assert!(last.command.capacity() <= MAX_REMEMBERED);
        last.remember(&long, leads_to("a", None), 1);
        assert_eq!(last.count_in(b"INCR a\n", 9), 0);
        assert_eq!(last.count_in(&long, 9), 0);
    }
}
