//! Holds the state of a counter that outlives its actor.

use std::{
    collections::VecDeque,
    num::NonZeroI64,
    sync::Arc,
    time::{Duration, Instant},
};

use odometer_core::{
    block::Block,
    definition::Definition,
    name::SequenceName,
    period::CounterKey,
    sizing::{Rates, SizeReason},
};
use odometer_process::{
    clock,
    faults::{self, Fault},
};
use odometer_store::{Changed, JournalRow, Reserved, Resolved, SeenCounter, SeenRecovery, Source};
use uuid::Uuid;

use crate::inspection::description::BlockState;

/// Bounds the age of an answer of the store that counts as fresh.
const FRESH: Duration = Duration::from_secs(1);
/// Lies below every version of a definition.
const NO_VERSION: i64 = -1;

/// The state that outlives an actor.
pub(crate) struct IssuerState {
    /// The definition by which the issuer was made, or a later one that needs the same issuer.
    /// Numbers are printed by it.
    pub(crate) definition: Arc<Definition>,
    /// Definition and counter as last seen in the store; `None` before the counter was read.
    pub(crate) known: Option<Resolved>,
    /// When the counter was read, if nothing was heard since that may have changed it.
    pub(crate) read_at: Option<Instant>,
    /// Whether a reservation was made, or a worker id was leased.
    pub(crate) is_used: bool,
    /// Whether the rate that is stored with the counter was taken over.
    pub(crate) has_rate: bool,
    /// No number below the floor is issued any more.
    pub(crate) floor: i64,
    /// Whether the sequence is retired, as far as memory knows: the last known change left it so.
    /// `life_version` is the version of that change.
    pub(crate) is_retired: bool,
    pub(crate) life_version: i64,
    /// Whether all held numbers must be given back, because memory does not know which of them a
    /// change forbids. Blocks reserved before version `reload_version` of the definition must be
    /// given back, too.
    pub(crate) must_reload: bool,
    pub(crate) reload_version: i64,
    /// The last version of the definition at which the floor of this counter is known.
    pub(crate) floor_version: i64,
    /// The blocks whose fate is open, in the order in which they were reserved.
    pub(crate) held: Box<[OpenBlock]>,
    /// Blocks that did not fit into the cursor, in the order in which they will be issued.
    pub(crate) spare: VecDeque<Block>,
    pub(crate) rates: Rates,
    pub(crate) n_sampled: u64,
    pub(crate) sampled_at: Instant,
    pub(crate) used_at: Instant,
    /// Whether the next refill looks for returned blocks to adopt.
    pub(crate) adopts: bool,
    /// A bound above every number that this process issued or holds.
    pub(crate) issued_below: i64,
    pub(crate) last_refill: Option<LastRefill>,
    /// Whether the first reservation was made to fail, for tests.
    pub(crate) failed_once: bool,
}

/// A block whose fate is open: its row in the journal, without the key of its counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenBlock {
    pub(crate) id: Uuid,
    pub(crate) block: Block,
    pub(crate) source: Source,
    pub(crate) reserved_at: i64,
    /// The last recovery that this process had seen before the reservation (Unix ms).
    pub(crate) recovered_at: Option<NonZeroI64>,
}

impl OpenBlock {
    fn of(reserved: &Reserved) -> Self {
        Self {
            id: reserved.id,
            block: reserved.block,
            source: reserved.source,
            reserved_at: reserved.reserved_at,
            recovered_at: reserved.recovered_at.and_then(NonZeroI64::new),
        }
    }

    /// Returns the first number of the block that is in `left`, which are the blocks in memory.
    pub(crate) fn first_of<'a>(&self, left: impl IntoIterator<Item = &'a Block>) -> Option<i64> {
        let mut firsts = left.into_iter().map(Block::first);
        firsts.find(|first| self.block.contains(*first))
    }

    /// Returns the row of the block in the journal.
    pub(crate) fn row(&self, key: &CounterKey) -> JournalRow {
        JournalRow {
            id: self.id,
            key: key.clone(),
            block: self.block,
            source: self.source,
            reserved_at: self.reserved_at,
            recovered_at: self.recovered_at.map(NonZeroI64::get),
        }
    }
}

