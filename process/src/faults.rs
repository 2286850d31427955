//! Lists the guards that a test may take out at run time, to see that the test would notice.
//!
//! Switches exist only with the cargo feature `sabotage`. Without this feature, [`is`] returns a
//! constant `false`.

#[cfg(feature = "sabotage")]
use std::sync::OnceLock;

/// A guard that is taken out, or a fault that is put in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The update of a counter loses its conditions on `next_value` and `version`.
    NoConditions,
    /// No connection is ever cut, paused or counted. No chunked body is read before the routes.
    /// Large replies need no memory under their limit.
    NoConnectionGuard,
    /// A wrong token is answered at once, however many came before.
    NoTokenDelay,
    /// On loopback, a read is answered even if its `Host` header has a foreign name.
    AnyHost,
    /// An actor panics at every fifth reservation that ends well.
    ActorPanic,
    /// The first reservation of each sequence in this process fails.
    FirstRefillError,
    /// After that failure, the cursor is filled with numbers that were never reserved.
    FirstRefillInvents,
    /// A restarted actor fills the cursor with the block that the dead actor had filled in.
    TakeoverKeepsBlock,
    /// Each call that finds memory empty starts a reservation of its own.
    RefillForEach,
    /// Each caller who wants a block waits for a write of its own.
    WriteForEachBlock,
    /// Blocks in memory, and blocks on their way, are issued below a raised floor.
    FloorUnheld,
    /// The schema is brought one step further than this version knows.
    #[cfg(feature = "sabotage")]
    NextSchema,
    /// Statements are prepared behind a pooler, too.
    PrepareAnyway,
    /// The database gets no bound on the time of a statement.
    NoServerBounds,
    /// Transactions see one another as the server's own default says.
    ServersIsolation,
    /// A commit is confirmed when the server's own default says so.
    ServersCommits,
    /// A change ends with the call that asked for it.
    ChangeUnfinished,
    /// A database may show any certificate.
    AnyCertificate,
    /// Drain and unload do not return the numbers that were not issued.
    NoReturn,
    /// A replica that drains says so neither by its readiness nor with its replies.
    SilentDrain,
    /// A refused call takes the numbers that it could have had.
    RefusedBurns,
    /// A name that was created again meanwhile begins again.
    CreationOverwrites,
    /// A reservation does not look at how much is left of a sequence up to its `max`.
    NoEnd,
    /// The lock of a SQLite file is not taken.
    NoFileLock,
    /// Any schema counts as one that fits.
    AnySchema,
    /// Only the schema that this version makes counts as one that fits.
    ExactSchema,
    /// Counts and queues have no bound.
    NoBounds,
    /// Anybody may change sequences, and web pages of any site may call.
    AnybodyChanges,
    /// A replica calls itself ready before any name has numbers in memory.
    NothingLoaded,
    /// Replicas with different lists of Redis servers agree.
    AnyRedis,
    /// A database fits any place in the configuration, even with another installation id.
    AnyStamp,
    /// Clocks may be as far apart as they like.
    AnyClock,
    /// Messages of a database, and the URL that it was reached by, are passed on as they are.
    SecretsTold,
    /// The error codes of a server are not read, neither for a connection nor for a statement.
    CodesUnread,
    /// A change is made in those databases of a store that can be reached.
    ChangeIncomplete,
    /// A pool has more worker ids than its bits can hold.
    NoPoolEnd,
    /// A clock that was set back is not waited for, and no other worker id is taken.
    ClockNotWaitedFor,
    /// Ids are issued under a lease only until the renewal of the lease is due.
    NoLeaseReserve,
    /// Nothing notices a store that went back: neither the heartbeat nor what was seen of a
    /// counter.
    NoWentBackChecks,
    /// `recover` leaves returned blocks to be adopted.
    RecoverKeepsReturned,
    /// Numbers that were reserved before `recover` ran are issued and returned afterwards.
    RecoveryKeepsMemory,
    /// A change of a format forgets that a recovered store does not know all former formats.
    FormatsForgotten,
    /// The journal's rows are written one statement after the other. Missing rows are inserted,
    /// even if an earlier attempt may have written them.
    JournalInParts,
    /// `explain` takes numbers that left memory as issued, and numbers without a row as never
    /// reserved.
    ExplainGuesses,
    /// Old rows of the journal are removed even if their blocks can still give numbers.
    PruneAll,
    /// Blocks of the journal that have numbers in common are not found.
    OverlapsUnseen,
    /// A block of the journal counts whole, with the numbers of it that were returned.
    RestsOverlap,
    /// A format is accepted even if an earlier format printed the same texts.
    FormatsRepeat,
    /// Connections that went silent or broke are neither replaced nor given up.
    KeepDeadPool,
    /// Numbers that may have been reserved are not counted as abandoned.
    Uncounted,
    /// A block is reserved only when memory is empty, never ahead of need.
    NoPrefetch,
    /// Periods that are too old are deleted without an announcement in the row of their sequence.
    RemoveUnannounced,
    /// The process dies between the announcement and the deletion.
    RemovalDies,
    /// A removed period leaves no tombstone.
    Recreation,
    /// After a recovery, each period begins at its start.
    RecreatedAtStart,
    /// The counter that was read for a refused caller of a sequence with periods is trusted. The
    /// next caller is served from it.
    RefusalBelieved,
    /// All periods of a sequence count in one row. The row is reset to its start when the period
    /// changes.
    OneRow,
    /// The last template that fits a name decides about the name.
    LastTemplate,
    /// A file of definitions is applied without being checked whole before.
    ApplyUnchecked,
    /// Callers of a strict sequence share a write that was sent before they came.
    StrictSharesLate,
    /// A write for a strict sequence arrives one and a half seconds late.
    StrictArrivesLate,
    /// Each of the databases that share sequences counts as the first one does.
    NoOffset,
    /// A database that was away goes on from where it was.
    NoCatchUp,
    /// A creation does not lock the row of `meta` that it depends on.
    CreationUnheld,
    /// A creation keeps changes waiting at the row of `meta`, although it need not.
    CreationHoldsMore,
    /// A name is created in one database of many.
    LooseCreation,
    /// Redis's scripts do not ask which process holds their data, and which history the data has.
    NoIdentity,
    /// Leases of windows are neither waited for nor asked for before a step.
    NoLease,
    /// A ceiling is raised from the row's high-water mark, not from the end of the window's range.
    CeilingFromRow,
    /// A replica steps in a window that it finds in Redis, without asking the row about the window.
    NoRowCheck,
    /// A name is created in the store of its template, even if other stores know the name.
    NoClaims,
    /// A name is created in another store than the default store without a claim.
    NoClaimRow,
    /// A worker id is given even if another holder has it.
    NoLeaseConditions,
    /// The end of a lease frees its time although another replica renewed the lease meanwhile.
    RenewalUnseen,
    /// Snowflake ids are issued although the lease of their worker id has ended by our own clock.
    NoLeaseCheck,
    /// The time that was reserved with a worker id is neither kept to nor taken over. The holder of
    /// the id issues from now on, without end.
    NoReservedUntil,
}

