//! Decides who may change what an issuer holds: one actor at a time.
//!
//! An issuer counts its owners. An actor becomes the owner by one compare-exchange on that count.
//! From then on, no block that was reserved for an earlier owner can be published. What an owner
//! does with the blocks is in `held_blocks`.

use std::{ops::Deref, sync::Arc};

use odometer_store::{Reserved, Unpublished};

use crate::issuer::memory::Issuer;

/// The right to reserve for an issuer, to fill and close its cursor, and to return its blocks.
pub(crate) struct Ownership {
    issuer: Arc<Issuer>,
    term: u64,
}

impl Ownership {
    /// Becomes the owner of the issuer after the owner of `term`. Returns `None` if another actor
    /// was faster.
    pub(crate) fn take_over(issuer: &Arc<Issuer>, term: u64) -> Option<Self> {
        Some(Self {
            issuer: Arc::clone(issuer),
            term: issuer.terms.begin_after(term)?,
        })
    }

    pub(crate) fn issuer(&self) -> &Arc<Issuer> {
        &self.issuer
    }

    pub(crate) fn is_current(&self) -> bool {
        self.issuer.terms.current() == self.term
    }

    /// Makes the owner responsible for the block from now on. The block counts as abandoned if this
    /// owner is a former one, or if its database was recovered meanwhile.
    pub(crate) fn publish(&self, block: Unpublished) -> Option<Reserved> {
        block.publish_for(self.is_current())
    }
}

impl Deref for Ownership {
    type Target = Issuer;

    fn deref(&self) -> &Issuer {
        &self.issuer
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests may fail loudly"
)]
mod tests {
    use odometer_core::{block::Block, name::SequenceName, period::CounterKey};
    use odometer_process::metrics::Metrics;

    use super::*;

    fn issuer() -> Arc<Issuer> {
        Arc::new(Issuer::for_tests(key()))
    }

    fn key() -> CounterKey {
        CounterKey::whole(SequenceName::parse("orders").unwrap())
    }

    fn reserved(metrics: &Arc<Metrics>) -> Unpublished {
        let block = Block::new(1, 25, 1).unwrap();
        Issuer::block_for_tests(key(), block, Arc::clone(metrics))
    }

    #[test]
    fn one_of_two_takes_over() {
        let issuer = issuer();
        let term = issuer.terms.current();
        let won: Vec<bool> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| scope.spawn(|| Ownership::take_over(&issuer, term).is_some()))
                .collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(won.iter().filter(|won| **won).count(), 1);
    }

    #[test]
    fn what_was_reserved_for_a_former_owner_is_abandoned() {
        let metrics = Arc::new(Metrics::new());
        let issuer = issuer();
        let former = Ownership::take_over(&issuer, issuer.terms.current()).unwrap();
        let present = Ownership::take_over(&issuer, issuer.terms.current()).unwrap();
        assert!(former.publish(reserved(&metrics)).is_none());
        assert!(present.publish(reserved(&metrics)).is_some());
        let abandoned = "odometer_abandoned_numbers_total{cause=\"actor_died\"} 25";
        let scrape = metrics.render();
        assert!(scrape.contains(abandoned), "{scrape}");
    }
}
