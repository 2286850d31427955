//! Guards that a test may take out at run time, to see that it would notice.
//!
//! Only with the cargo feature `sabotage` are there switches; without it every
//! question is answered with a constant `false`.

#[cfg(feature = "sabotage")]
use std::sync::OnceLock;

/// A guard, or a fault put in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The update loses its conditions on `next_value` and `version`.
    NoConditions,
    /// No connection is ever cut, paused or counted, no chunked body is read before the routes, and
    /// large replies need no place.
    NoConnectionGuard,
    /// A wrong token is answered at once, however many came before.
    NoTokenDelay,
    /// On loopback a read by any name of this machine is answered.
    AnyHost,
    /// An actor panics at every fifth reservation that ends well.
    ActorPanic,
    /// The first reservation of each sequence in this process fails.
    FirstRefillError,
    /// After that failure the cursor is filled with what nobody reserved.
    FirstRefillInvents,
    /// A restarted actor fills the cursor with the block that the dead one had filled in.
    TakeoverKeepsBlock,
    /// Each call that finds memory empty starts a reservation of its own.
    RefillForEach,
    /// Callers who want blocks wait for a write each.
    WriteForEachBlock,
    /// Blocks in memory, and those on their way, are issued below a raised floor.
    FloorUnheld,
    /// The schema is brought one step further than this version knows.
    #[cfg(feature = "sabotage")]
    NextSchema,
    /// Statements are prepared behind a pooler, too.
    PrepareAnyway,
    /// The database is told nothing of how long a statement may take.
    NoServerBounds,
    /// Transactions see one another as the server's own default says.
    ServersIsolation,
    /// A commit is confirmed when the server's own default says so.
    ServersCommits,
    /// A change ends with the call that asked for it.
    ChangeUnfinished,
    /// A database may show any certificate.
    AnyCertificate,
    /// Drain and unload do not give back what was not issued.
    NoReturn,
    /// A replica that stops says so neither where readiness is asked for nor with its replies.
    SilentDrain,
    /// A refused call takes the numbers that it could have had.
    RefusedBurns,
    /// A name that is born again meanwhile begins again.
    BirthOverwrites,
    /// What is left of a sequence up to its `max` is not looked at.
    NoEnd,
    /// Nobody asks for the lock of a SQLite file.
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
    /// Replicas with any list of Redis servers agree.
    AnyRedis,
    /// A database may be the one of any place in the configuration.
    AnyStamp,
    /// Clocks may be as far apart as they like.
    AnyClock,
    /// What a database says is passed on as it is, and the URL that it was reached by.
    SecretsTold,
    /// What a server answers instead of a connection, or to a statement, is not read.
    CodesUnread,
    /// A change is made in those databases of a store that can be reached.
    ChangeIncomplete,
    /// A pool has more worker ids than its bits can hold.
    NoPoolEnd,
    /// A clock that was set back is neither waited for nor another worker id taken.
    ClockNotWaitedFor,
    /// Ids are issued under a lease only until its renewal is due.
    NoLeaseReserve,
    /// Nothing notices a store that went back: neither the beat nor what was seen of a counter.
    NoWentBackChecks,
    /// `recover` leaves returned blocks to be adopted.
    RecoverKeepsReturned,
    /// What was reserved before `recover` ran is issued and given back afterwards.
    RecoveryKeepsMemory,
    /// A change of a format forgets that a recovered store does not know all former ones.
    FormatsForgotten,
    /// The journal's rows are written one statement after the other, and those that are missing are
    /// made, whatever an earlier try came to.
    JournalInParts,
    /// `explain` takes what left memory as issued, and what has no row as never reserved.
    ExplainGuesses,
    /// Old rows of the journal are removed whatever may come of them.
    PruneAll,
    /// Blocks of the journal that have numbers in common are not seen.
    OverlapsUnseen,
    /// A block of the journal counts whole, also what was given back of it.
    RestsOverlap,
    /// A format is taken whatever the former ones have printed.
    FormatsRepeat,
    /// Connections that went silent or broke are neither replaced nor given up.
    KeepDeadPool,
    /// What may have been reserved is not counted as abandoned.
    Uncounted,
    /// A block is reserved only when memory is empty, never ahead of time.
    NoPrefetch,
    /// Periods that are too old are deleted without a word of it in their sequence.
    RemoveUnannounced,
    /// The process dies between the word and the deletion.
    RemovalDies,
    /// A removed period leaves no tombstone.
    Rebirth,
    /// After a recovery each period begins at its start.
    RebornAtStart,
    /// What was read for a caller who was refused, since the sequence has periods, serves the next
    /// one as if that were its counter.
    RefusalBelieved,
    /// All periods of a sequence count in one row, reset to its start when the period changes.
    OneRow,
    /// The last template that fits a name decides about it.
    LastTemplate,
    /// A file of definitions is made so without being checked whole before.
    ApplyUnchecked,
    /// Callers of a strict sequence share a write that was sent before they came.
    StrictSharesLate,
    /// What is written for a strict sequence arrives a second and a half late.
    StrictArrivesLate,
    /// Each of the databases that share sequences counts as the first one does.
    NoOffset,
    /// A database that was away goes on from where it was.
    NoCatchUp,
    /// A birth holds nothing of what it stands on.
    BirthUnheld,
    /// A birth keeps changes of what it stands on waiting, also where it need not.
    BirthHoldsMore,
    /// A name is born in one database of many.
    LooseBirth,
    /// Redis's scripts do not ask in which process, and of which history, their data is.
    NoIdentity,
    /// Leases of windows are neither waited for nor asked for before a step.
    NoLease,
    /// A ceiling is raised from where the row has the high-water mark, not from where the window's
    /// range ends.
    CeilingFromRow,
    /// A replica steps in a window that it finds in Redis without asking the row for it.
    NoRowCheck,
    /// A name is born in the store of its template, whatever other stores know of it.
    NoClaims,
    /// A name is born in another store than the default one without a claim.
    NoClaimRow,
    /// A worker id is given whoever holds it.
    NoLeaseConditions,
    /// An end frees the time of a lease that another replica renewed meanwhile.
    RenewalUnseen,
    /// Time-ordered ids are issued though the lease of their worker id has ended by our own clock.
    NoLeaseCheck,
    /// The time that was reserved with a worker id is neither held to nor taken over: whoever has
    /// the id stamps from now on, without end.
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
        (Fault::BirthOverwrites, "birth-overwrites"),
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
        (Fault::Rebirth, "rebirth"),
        (Fault::RebornAtStart, "reborn-at-start"),
        (Fault::LastTemplate, "last-template"),
        (Fault::ApplyUnchecked, "apply-unchecked"),
        (Fault::StrictSharesLate, "strict-shares-late"),
        (Fault::StrictArrivesLate, "strict-arrives-late"),
        (Fault::NoOffset, "no-offset"),
        (Fault::NoCatchUp, "no-catch-up"),
        (Fault::BirthUnheld, "birth-unheld"),
        (Fault::BirthHoldsMore, "birth-holds-more"),
        (Fault::LooseBirth, "loose-birth"),
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

