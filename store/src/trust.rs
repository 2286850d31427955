//! Says whether one database can be trusted, as far as this process knows.

use std::{collections::HashSet, sync::Arc};

use odometer_core::name::SequenceName;

use crate::{error::StoreError, fences::Recoveries};

/// Bounds how many names are remembered as gone back. Later names are not.
const MAX_NAMES: usize = 1000;

/// What this process knows of one database.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    standing: Standing,
    /// The branch of the database's history. `None` before the first contact.
    branch: Option<i64>,
    /// The last value of this replica's heartbeat that is certainly in the database. `None` before
    /// the first contact.
    confirmed: Option<i64>,
    /// The highest value that was ever sent to the database.
    sent: i64,
    /// The number of recoveries that this process has seen.
    n_recoveries: u64,
    /// Whether this process has seen a recovery of all sequences.
    was_recovered: bool,
    /// The last recovery that this process has seen, as `meta.recovered_at` gave it.
    recovered_at: Option<i64>,
    /// The recoveries that the database had when this process met the branch.
    recoveries: Arc<Recoveries>,
    /// The names that were found to have gone back by themselves, since the last recovery.
    names_gone_back: HashSet<SequenceName>,
    /// Whether this process ends, and writes nothing more.
    has_ended: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Sound,
    /// A guard did not hold, and a look must tell why. Nothing is guarded meanwhile.
    Doubted,
    /// The database is a copy, as its stamp says. If nothing was lost, it can be stamped again.
    Copy,
    /// Something is gone that this process has seen, though the stamp may fit. Nobody can compute
    /// since when, so only a recovery helps in which an operator says what was lost.
    Lost,
}

impl Trust {
    /// Checks that statements may be guarded now.
    ///
    /// # Errors
    /// `WentBack`, or `Unavailable` while the database is doubted, and when this process ends.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.standing {
            Standing::Sound if self.has_ended => Err(StoreError::Unavailable),
            Standing::Sound => Ok(()),
            Standing::Doubted => Err(StoreError::Unavailable),
            Standing::Copy | Standing::Lost => Err(StoreError::WentBack),
        }
    }

    pub(crate) fn is_doubted(&self) -> bool {
        self.standing == Standing::Doubted
    }

    pub(crate) fn has_gone_back(&self) -> bool {
        matches!(self.standing, Standing::Copy | Standing::Lost)
    }

    /// Returns whether something is gone that this process has seen.
    pub(crate) fn is_lost(&self) -> bool {
        self.standing == Standing::Lost
    }

    /// Returns whether the store has gone back, for all names or for one.
    pub(crate) fn shows_loss(&self) -> bool {
        self.has_gone_back() || !self.names_gone_back.is_empty()
    }

    pub(crate) fn branch(&self) -> Option<i64> {
        self.branch
    }

    pub(crate) fn confirmed(&self) -> Option<i64> {
        self.confirmed
    }

    pub(crate) fn sent(&self) -> i64 {
        self.sent
    }

    pub(crate) fn n_recoveries(&self) -> u64 {
        self.n_recoveries
    }

    pub(crate) fn was_recovered(&self) -> bool {
        self.was_recovered
    }

    /// Returns the last recovery that this process has seen, and that did not raise one sequence
    /// alone.
    pub(crate) fn recovered_at(&self) -> Option<i64> {
        self.recovered_at
    }

    /// Returns the next value of the heartbeat, above every value that was sent.
    pub(crate) fn next(&mut self) -> i64 {
        self.sent = self.sent.saturating_add(1);
        self.sent
    }

    /// Notes that a value of the heartbeat is in the database.
    pub(crate) fn confirm(&mut self, beat: i64) {
        self.confirmed = Some(beat);
    }

    /// Notes that this process ends. Nothing is guarded from here on.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Notes the recoveries that the database had before the first contact.
    pub(crate) fn met(&mut self, recovered_at: Option<i64>, recoveries: Recoveries) {
        self.recovered_at = recovered_at;
        self.recoveries = Arc::new(recoveries);
    }

    /// Notes that a guard did not hold that was made after `n_recoveries` recoveries.
    pub(crate) fn doubt(&mut self, n_recoveries: u64) {
        if self.n_recoveries == n_recoveries && self.standing == Standing::Sound {
            self.standing = Standing::Doubted;
        }
    }

    /// Notes that the database is where this process knows it, on `branch`, as far as the server
    /// says that. What was lost stays lost.
    pub(crate) fn fits(&mut self, branch: Option<i64>) {
        self.branch = branch.or(self.branch);
        if self.standing != Standing::Lost {
            self.standing = Standing::Sound;
        }
    }

    /// Notes that the database is a copy. Returns whether that is news.
    pub(crate) fn is_a_copy(&mut self) -> bool {
        let is_news = !self.has_gone_back();
        if is_news {
            self.standing = Standing::Copy;
        }
        is_news
    }

    /// Notes that something is gone, found by a read that began after `n_recoveries` recoveries. A
    /// read that began before a recovery says nothing of the time after that recovery, so it is
    /// ignored. Returns whether that is news.
    pub(crate) fn lost(&mut self, n_recoveries: u64) -> bool {
        if self.n_recoveries != n_recoveries {
            return false;
        }
        let is_news = self.standing != Standing::Lost;
        self.standing = Standing::Lost;
        is_news
    }

    /// Notes that a name has gone back by itself. Returns whether that is news.
    pub(crate) fn name_is_lost(&mut self, name: &SequenceName) -> bool {
        self.names_gone_back.len() < MAX_NAMES && self.names_gone_back.insert(name.clone())
    }

    /// Forgets which names have gone back by themselves. Returns whether there were any.
    pub(crate) fn forget_names(&mut self) -> bool {
        !std::mem::take(&mut self.names_gone_back).is_empty()
    }

    pub(crate) fn recoveries(&self) -> &Arc<Recoveries> {
        &self.recoveries
    }

    /// Notes that the database was recovered, and the branch that it is on now. What was lost stays
    /// lost, unless an operator `has_said` since what it is.
    pub(crate) fn recovered(&mut self, met: Met, has_said: bool) {
        if has_said || self.standing != Standing::Lost {
            self.standing = Standing::Sound;
        }
        self.branch = met.branch;
        self.was_recovered |= met.recoveries.raised_all_since(&self.recoveries);
        self.n_recoveries = self.n_recoveries.saturating_add(1);
        self.met(met.recovered_at, met.recoveries);
        self.names_gone_back.clear();
    }
}

