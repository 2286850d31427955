//! Names the causes for which numbers are abandoned.

/// Why numbers that were reserved will neither be issued nor returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AbandonedCause {
    /// The store did not say whether its write had committed.
    Uncertain,
    /// The reservation finished for an actor that no longer owned the sequence.
    ActorDied,
    /// A taker held an offset into a slot that was filled again meanwhile.
    SlotReused,
    /// The rest could not be returned before the deadline of the shutdown.
    Shutdown,
    /// The numbers were taken for a caller who had gone when they arrived.
    CallerGone,
    /// A floor was raised past the numbers in memory, or their sequence was retired.
    Advanced,
    /// `odometer recover` ran after the numbers were reserved.
    Recovered,
    /// The queue of the journal was full when the rest was to be returned.
    JournalFull,
    /// A window of Redis was lost before its end, as far as this replica knew the window.
    Window,
}

impl AbandonedCause {
    pub(crate) const ALL: [Self; 9] = [
        Self::Uncertain,
        Self::ActorDied,
        Self::SlotReused,
        Self::Shutdown,
        Self::CallerGone,
        Self::Advanced,
        Self::Recovered,
        Self::JournalFull,
        Self::Window,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Uncertain => "uncertain",
            Self::ActorDied => "actor_died",
            Self::SlotReused => "slot_reused",
            Self::Shutdown => "shutdown",
            Self::CallerGone => "caller_gone",
            Self::Advanced => "advanced",
            Self::Recovered => "recovered",
            Self::JournalFull => "journal_full",
            Self::Window => "window",
        }
    }
}
