//! Names the causes for which numbers are abandoned.

use crate::words::words;

words! {
    /// Why numbers that were reserved will neither be issued nor returned.
    pub enum AbandonedCause {
        /// The store did not say whether its write had committed.
        Uncertain = "uncertain",
        /// The reservation finished for an actor that no longer owned the sequence.
        ActorDied = "actor_died",
        /// A taker held an offset into a slot that was filled again meanwhile.
        SlotReused = "slot_reused",
        /// The rest could not be returned before the deadline of the shutdown.
        Shutdown = "shutdown",
        /// The numbers were taken for a caller who had gone when they arrived.
        CallerGone = "caller_gone",
        /// The rest of a block was too short for a range, which came from the next block.
        TooShort = "too_short",
        /// A floor was raised past the numbers in memory, or their sequence was retired.
        Advanced = "advanced",
        /// `odometer recover` ran after the numbers were reserved.
        Recovered = "recovered",
        /// The queue of the journal was full when the rest was to be returned.
        JournalFull = "journal_full",
        /// A window of Redis was lost before its end, as far as this replica knew the window.
        Window = "window",
    }
    impl
}
