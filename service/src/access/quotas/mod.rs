//! Bounds what the callers of a role can use up.
//!
//! - `numbers.rs`: how many numbers a second they take from one replica.
//! - `names.rs`: how many names and keys there are when they create another one.
//! - `worker_ids.rs`: how many worker ids are held when they lease another one.
//! - `share.rs`: which part of a sequence one call takes.

pub mod names;
pub mod numbers;
pub mod share;
pub mod worker_ids;

use names::NamesQuota;
use numbers::NumbersQuota;
use share::Share;
use worker_ids::WorkerIdsQuota;

/// What a quota bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quota {
    Numbers,
    Names,
    WorkerIds,
    Share,
}

impl Quota {
    /// All quotas.
    pub const ALL: [Self; 4] = [Self::Numbers, Self::Names, Self::WorkerIds, Self::Share];

    /// Returns the word for the quota in the configuration and in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Numbers => "numbers",
            Self::Names => "names",
            Self::WorkerIds => "workers",
            Self::Share => "share",
        }
    }
}

/// The quotas of a role, which its callers share. `None` is no bound.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Quotas {
    pub numbers: Option<NumbersQuota>,
    pub names: Option<NamesQuota>,
    pub worker_ids: Option<WorkerIdsQuota>,
    pub share: Share,
}