/// What this process does wrong.
#[cfg(feature = "sabotage")]
struct Armed {
    faults: Vec<Fault>,
    clock_shift_ms: i64,
}

#[cfg(feature = "sabotage")]
static ARMED: OnceLock<Armed> = OnceLock::new();

/// Takes out the guards that `words` name, and sets this process's clock wrong by so much. Only the
/// first call has an effect, and it comes before anything else is started.
#[cfg(feature = "sabotage")]
pub fn arm(words: &[String], clock_shift_ms: i64) {
    let is_named = |(_, word): &&(Fault, &str)| words.iter().any(|chosen| chosen == word);
    let chosen = Fault::ALL.iter().filter(is_named);
    ARMED.get_or_init(|| Armed {
        faults: chosen.map(|(fault, _)| *fault).collect(),
        clock_shift_ms,
    });
}

/// Whether this process was told to have `fault`.
#[cfg(feature = "sabotage")]
pub fn is(fault: Fault) -> bool {
    ARMED
        .get()
        .is_some_and(|armed| armed.faults.contains(&fault))
}

/// How wrong this process's clock is meant to be.
#[cfg(feature = "sabotage")]
pub fn clock_shift_ms() -> i64 {
    ARMED.get().map_or(0, |armed| armed.clock_shift_ms)
}

/// Always 0: this build has the clock of the machine.
#[cfg(not(feature = "sabotage"))]
#[inline]
pub const fn clock_shift_ms() -> i64 {
    0
}

/// Always false: this build has no switches.
#[cfg(not(feature = "sabotage"))]
#[inline]
pub const fn is(_fault: Fault) -> bool {
    false
}