#[cfg(feature = "sabotage")]
impl Fault {
    const ALL: &'static [(Fault, &'static str)] = &[
        (Fault::NoConditions, "no-conditions"),
        (Fault::NoConnectionGuard, "no-connection-guard"),
        (Fault::NoTokenDelay, "no-token-delay"),
        (Fault::AnyHost, "any-host"),
        (Fault::ActorPanic, "actor-panic"),
        (Fault::FirstRefillError, "first-refill-error"),
        (Fault::FirstRefillInvents, "first-refill-invents"),
        (Fault::TakeoverKeepsBlock, "takeover-keeps-block"),
        (Fault::RefillForEach, "refill-for-each"),
        (Fault::WriteForEachBlock, "write-for-each-block"),
        (Fault::FloorUnheld, "floor-unheld"),
        (Fault::NextSchema, "next-schema"),
        (Fault::PrepareAnyway, "prepare-anyway"),
        (Fault::NoServerBounds, "no-server-bounds"),
        (Fault::ServersIsolation, "servers-isolation"),
        (Fault::ServersCommits, "servers-commits"),
        (Fault::ChangeUnfinished, "change-unfinished"),
        (Fault::AnyCertificate, "any-certificate"),
        (Fault::NoReturn, "no-return"),
        (Fault::SilentDrain, "silent-drain"),
        (Fault::RefusedBurns, "refused-burns"),
        (Fault::CreationOverwrites, "creation-overwrites"),
        (Fault::NoEnd, "no-end"),
        (Fault::NoFileLock, "no-file-lock"),
        (Fault::AnySchema, "any-schema"),
        (Fault::ExactSchema, "exact-schema"),
        (Fault::NoBounds, "no-bounds"),
        (Fault::AnybodyChanges, "anybody-changes"),
        (Fault::NothingLoaded, "nothing-loaded"),
        (Fault::AnyRedis, "any-redis"),
        (Fault::AnyStamp, "any-stamp"),
        (Fault::AnyClock, "any-clock"),
        (Fault::SecretsTold, "secrets-told"),
        (Fault::CodesUnread, "codes-unread"),
        (Fault::ChangeIncomplete, "change-incomplete"),
        (Fault::NoPoolEnd, "no-pool-end"),
        (Fault::ClockNotWaitedFor, "clock-not-waited-for"),
        (Fault::NoLeaseReserve, "no-lease-reserve"),
        (Fault::NoWentBackChecks, "no-went-back-checks"),
        (Fault::RecoverKeepsReturned, "recover-keeps-returned"),
        (Fault::RecoveryKeepsMemory, "recovery-keeps-memory"),
        (Fault::FormatsForgotten, "formats-forgotten"),
        (Fault::JournalInParts, "journal-in-parts"),
        (Fault::ExplainGuesses, "explain-guesses"),
        (Fault::PruneAll, "prune-all"),
        (Fault::OverlapsUnseen, "overlaps-unseen"),
        (Fault::RestsOverlap, "rests-overlap"),
        (Fault::FormatsRepeat, "formats-repeat"),
        (Fault::KeepDeadPool, "keep-dead-pool"),
        (Fault::Uncounted, "uncounted"),
        (Fault::NoPrefetch, "no-prefetch"),
        (Fault::RefusalBelieved, "refusal-believed"),
        (Fault::OneRow, "one-row"),
        (Fault::RemoveUnannounced, "remove-unannounced"),
        (Fault::RemovalDies, "removal-dies"),
        (Fault::Recreation, "recreation"),
        (Fault::RecreatedAtStart, "recreated-at-start"),
        (Fault::LastTemplate, "last-template"),
        (Fault::ApplyUnchecked, "apply-unchecked"),
        (Fault::StrictSharesLate, "strict-shares-late"),
        (Fault::StrictArrivesLate, "strict-arrives-late"),
        (Fault::NoOffset, "no-offset"),
        (Fault::NoCatchUp, "no-catch-up"),
        (Fault::CreationUnheld, "creation-unheld"),
        (Fault::CreationHoldsMore, "creation-holds-more"),
        (Fault::LooseCreation, "loose-creation"),
        (Fault::NoIdentity, "no-identity"),
        (Fault::NoLease, "no-lease"),
        (Fault::CeilingFromRow, "ceiling-from-row"),
        (Fault::NoRowCheck, "no-row-check"),
        (Fault::NoClaims, "no-claims"),
        (Fault::NoClaimRow, "no-claim-row"),
        (Fault::RenewalUnseen, "renewal-unseen"),
        (Fault::NoLeaseCheck, "no-lease-check"),
        (Fault::NoLeaseConditions, "no-lease-conditions"),
        (Fault::NoReservedUntil, "no-reserved-until"),
    ];
}

