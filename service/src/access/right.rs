//! Lists the rights that a role can have.

/// What a role may do with the names that it has the right on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// Take numbers.
    Take,
    /// Reserve blocks.
    Block,
    /// Use a name or a key for the first time. The caller also needs the right for the call itself.
    Create,
    /// Define, advance, retire and restore sequences, remove keys, and release worker ids.
    Define,
    /// Lease, renew and return worker ids of a pool.
    Lease,
    /// Read definitions, lists and what became of numbers.
    Look,
}

impl Right {
    /// Lists all rights, in the order in which they are shown.
    pub const ALL: [Self; 6] = [
        Self::Take,
        Self::Block,
        Self::Create,
        Self::Define,
        Self::Lease,
        Self::Look,
    ];

    /// Returns the word for the right in the configuration, in replies and in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Take => "take",
            Self::Block => "block",
            Self::Create => "create",
            Self::Define => "define",
            Self::Lease => "lease",
            Self::Look => "look",
        }
    }
}
