//! Keeps a name that is not used: its counter and its blocks, in a third of the memory of an
//! issuer.
//!
//! Most names of a replica are used rarely. An issuer has a cursor, locks and atomic words for
//! callers on all threads. A parked name has no callers, so it needs none of these.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use odometer_core::{block::Block, name::SequenceName, period::CounterKey, sizing::Rates};
use odometer_store::Resolved;

use crate::{
    issuer::memory::Issuer,
    issuer::ownership::Ownership,
    issuer::state::{IssuerState, LastRefill, OpenBlock},
};

/// The counter of a name that is not used, with its blocks.
pub(crate) struct ParkedName {
    known: Resolved,
    /// The blocks whose fate is open, in the order in which they were reserved.
    blocks: Box<[ParkedBlock]>,
    floor: i64,
    life_version: i64,
    reload_version: i64,
    floor_version: i64,
    issued_below: i64,
    rates: Rates,
    sampled_at: Instant,
    used_at: Instant,
    last_refill: Option<LastRefill>,
    is_used: bool,
    has_rate: bool,
    is_retired: bool,
    must_reload: bool,
    adopts: bool,
}

/// A block whose numbers from `next_unissued` on are in memory.
#[derive(Clone, Copy)]
pub(crate) struct ParkedBlock {
    pub(crate) open: OpenBlock,
    /// The end of the block if none of its numbers is in memory.
    pub(crate) next_unissued: i64,
}

impl ParkedBlock {
    /// Returns the numbers in memory.
    fn rest(&self) -> Option<Block> {
        let block = self.open.block;
        let n_left = block.count_from(self.next_unissued);
        block.split_front(block.count().saturating_sub(n_left)).1
    }
}

impl ParkedName {
    /// Keeps the counter of `state`, which has no numbers any more, with these blocks.
    pub(crate) fn new(known: Resolved, state: &IssuerState, blocks: Vec<ParkedBlock>) -> Self {
        Self {
            known,
            blocks: blocks.into_boxed_slice(),
            floor: state.floor,
            life_version: state.life_version,
            reload_version: state.reload_version,
            floor_version: state.floor_version,
            issued_below: state.issued_below,
            rates: state.rates,
            sampled_at: state.sampled_at,
            used_at: state.used_at,
            last_refill: state.last_refill,
            is_used: state.is_used,
            has_rate: state.has_rate,
            is_retired: state.is_retired,
            must_reload: state.must_reload,
            adopts: state.adopts,
        }
    }

    /// Makes an issuer that goes on where the name was parked. If a number in memory may be
    /// forbidden by now, the issuer gives none before it has an actor, which looks at them.
    pub(crate) fn issuer(&self, name: SequenceName) -> Arc<Issuer> {
        let issuer = Arc::new(self.reader(name));
        let is_forbidden = {
            let memory = issuer.memory.lock();
            memory.spare.iter().any(|rest| memory.forbids(*rest))
        };
        let owner = Ownership::take_over(&issuer, issuer.terms.current());
        if let Some(owner) = owner.filter(|_| !is_forbidden) {
            owner.refill_cursor();
        }
        issuer
    }

    /// Makes an issuer for a reader. Nothing can be taken from it.
    pub(crate) fn reader(&self, name: SequenceName) -> Issuer {
        Issuer::resume(CounterKey::whole(name), self.state())
    }

    /// Returns the state of an issuer that goes on now.
    fn state(&self) -> IssuerState {
        let definition = Arc::clone(&self.known.definition);
        let mut state = IssuerState {
            known: Some(self.known.clone()),
            held: self.blocks.iter().map(|block| block.open).collect(),
            spare: self.blocks.iter().filter_map(ParkedBlock::rest).collect(),
            floor: self.floor,
            life_version: self.life_version,
            reload_version: self.reload_version,
            floor_version: self.floor_version,
            issued_below: self.issued_below,
            rates: self.rates,
            used_at: self.used_at,
            last_refill: self.last_refill,
            is_used: self.is_used,
            has_rate: self.has_rate,
            is_retired: self.is_retired,
            must_reload: self.must_reload,
            adopts: self.adopts,
            ..IssuerState::new(definition)
        };
        // No number was issued while the name was parked.
        let parked_for = state.sampled_at.saturating_duration_since(self.sampled_at);
        state.rates.sample(0, parked_for.as_secs_f64());
        state
    }

    /// Returns this name with a changed state, and what `change` returns.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut IssuerState) -> bool) -> (Self, bool) {
        let mut state = self.state();
        let answer = change(&mut state);
        let known = state.known.take().unwrap_or_else(|| self.known.clone());
        (Self::new(known, &state, self.blocks.to_vec()), answer)
    }

    /// Returns the store that the sequence lives in.
    pub(crate) fn store(&self) -> &str {
        &self.known.definition.store
    }

    /// Returns for how long the name was not used.
    pub(crate) fn idle_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.used_at)
    }

    /// Returns whether numbers of the name are in memory.
    pub(crate) fn has_numbers(&self) -> bool {
        self.blocks.iter().any(|block| block.rest().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parked_name_is_small() {
        // The name itself and its place in the map come on top of this.
        let n_bytes = size_of::<ParkedName>() + size_of::<ParkedBlock>();
        assert!(n_bytes <= 280, "{n_bytes}");
        assert!(n_bytes * 3 < size_of::<Issuer>() + size_of::<OpenBlock>());
    }
}
