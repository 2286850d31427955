//! Says what a listener serves.

/// What a listener serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListenerRole {
    /// Everything: there is one listener.
    Everything,
    /// What callers need. Operators have a listener of their own.
    Callers,
    /// What operators need: probes, metrics, the page, and calls that change nothing.
    Operations,
}

impl ListenerRole {
    /// Returns whether the listener issues numbers, leases worker ids and changes sequences.
    pub(crate) fn serves_callers(self) -> bool {
        self != Self::Operations
    }

    /// Returns whether the listener shows metrics and the page.
    pub(crate) fn serves_operators(self) -> bool {
        self != Self::Callers
    }

    /// Says where a path is that this listener does not serve.
    pub(crate) fn elsewhere(self) -> &'static str {
        match self {
            Self::Operations => {
                "This is the operations listener, which issues nothing and changes nothing; send \
                 the call to the address of `listen`."
            }
            Self::Everything | Self::Callers => {
                "The metrics and the page are at the operations listener; send the call to the \
                 address of `operations.listen`."
            }
        }
    }
}
