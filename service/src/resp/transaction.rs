//! Holds the commands of a transaction until `EXEC`.
//!
//! Each command stands alone. A transaction only lets them be answered together, so its commands
//! are kept as they came.

use super::error_line::{ErrorLine, TRANSACTION_FULL};
use super::wire::append;

/// The most commands of a transaction.
const MAX_COMMANDS: usize = 1000;

/// The most bytes of all its commands together.
const MAX_BYTES: usize = 64 * 1024;

/// The commands since `MULTI`.
#[derive(Default)]
pub(super) struct Transaction {
    /// As they came, one behind the other.
    commands: Vec<u8>,
    n_commands: usize,
    /// Whether a command was refused, so that `EXEC` does nothing.
    is_spoilt: bool,
}

impl Transaction {
    /// Adds a command, as it came.
    ///
    /// # Errors
    /// There are too many. The transaction is spoilt then.
    pub(super) fn add(&mut self, command: &[u8]) -> Result<(), ErrorLine> {
        let n_bytes = self.commands.len().saturating_add(command.len());
        if self.n_commands >= MAX_COMMANDS || n_bytes > MAX_BYTES {
            self.spoil();
            return Err(TRANSACTION_FULL);
        }
        if !self.is_spoilt {
            append(&mut self.commands, command);
            self.n_commands += 1;
        }
        Ok(())
    }

    /// Notes that a command was refused.
    pub(super) fn spoil(&mut self) {
        *self = Self {
            is_spoilt: true,
            ..Self::default()
        };
    }

    /// Returns how many commands there are, and all of them; `None` if one was refused.
    pub(super) fn commands(self) -> Option<(usize, Vec<u8>)> {
        (!self.is_spoilt).then_some((self.n_commands, self.commands))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_back_in_their_order() {
        let mut transaction = Transaction::default();
        assert!(transaction.add(b"a\n").is_ok() && transaction.add(b"b\n").is_ok());
        assert_eq!(transaction.commands(), Some((2, b"a\nb\n".to_vec())));
        assert_eq!(Transaction::default().commands(), Some((0, Vec::new())));
    }

    #[test]
    fn a_refused_command_spoils_all_and_nothing_is_kept() {
        let mut transaction = Transaction::default();
        assert!(transaction.add(b"a\n").is_ok());
        transaction.spoil();
        assert!(transaction.add(b"b\n").is_ok());
        assert_eq!(transaction.commands.capacity(), 0);
        assert_eq!(transaction.commands(), None);
    }

    #[test]
    fn a_transaction_has_a_bound_in_commands_and_in_bytes() {
        let mut many = Transaction::default();
        let n_taken = (0..2 * MAX_COMMANDS).take_while(|_| many.add(b"a").is_ok());
        assert_eq!(n_taken.count(), MAX_COMMANDS);
        assert_eq!(many.commands(), None);
        let mut large = Transaction::default();
        let part = vec![b'a'; MAX_BYTES / 2];
        assert!(large.add(&part).is_ok() && large.add(&part).is_ok());
        assert_eq!(large.add(b"a"), Err(TRANSACTION_FULL));
    }
}