/// The numbers that were issued since the previous sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampled {
    pub(crate) n_issued: u64,
    /// When the previous sample was taken.
    pub(crate) since: Instant,
}

/// The result of the last refill.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastRefill {
    /// In milliseconds since the Unix epoch.
    pub(crate) at_ms: i64,
    pub(crate) size: u64,
    pub(crate) why: Option<SizeReason>,
    /// Whether the reservation met two or more conflicts.
    pub(crate) met_conflicts: bool,
}

impl IssuerState {
    pub(crate) fn new(definition: Arc<Definition>) -> Self {
        let now = Instant::now();
        Self {
            definition,
            known: None,
            read_at: None,
            is_used: false,
            has_rate: false,
            floor: 0,
            is_retired: false,
            life_version: 0,
            must_reload: false,
            reload_version: NO_VERSION,
            floor_version: NO_VERSION,
            held: Box::default(),
            spare: VecDeque::new(),
            rates: Rates::default(),
            n_sampled: 0,
            sampled_at: now,
            used_at: now,
            adopts: true,
            issued_below: 0,
            last_refill: None,
            failed_once: false,
        }
    }

    /// Returns whether the counter was read just now, once for each time that it was read.
    pub(crate) fn take_is_fresh(&mut self) -> bool {
        let read_at = self.read_at.take();
        read_at.is_some_and(|at| at.elapsed() < FRESH)
    }

    /// Notes that the counter was read by itself, not by a reservation.
    pub(crate) fn note_read(&mut self, known: Resolved, rate: Option<f64>) {
        self.know(known, rate);
        self.read_at = Some(Instant::now());
    }

    /// Returns the counter as this process last saw it. A counter is never below its floor. If the
    /// store has a counter below its floor, the store went back.
    pub(crate) fn last_seen(&self) -> Option<SeenCounter> {
        let seen = self.known.as_ref()?.seen;
        Some(SeenCounter {
            next_value: seen.next_value.max(self.floor),
            ..seen
        })
    }

    /// Notes everything that a reservation brought, but does not add the numbers to memory.
    pub(crate) fn note_reserved(&mut self, reserved: &Reserved) {
        self.know(reserved.known.clone(), reserved.stored_rate);
        self.adopts = reserved.more_to_adopt;
        self.issued_below = self.issued_below.max(reserved.block.end());
        self.hold(OpenBlock::of(reserved));
        self.last_refill = Some(LastRefill {
            at_ms: clock::now_ms(),
            size: reserved.block.count(),
            why: reserved.why,
            met_conflicts: reserved.n_conflicts >= 2,
        });
        self.used_at = Instant::now();
    }

    /// Notes what the store returned of the sequence and the counter.
    pub(crate) fn know(&mut self, mut known: Resolved, stored_rate: Option<f64>) {
        if let (false, Some(rate)) = (self.has_rate, stored_rate) {
            self.has_rate = true;
            // A counter that is filled before its period begins already has the rate of the period
            // before.
            self.rates = Rates::resume(rate.max(self.rates.average()));
        }
        self.must_reload |= known.definition_version < self.reload_version;
        if stored_rate.is_some() {
            // The row of the counter was read together with the definition.
            self.floor_version = self.floor_version.max(known.definition_version);
        }
        let newer = self
            .known
            .take()
            .filter(|newer| newer.definition_version > known.definition_version);
        if let Some(newer) = newer {
            // A change arrived while the reservation was under way, so the counter has moved since.
            known.definition = newer.definition;
            known.definition_version = newer.definition_version;
            known.trusted = false;
        }
        self.floor = self.floor.max(known.floor);
        if known.definition_version > self.life_version {
            // The store returned the sequence as live after the last known change.
            self.is_retired = false;
        }
        self.known = Some(known);
    }