/// What a process reads of a database when it meets one of its branches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Met {
    /// `None` if the database was never stamped.
    pub(crate) branch: Option<i64>,
    /// The last recovery (Unix ms).
    pub(crate) recovered_at: Option<i64>,
    pub(crate) recoveries: Recoveries,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(trust: &Trust) -> &'static str {
        match trust.check() {
            Ok(()) => "sound",
            Err(StoreError::WentBack) => "went back",
            Err(_) => "doubted",
        }
    }

    #[test]
    fn a_doubt_ends_with_a_look_and_a_copy_with_a_stamp() {
        let mut trust = Trust::default();
        trust.fits(Some(7));
        trust.doubt(0);
        assert_eq!(word(&trust), "doubted");
        trust.fits(Some(7));
        assert_eq!(word(&trust), "sound");
        assert!(trust.is_a_copy());
        trust.doubt(0);
        assert_eq!(word(&trust), "went back");
        assert!(!trust.is_a_copy());
        trust.fits(Some(7));
        assert_eq!(word(&trust), "sound");
    }

    #[test]
    fn a_process_that_has_ended_writes_nothing_more() {
        let mut trust = Trust::default();
        trust.fits(Some(7));
        trust.end();
        assert!(matches!(trust.check(), Err(StoreError::Unavailable)));
        trust.fits(Some(7));
        assert!(matches!(trust.check(), Err(StoreError::Unavailable)));
        assert!(trust.lost(0));
        assert!(matches!(trust.check(), Err(StoreError::WentBack)));
    }

    #[test]
    fn what_was_lost_stays_lost_until_an_operator_says_what_it_is() {
        let mut trust = Trust::default();
        trust.fits(Some(7));
        assert!(trust.lost(0));
        trust.fits(Some(7));
        assert!(!trust.is_a_copy());
        assert_eq!(word(&trust), "went back");
        let met = |branch| Met {
            branch: Some(branch),
            ..Met::default()
        };
        trust.recovered(met(8), false);
        assert_eq!(word(&trust), "went back");
        trust.recovered(met(9), true);
        assert_eq!(word(&trust), "sound");
        assert_eq!(trust.branch(), Some(9));
        // Reads and guards from before the recovery say nothing of the time after it.
        assert!(!trust.lost(0));
        trust.doubt(0);
        assert_eq!(word(&trust), "sound");
    }
}
