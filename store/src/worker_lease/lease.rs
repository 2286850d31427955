//! Worker ids that are leased, and how they are shared out.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use odometer_core::{definition::Stripe, name::SequenceName};
use thiserror::Error;

use crate::worker_lease::token::Token;

/// No clock of ours may be further ahead of the database's: nothing is reserved then.
pub(crate) const MAX_AHEAD_MS: i64 = 5 * 60 * 1000;

/// The longest that another program may ask for a lease: after a recovery, which knows of no lease
/// that was forgotten, the ids of its pool rest for so long.
pub const LONGEST_TTL: Duration = Duration::from_secs(60 * 60);

/// The widest worker id, in bits.
pub const MAX_BITS: u32 = 22;

/// Pools of other programs in one database that were used of late.
pub(crate) const MAX_POOLS: u64 = 1000;

/// Rows that are listed at once, and one more that tells whether there are any.
pub const MAX_LISTED: u64 = 10_000;

/// Where worker ids are leased from: 128 bytes of a name, with a `/` before those of sequences in the
/// table's key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum WorkerPool {
    /// For other programs.
    Named(SequenceName),
    /// For the replicas that issue a sequence.
    Sequence(SequenceName),
}

impl WorkerPool {
    /// As the table has it.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Named(name) => name.to_string(),
            Self::Sequence(name) => format!("/{name}"),
        }
    }
}

/// Which worker id is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerChoice {
    /// The best of all: the former one of this holder, else one that was never used, else that whose
    /// unused time begins first.
    Any,
    /// This one and no other.
    Exact(u32),
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct LeaseWanted {
    pub pool: WorkerPool,
    /// Width of the ids: 1 to [`MAX_BITS`].
    pub bits: u32,
    /// Who: stays the same over restarts, so that a restarted one gets its former id back.
    pub holder: Arc<str>,
    /// So far ahead of the later one of both clocks time is reserved, and so long the lease lasts.
    pub ttl: Duration,
    pub choice: WorkerChoice,
    /// Only an id whose unused time begins at or before this moment of our clock (Unix ms).
    pub usable_by_ms: Option<i64>,
}

/// A lease that is held: the only way to renew or give back.
#[derive(Clone, Debug)]
pub struct LeaseKey {
    pub pool: WorkerPool,
    pub worker: u32,
    pub(crate) token: Token,
    /// The row's, as it was last seen; 0 where it was not.
    pub(crate) version: i64,
    /// How many recoveries had been seen by then: the next one voids the lease.
    pub(crate) era: u64,
    /// The store's place in the configuration.
    pub(crate) store: usize,
}

impl LeaseKey {
    /// What the holder shows. Secret.
    pub fn token(&self) -> &str {
        self.token.as_str()
    }

    /// What the row's version is at least in an era; a recovery since has voided the lease, and its
    /// row may be any.
    pub(crate) fn least_version(&self, era: u64) -> i64 {
        if self.era == era { self.version } else { 0 }
    }
}

/// A worker id, and the time that its holder may stamp with it.
#[derive(Clone, Debug)]
pub struct LeaseGrant {
    pub key: LeaseKey,
    /// Stamp only times in [`from_ms`, `until_ms`), Unix ms.
    pub from_ms: i64,
    pub until_ms: i64,
    /// When it ends, by this process's own monotonic clock, counted from before the statement was sent.
    pub expires: Instant,
    /// For how long it was asked.
    pub ttl: Duration,
    /// The database's clock minus ours, ms, as of the statement.
    pub skew_ms: i64,
}

/// A row, as a listing or an explanation shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseRow {
    pub worker: u32,
    pub bits: u32,
    pub holder: String,
    /// Its last holder stamps nothing before it (Unix ms).
    pub from_ms: i64,
    /// Nobody has stamped anything at or past it yet (Unix ms).
    pub until_ms: i64,
    /// By the database's clock (Unix ms).
    pub expires_ms: i64,
    /// Whether it is held, by the database's clock.
    pub is_held: bool,
}