    /// Holds one block more.
    pub(crate) fn hold(&mut self, open: OpenBlock) {
        let held = std::mem::take(&mut self.held).into_iter();
        self.held = held.chain([open]).collect();
    }

    /// Takes all blocks out of memory. Returns each open block with its first number that was not
    /// issued, if there is one. The cursor must be closed, and its numbers spare.
    pub(crate) fn take_out(&mut self) -> Vec<(OpenBlock, Option<i64>)> {
        let left = std::mem::take(&mut self.spare);
        let held = std::mem::take(&mut self.held).into_iter();
        held.map(|open| (open, open.first_of(&left))).collect()
    }

    /// Returns whether a change forbids the block, or may forbid it. Of a period, memory may not
    /// know what the change forbids.
    pub(crate) fn forbids(&self, block: Block) -> bool {
        self.is_retired || self.must_reload || block.first() < self.floor
    }

    /// Notes a change, even if a later change is known already. From then on its floor holds.
    /// Returns false if the sequence needs another issuer by now.
    pub(crate) fn note_changed(&mut self, changed: &Changed, floor: i64) -> bool {
        self.read_at = None;
        let changed_to = changed.definition.as_ref();
        let fits = changed_to.is_none_or(|it| it.has_same_issuer(&self.definition));
        self.floor = self.floor.max(floor);
        if changed.version >= self.life_version {
            self.life_version = changed.version;
            self.is_retired = !changed.is_live;
        }
        if let Some(known) = &mut self.known
            && known.definition_version < changed.version
        {
            if let (Some(definition), true) = (changed_to, fits) {
                known.definition = Arc::clone(definition);
                known.definition_version = changed.version;
            }
            // The change raised the version of the counter, too: read the counter before the next
            // write.
            known.trusted = false;
        }
        fits
    }

    /// Makes the next reservation read definition and life again, because a database was recovered.
    /// Does this only if the sequence lives in the store of the database, or if blocks of the
    /// database are held.
    ///
    /// What was seen of the counter stays, and so does the floor. Returns whether blocks of the
    /// database are held that must leave memory.
    pub(crate) fn distrust(
        &mut self,
        name: &SequenceName,
        seen: &SeenRecovery,
        is_of: impl Fn(&str) -> bool,
    ) -> bool {
        let lives_there = |known: &Resolved| is_of(&known.definition.store);
        let holds_any = !seen.kept.are_of(name)
            && self.held.iter().any(|row| row.source == seen.source)
            && !faults::is(Fault::RecoveryKeepsMemory);
        if !holds_any && !self.known.as_ref().is_none_or(lives_there) {
            return false;
        }
        self.read_at = None;
        self.must_reload |= holds_any;
        self.is_retired = false;
        self.life_version = NO_VERSION;
        self.reload_version = NO_VERSION;
        self.floor_version = NO_VERSION;
        if let Some(known) = &mut self.known {
            known.trusted = false;
            known.definition_version = NO_VERSION;
        }
        holds_any
    }

    /// Returns the numbers a second since the last sample. For a parked name, that sample may be a
    /// minute old.
    pub(crate) fn this_second(&self, n_issued: u64) -> u64 {
        let n_since = n_issued.saturating_sub(self.n_sampled);
        n_since / self.sampled_at.elapsed().as_secs().max(1)
    }

    /// Returns the block that `left` is the rest of.
    pub(crate) fn block_of(&self, left: &Block) -> BlockState {
        let whole = self
            .held
            .iter()
            .map(|row| row.block)
            .find(|block| block.contains(left.first()))
            .unwrap_or(*left);
        BlockState {
            first: whole.first(),
            last: whole.last(),
            remaining: left.count(),
            size: whole.count(),
        }
    }
}

impl LastRefill {
    /// Explains the size of the block.
    pub(crate) fn describe(self) -> String {
        match self.why {
            Some(why) => format!("{} numbers: {why}", self.size),
            None => format!(
                "{} numbers: adopted, another replica had returned them",
                self.size
            ),
        }
    }
}