/// The faults that this process has.
#[cfg(feature = "sabotage")]
struct Armed {
    faults: Vec<Fault>,
    clock_shift_ms: i64,
}

#[cfg(feature = "sabotage")]
static ARMED: OnceLock<Armed> = OnceLock::new();

/// Takes out the guards that `words` name, and shifts this process's clock by `clock_shift_ms`.
/// Only the first call has an effect. It comes before anything else is started.
#[cfg(feature = "sabotage")]
pub fn arm(words: &[String], clock_shift_ms: i64) {
    let is_named = |(_, word): &&(Fault, &str)| words.iter().any(|chosen| chosen == word);
    let chosen = Fault::ALL.iter().filter(is_named);
    ARMED.get_or_init(|| Armed {
        faults: chosen.map(|(fault, _)| *fault).collect(),
        clock_shift_ms,
    });
}

/// Returns whether this process was armed with `fault`.
#[cfg(feature = "sabotage")]
pub fn is(fault: Fault) -> bool {
    ARMED
        .get()
        .is_some_and(|armed| armed.faults.contains(&fault))
}

/// Returns by how many milliseconds this process's clock is meant to be wrong.
#[cfg(feature = "sabotage")]
pub fn clock_shift_ms() -> i64 {
    ARMED.get().map_or(0, |armed| armed.clock_shift_ms)
}

/// Returns 0: this build has the clock of the machine.
#[cfg(not(feature = "sabotage"))]
#[inline]
pub const fn clock_shift_ms() -> i64 {
    0
}

/// Returns false: this build has no switches.
#[cfg(not(feature = "sabotage"))]
#[inline]
pub const fn is(_fault: Fault) -> bool {
    false
}
