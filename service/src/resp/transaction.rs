//! Holds the commands of a transaction until `EXEC`.
//!
//! Each command stands alone. A transaction only lets them be answered together, so its commands
//! are kept as they came.

use super::error_line::{ErrorLine, TRANSACTION_FULL};

/// The most commands of a transaction.
const MAX_COMMANDS: usize = 1000;

/// The most bytes of all its commands together.
const MAX_BYTES: usize = 64 * 1024;

/// The commands since `MULTI`.
#[derive(Default)]
pub(super) struct Transaction {
    commands: Vec<Vec<u8>>,
    n_bytes: usize,
    /// Whether a command was refused, so that `EXEC` does nothing.
    is_spoilt: bool,
}

impl Transaction {
    /// Adds a command, as it came.
    ///
    /// # Errors
    /// There are too many. The transaction is spoilt then.
    pub(super) fn add(&mut self, command: &[u8]) -> Result<(), ErrorLine> {
        let n_bytes = self.n_bytes.saturating_add(command.len());
        if self.commands.len() >= MAX_COMMANDS || n_bytes > MAX_BYTES {
            self.spoil();
            return Err(TRANSACTION_FULL);
        }
        self.n_bytes = n_bytes;
        self.commands.push(command.to_vec());
        Ok(())
    }

    /// Notes that a command was refused.
    pub(super) fn spoil(&mut self) {
        self.is_spoilt = true;
        self.commands = Vec::new();
    }

    /// Returns the commands; `None` if one was refused.
    pub(super) fn commands(self) -> Option<Vec<Vec<u8>>> {
        (!self.is_spoilt).then_some(self.commands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_back_in_their_order() {
        let mut transaction = Transaction::default();
        assert!(transaction.add(b"a").is_ok() && transaction.add(b"b").is_ok());
        assert_eq!(
            transaction.commands(),
            Some(vec![b"a".to_vec(), b"b".to_vec()])
        );
        assert_eq!(Transaction::default().commands(), Some(Vec::new()));
    }

    #[test]
    fn a_refused_command_spoils_all() {
        let mut transaction = Transaction::default();
        assert!(transaction.add(b"a").is_ok());
        transaction.spoil();
        assert!(transaction.add(b"b").is_ok());
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