/// Why there is no lease.
#[derive(Clone, Debug, Error)]
pub enum LeaseError {
    #[error("all {workers} worker ids are taken")]
    NoneFree { workers: u32 },
    /// Only where it is said by when one has to be.
    #[error("no worker id can be used before {from_ms}")]
    NoneUsable { from_ms: i64 },
    #[error("somebody else has worker id {worker}")]
    Held { worker: u32 },
    #[error("the lease is lost")]
    Lost,
    #[error("the worker ids of the pool have {bits} bits")]
    OtherWidth { bits: u32 },
    #[error("our clock is {by_ms} ms ahead of the database's")]
    ClockAhead { by_ms: i64 },
    #[error("as many pools as allowed")]
    TooManyPools { limit: u64 },
    /// Time is given back that was not part of the lease.
    #[error("the lease is from {from_ms} until {until_ms}")]
    NotOfTheLease { from_ms: i64, until_ms: i64 },
    /// The schema knows no leases yet.
    #[error("the schema is too old for worker ids: run `odometer migrate`")]
    OldSchema,
    #[error("the database cannot be used now")]
    Unavailable,
    #[error("the attempts or the time are used up")]
    Deadline,
    #[error("the store holds less than was seen in it")]
    WentBack,
    /// A renewal or an end whose outcome was not told; to be asked again.
    #[error("it may have happened")]
    MayHaveHappened,
}

/// The worker ids that one database leases: those that leave `k` when divided by `n`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    pub(crate) k: u32,
    pub(crate) n: u32,
}

impl Share {
    pub(crate) fn of(stripe: Stripe) -> Self {
        Self {
            k: u32::from(stripe.k()),
            n: u32::from(stripe.n()),
        }
    }

    pub(crate) fn has(self, worker: u32) -> bool {
        worker % self.n.max(1) == self.k
    }

    /// How many ids of this width are among them.
    pub(crate) fn size(self, bits: u32) -> u32 {
        workers(bits).saturating_sub(self.k).div_ceil(self.n.max(1))
    }

    /// Whether any id of this width is among them.
    pub(crate) fn has_any(self, bits: u32) -> bool {
        self.k < workers(bits)
    }
}

/// How many ids of this width there are.
pub(crate) fn workers(bits: u32) -> u32 {
    1 << bits.min(MAX_BITS)
}

/// Whole milliseconds of it.
pub(crate) fn millis(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn pools_of_sequences_and_of_other_programs_never_meet() {
        let name = SequenceName::parse(&"a".repeat(128)).unwrap();
        let (named, own) = (
            WorkerPool::Named(name.clone()).key(),
            WorkerPool::Sequence(name).key(),
        );
        assert_ne!(named, own);
        assert_eq!((named.len(), own.len()), (128, 129));
        // No name begins so, and every one sorts behind it.
        assert!(SequenceName::parse("/a").is_err());
        assert!(own < named && *"/" < *"0");
    }

    #[test]
    fn a_lease_says_nothing_of_its_row_after_a_recovery() {
        let key = LeaseKey {
            pool: WorkerPool::Named(SequenceName::parse("billing").unwrap()),
            worker: 3,
            token: Token::draw(),
            version: 7,
            era: 1,
            store: 0,
        };
        assert_eq!((key.least_version(1), key.least_version(2)), (7, 0));
    }

    #[test]
    fn each_worker_id_belongs_to_one_database() {
        for n in 1..=5 {
            let shares = (0..n).map(|k| Share::of(Stripe::new(k, n).unwrap()));
            let shares: Vec<Share> = shares.collect();
            for worker in 0..workers(6) {
                let owners = shares.iter().filter(|share| share.has(worker));
                assert_eq!(owners.count(), 1, "{worker} of {n}");
            }
        }
        assert_eq!((workers(1), workers(10), workers(22)), (2, 1024, 1 << 22));
    }
}
