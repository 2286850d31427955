//! Lists the guards that a test may take out at run time, to see that the test would notice.
//!
//! Switches exist only with the cargo feature `sabotage`. Without this feature, [`is`] returns a
//! constant `false`.

#[cfg(feature = "sabotage")]
use std::sync::OnceLock;

use crate::words::words;

words! {
    /// A guard that is taken out, or a fault that is put in its place.
    pub enum Fault {
        /// The update of a counter loses its conditions on `next_value` and `version`.
        NoConditions = "no-conditions",
        /// A reservation in relaxed order never adds to its counter, however often others outrun it.
        NoAddition = "no-addition",
        /// No connection is ever cut, paused or counted. No chunked body is read before the routes.
        /// Large replies need no memory under their limit.
        NoConnectionGuard = "no-connection-guard",
        /// Each thread that serves callers stands still a second after it has started.
        WorkerStandsStill = "worker-stands-still",
        /// A wrong token is answered at once, however many came before.
        NoTokenDelay = "no-token-delay",
        /// On loopback, a read is answered even if its `Host` header has a foreign name.
        AnyHost = "any-host",
        /// An actor panics at every fifth reservation that ends well.
        ActorPanic = "actor-panic",
        /// The first reservation of each sequence in this process fails.
        FirstRefillError = "first-refill-error",
        /// After that failure, the cursor is filled with numbers that were never reserved.
        FirstRefillInvents = "first-refill-invents",
        /// A restarted actor fills the cursor with the block that the dead actor had filled in.
        TakeoverKeepsBlock = "takeover-keeps-block",
        /// Each call that finds memory empty starts a reservation of its own.
        RefillForEach = "refill-for-each",
        /// Each caller who wants a block waits for a write of its own.
        WriteForEachBlock = "write-for-each-block",
        /// Blocks in memory, and blocks on their way, are issued below a raised floor.
        FloorUnheld = "floor-unheld",
        /// The schema is brought one step further than this version knows.
        NextSchema = "next-schema",
        /// Statements are prepared behind a pooler, too.
        PrepareAnyway = "prepare-anyway",
        /// The database gets no bound on the time of a statement.
        NoServerBounds = "no-server-bounds",
        /// Transactions see one another as the server's own default says.
        ServersIsolation = "servers-isolation",
        /// A commit is confirmed when the server's own default says so.
        ServersCommits = "servers-commits",
        /// A change ends with the call that asked for it.
        ChangeUnfinished = "change-unfinished",
        /// A database may show any certificate.
        AnyCertificate = "any-certificate",
        /// Drain and unload do not return the numbers that were not issued.
        NoReturn = "no-return",
        /// A replica that drains says so neither by its readiness nor with its replies.
        SilentDrain = "silent-drain",
        /// A refused call takes the numbers that it could have had.
        RefusedBurns = "refused-burns",
        /// A name that was created again meanwhile begins again.
        CreationOverwrites = "creation-overwrites",
        /// A fence raises no counter.
        NoFence = "no-fence",
        /// A fence takes the clocks of all servers as equal.
        NoClockMargin = "no-clock-margin",
        /// A fence leaves the speed limits as far unused as they are in the copy.
        FullBucket = "full-bucket",
        /// Heartbeats are written in a copy that nobody has fenced yet.
        UnguardedBeats = "unguarded-beats",
        /// To a fence, each statement is committed at the time that it read.
        InstantStatements = "instant-statements",
        /// A recovery leaves the numbers of windows as they are.
        FenceKeepsWindows = "fence-keeps-windows",
        /// No replica that lived through a start of the server vouches for it.
        NoVouching = "no-vouching",
        /// One replica that lived through a start of the server is enough to vouch for it.
        OneVoucher = "one-voucher",
        /// A server that was started again counts as whole, whatever the heartbeats in it say.
        TrustsStarts = "trusts-starts",
        /// A lease reaches ahead as far as it was asked for, however short a time it has lasted.
        LeasesReachFar = "leases-reach-far",
        /// A fence that fails again and again counts as a database that is away.
        FencesFailSilently = "fences-fail-silently",
        /// No sequence has a speed limit.
        NoLimit = "no-limit",
        /// A reservation does not look at how much is left of a sequence up to its `max`.
        NoEnd = "no-end",
        /// The lock of a SQLite file is not taken.
        NoFileLock = "no-file-lock",
        /// Any schema counts as one that fits.
        AnySchema = "any-schema",
        /// Only the schema that this version makes counts as one that fits.
        ExactSchema = "exact-schema",
        /// Counts and queues have no bound.
        NoBounds = "no-bounds",
        /// Anybody may change sequences, and web pages of any site may call.
        AnybodyChanges = "anybody-changes",
        /// The quota of a role is not asked for off the warm path.
        QuotaUncounted = "quota-uncounted",
        /// A caller who hangs up, or whose call fails, gets back what its call took from the quota
        /// of its role.
        QuotaGivenBack = "quota-given-back",
        /// What a connection remembers of its caller counts for good.
        MemoNeverStale = "memo-never-stale",
        /// The signature of a JSON Web Token is not checked.
        SignatureUnchecked = "signature-unchecked",
        /// A caller of any role may take numbers of any name.
        RightsUnasked = "rights-unasked",
        /// The listener for clients of Redis asks for no password.
        PasswordUnasked = "password-unasked",
        /// The listener for clients of Redis may be open to other machines without a password.
        OpenToAll = "open-to-all",
        /// The numbers of `INCRBY` need not be next to each other.
        UnevenRanges = "uneven-ranges",
        /// The list of revoked certificates of callers is not read.
        RevocationsUnread = "revocations-unread",
        /// The certificate of a caller is checked when its connection begins, and never again.
        CertificatesCheckedOnce = "certificates-checked-once",
        /// A caller whose certificate is no caller's is anonymous.
        UnknownIsAnonymous = "unknown-is-anonymous",
        /// A replica calls itself ready before any name has numbers in memory.
        NothingLoaded = "nothing-loaded",
        /// Replicas with different lists of Redis servers agree.
        AnyRedis = "any-redis",
        /// A database fits any place in the configuration, even with another installation id.
        AnyStamp = "any-stamp",
        /// Clocks may be as far apart as they like.
        AnyClock = "any-clock",
        /// Messages of a database, and the URL that it was reached by, are passed on as they are.
        SecretsTold = "secrets-told",
        /// The error codes of a server are not read, neither for a connection nor for a statement.
        CodesUnread = "codes-unread",
        /// A change is made in those databases of a store that can be reached.
        ChangeIncomplete = "change-incomplete",
        /// A pool has more worker ids than its bits can hold.
        NoPoolEnd = "no-pool-end",
        /// A clock that was set back is not waited for, and no other worker id is taken.
        ClockNotWaitedFor = "clock-not-waited-for",
        /// Ids are issued under a lease only until the renewal of the lease is due.
        NoLeaseReserve = "no-lease-reserve",
        /// Nothing notices a store that went back: neither its stamp, nor the heartbeat, nor what was
        /// seen of a counter.
        NoWentBackChecks = "no-went-back-checks",
        /// The stamp of a database is not compared with the server that it is on.
        NoStamp = "no-stamp",
        /// `recover` leaves returned blocks to be adopted.
        RecoverKeepsReturned = "recover-keeps-returned",
        /// Numbers that were reserved before `recover` ran are issued and returned afterwards.
        RecoveryKeepsMemory = "recovery-keeps-memory",
        /// A change of a format forgets that a recovered store does not know all former formats.
        FormatsForgotten = "formats-forgotten",
        /// The journal's rows are written one statement after the other. Missing rows are inserted,
        /// even if an earlier attempt may have written them.
        JournalInParts = "journal-in-parts",
        /// `explain` takes numbers that left memory as issued, and numbers without a row as never
        /// reserved.
        ExplainGuesses = "explain-guesses",
        /// Old rows of the journal are removed even if their blocks can still give numbers.
        PruneAll = "prune-all",
        /// Blocks of the journal that have numbers in common are not found.
        OverlapsUnseen = "overlaps-unseen",
        /// A block of the journal counts whole, with the numbers of it that were returned.
        RestsOverlap = "rests-overlap",
        /// A format is accepted even if an earlier format printed the same texts.
        FormatsRepeat = "formats-repeat",
        /// Connections that went silent or broke are neither replaced nor given up.
        KeepDeadPool = "keep-dead-pool",
        /// Numbers that may have been reserved are not counted as abandoned.
        Uncounted = "uncounted",
        /// A block is reserved only when memory is empty, never ahead of need.
        NoPrefetch = "no-prefetch",
        /// Periods that are too old are deleted without an announcement in the row of their
        /// sequence.
        RemoveUnannounced = "remove-unannounced",
        /// The process dies between the announcement and the deletion.
        RemovalDies = "removal-dies",
        /// A removed period leaves no tombstone.
        Recreation = "recreation",
        /// After a recovery, each period begins at its start.
        RecreatedAtStart = "recreated-at-start",
        /// The counter that was read for a refused caller of a sequence with periods is trusted.
        /// The next caller is served from it.
        RefusalBelieved = "refusal-believed",
        /// All periods of a sequence count in one row. The row is reset to its start when the
        /// period changes.
        OneRow = "one-row",
        /// The last template that fits a name decides about the name.
        LastTemplate = "last-template",
        /// A file of definitions is applied without being checked whole before.
        ApplyUnchecked = "apply-unchecked",
        /// Callers of a strict sequence share a write that was sent before they came.
        StrictSharesLate = "strict-shares-late",
        /// A write for a strict sequence arrives one and a half seconds late.
        StrictArrivesLate = "strict-arrives-late",
        /// Each of the databases that share sequences counts as the first one does.
        NoOffset = "no-offset",
        /// A database that was away goes on from where it was.
        NoCatchUp = "no-catch-up",
        /// What a database skips to catch up with others is not paid for.
        FreeCatchUp = "free-catch-up",
        /// A creation does not lock the row of `meta` that it depends on.
        CreationUnheld = "creation-unheld",
        /// A creation keeps changes waiting at the row of `meta`, although it need not.
        CreationHoldsMore = "creation-holds-more",
        /// A name is created in one database of many.
        LooseCreation = "loose-creation",
        /// Redis's scripts do not ask which process holds their data, and which history the data
        /// has.
        NoIdentity = "no-identity",
        /// Leases of windows are neither waited for nor asked for before a step.
        NoLease = "no-lease",
        /// A ceiling is raised from the row's high-water mark, not from the end of the window's
        /// range.
        CeilingFromRow = "ceiling-from-row",
        /// A replica steps in a window that it finds in Redis, without asking the row about the
        /// window.
        NoRowCheck = "no-row-check",
        /// A name is created in the store of its template, even if other stores know the name.
        NoClaims = "no-claims",
        /// A name is created in another store than the default store without a claim.
        NoClaimRow = "no-claim-row",
        /// A worker id is given even if another holder has it.
        NoLeaseConditions = "no-lease-conditions",
        /// The release of a worker id frees the id at once, with the time that its holder has
        /// reserved.
        ReleaseFreesTime = "release-frees-time",
        /// The end of a lease frees its time although another replica renewed the lease meanwhile.
        RenewalUnseen = "renewal-unseen",
        /// Snowflake ids are issued although the lease of their worker id has ended by our own
        /// clock.
        NoLeaseCheck = "no-lease-check",
        /// The time that was reserved with a worker id is neither kept to nor taken over. The
        /// holder of the id issues from now on, without end.
        NoReservedUntil = "no-reserved-until",
    }
    #[cfg(feature = "sabotage")]
    impl
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
    let is_named = |fault: &Fault| words.iter().any(|chosen| chosen == fault.word());
    ARMED.get_or_init(|| Armed {
        faults: Fault::ALL.into_iter().filter(is_named).collect(),
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
