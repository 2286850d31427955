//! Keeps a name that is not used: its counter and its blocks, in a sixth of the memory of an
//! issuer.
//!
//! Most names of a replica are used rarely. An issuer has a cursor, locks and atomic words for
//! callers on all threads. A parked name has no callers, so it needs none of these. It needs no
//! fields either: most of its values are small, so each is written in as few bytes as it needs.

use std::{
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
use odometer_store::{Resolved, Source};
use uuid::Uuid;

use crate::{
    issuer::held_blocks::rest,
    issuer::memory::Issuer,
    issuer::ownership::Ownership,
    issuer::state::{IssuerState, OpenBlock},
};

/// The counter of a name that is not used, with its blocks.
pub(crate) struct ParkedName {
    definition: Arc<Definition>,
    used_at: Instant,
    /// What [`pass_state`] passed, and then each open block with its first number in memory.
    bytes: Box<[u8]>,
}

/// Appends a number in as few bytes as it needs: seven bits in each byte, the lowest bits first.
/// The eighth bit says that bytes follow. The lowest bit of all is the sign, so numbers just below
/// 0 are short, too.
fn write(bytes: &mut Vec<u8>, number: i64) {
    let mut left = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while left > 0x7f {
        let [low, ..] = left.to_le_bytes();
        bytes.push(low | 0x80);
        left >>= 7;
    }
    bytes.extend(u8::try_from(left));
}

/// Returns the next number of those that [`write()`] has appended.
fn read<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> i64 {
    let mut number: u64 = 0;
    for (byte, shift) in bytes.zip((0..u64::BITS).step_by(7)) {
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// Passes the state of a counter through `pass`, which writes each number, or reads another one in
/// its place. The blocks, the definition and the time of the last use are left out.
fn pass_state(pass: &mut impl FnMut(i64) -> i64, state: &mut IssuerState) {
    let known = state.known.get_or_insert_default();
    known.definition_version = pass(known.definition_version);
    known.seen.next_value = pass(known.seen.next_value);
    known.seen.version = pass(known.seen.version);
    known.revision = pass(known.revision);
    known.floor = pass(known.floor);
    known.trusted = pass(i64::from(known.trusted)) != 0;
    state.is_used = pass(i64::from(state.is_used)) != 0;
    state.has_rate = pass(i64::from(state.has_rate)) != 0;
    state.floor = pass(state.floor);
    state.is_retired = pass(i64::from(state.is_retired)) != 0;
    state.life_version = pass(state.life_version);
    state.must_reload = pass(i64::from(state.must_reload)) != 0;
    state.reload_version = pass(state.reload_version);
    state.floor_version = pass(state.floor_version);
    state.adopts = pass(i64::from(state.adopts)) != 0;
    state.issued_below = pass(state.issued_below);
    // The rate of the last second is 0 once the name goes on.
    let average = pass(state.rates.average().to_bits().cast_signed());
    state.rates = Rates::resume(f64::from_bits(average.cast_unsigned()));
    let sampled_after = state.sampled_at.saturating_duration_since(state.used_at);
    let nanos = pass(i64::try_from(sampled_after.as_nanos()).unwrap_or(i64::MAX));
    state.sampled_at = state.used_at + Duration::from_nanos(nanos.unsigned_abs());
    if pass(i64::from(state.last_refill.is_some())) != 0 {
        let refill = state.last_refill.get_or_insert_default();
        refill.at_ms = pass(refill.at_ms);
        refill.size = pass(refill.size.cast_signed()).cast_unsigned();
        refill.met_conflicts = pass(i64::from(refill.met_conflicts)) != 0;
        let why = pass(refill.why.map_or(-1, |why| why as i64));
        let why_at = |place: usize| SizeReason::ALL.get(place).copied();
        refill.why = usize::try_from(why).ok().and_then(why_at);
    }
}

/// Passes an open block through `pass` in the same way. Without a block, one is read.
fn pass_block(pass: &mut impl FnMut(i64) -> i64, written: Option<&OpenBlock>) -> Option<OpenBlock> {
    let mut pass = |number: fn(&OpenBlock) -> i64| pass(written.map_or(0, number));
    let id = [
        pass(|open| open.id.as_u64_pair().0.cast_signed()),
        pass(|open| open.id.as_u64_pair().1.cast_signed()),
    ];
    let [high, low] = id.map(i64::cast_unsigned);
    let first = pass(|open| open.block.first());
    let count = pass(|open| open.block.count().cast_signed());
    let step = pass(|open| open.block.step());
    let store = pass(|open| i64::from(open.source.store));
    let database = pass(|open| i64::from(open.source.database));
    let reserved_at = pass(|open| open.reserved_at);
    let recovered_at = pass(|open| open.recovered_at.map_or(0, NonZeroI64::get));
    Some(OpenBlock {
        id: Uuid::from_u64_pair(high, low),
        block: Block::new(first, count.cast_unsigned(), step).ok()?,
        source: Source {
            store: u16::try_from(store).ok()?,
            database: u16::try_from(database).ok()?,
        },
        reserved_at,
        recovered_at: NonZeroI64::new(recovered_at),
    })
}

impl ParkedName {
    /// Keeps the counter of `state`, with the blocks in it. The state has no blocks after that.
    pub(crate) fn new(state: &mut IssuerState) -> Self {
        let mut bytes = Vec::new();
        let mut pass = |number| {
            write(&mut bytes, number);
            number
        };
        pass_state(&mut pass, state);
        for (open, next_unissued) in state.take_out() {
            pass_block(&mut pass, Some(&open));
            pass(next_unissued.unwrap_or(open.block.end()));
        }
        let known = state.known.as_ref();
        let definition = known.map_or(&state.definition, |known| &known.definition);
        Self {
            definition: Arc::clone(definition),
            used_at: state.used_at,
            // A copy has no spare capacity, and splits no larger piece of memory.
            bytes: bytes.as_slice().into(),
        }
    }

    /// Makes an issuer that goes on where the name was parked. If a number in memory may be
    /// forbidden by now, the issuer gives none before it has an actor, which looks at them.
    pub(crate) fn issuer(&self, name: SequenceName) -> Arc<Issuer> {
        let state = self.state();
        let is_forbidden = state.spare.iter().any(|rest| state.forbids(*rest));
        let issuer = Arc::new(Issuer::resume(CounterKey::whole(name), state));
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
        let mut state = IssuerState::new(Arc::clone(&self.definition));
        let now = state.sampled_at;
        state.used_at = self.used_at;
        state.known = Some(Resolved {
            definition: Arc::clone(&self.definition),
            ..Resolved::default()
        });
        let mut left = self.bytes.iter();
        pass_state(&mut |_| read(&mut left), &mut state);
        while !left.as_slice().is_empty() {
            let open = pass_block(&mut |_| read(&mut left), None);
            let next_unissued = read(&mut left);
            if let Some(open) = open {
                state.spare.extend(rest(open.block, next_unissued));
                state.hold(open);
            }
        }
        // No number was issued while the name was parked.
        let parked_for = now.saturating_duration_since(state.sampled_at);
        state.rates.sample(0, parked_for.as_secs_f64());
        state.sampled_at = now;
        state
    }

    /// Returns this name with a changed state, and what `change` returns.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut IssuerState) -> bool) -> (Self, bool) {
        let mut state = self.state();
        let answer = change(&mut state);
        (Self::new(&mut state), answer)
    }

    /// Returns the store that the sequence lives in.
    pub(crate) fn store(&self) -> &str {
        &self.definition.store
    }

    /// Returns for how long the name was not used.
    pub(crate) fn idle_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.used_at)
    }

    /// Returns whether numbers of the name are in memory.
    pub(crate) fn has_numbers(&self) -> bool {
        !self.state().spare.is_empty()
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

    use odometer_store::SeenCounter;

    use super::*;
    use crate::issuer::state::LastRefill;

    const N_STATES: u64 = 1000;

    fn known() -> Resolved {
        Resolved {
            definition: Arc::default(),
            definition_version: 1,
            seen: SeenCounter {
                next_value: 1001,
                version: 2,
            },
            revision: 1,
            floor: 1,
            trusted: true,
        }
    }

    fn open(first: i64, count: u64) -> OpenBlock {
        OpenBlock {
            id: Uuid::now_v7(),
            block: Block::new(first, count, 1).unwrap(),
            source: Source::default(),
            reserved_at: 1_800_000_000_000,
            recovered_at: None,
        }
    }

    #[test]
    fn a_parked_name_is_small() {
        let mut state = IssuerState::new(Arc::default());
        state.held = [open(1, 1000)].into();
        state.spare = [open(2, 999).block].into();
        state.rates.sample(1, 1.0);
        state.issued_below = 1001;
        state.last_refill = Some(LastRefill {
            at_ms: 1_800_000_000_000,
            size: 1000,
            why: Some(SizeReason::Minimum),
            met_conflicts: false,
        });
        state.known = Some(known());
        let name = ParkedName::new(&mut state);
        // The name itself and its place in the map come on top of this.
        let n_bytes = size_of::<ParkedName>() + name.bytes.len();
        assert!(n_bytes <= 115, "{n_bytes}");
        assert!(n_bytes * 6 < size_of::<Issuer>() + size_of::<OpenBlock>());
    }

    /// Draws small numbers, and numbers of any size.
    fn any(random: &mut StdRng) -> i64 {
        random.random::<i64>() >> random.random_range(0..64)
    }

    /// Draws a block of the `n`th quarter of all numbers. Some of the last quarter end at 2^63 − 1.
    fn any_block(random: &mut StdRng, n: i64) -> Block {
        let (count, step) = (
            1_u64 << random.random_range(0..=32),
            1_i64 << random.random_range(0..=28),
        );
        let quarter = 1 << 61;
        let most = quarter - count.cast_signed() * step - 1;
        let first = match random.random() {
            true => most,
            false => random.random_range(0..=most),
        };
        Block::new(n * quarter + first, count, step).unwrap()
    }

    #[test]
    fn all_that_outlives_an_actor_is_kept() {
        for seed in 0..N_STATES {
            let random = &mut StdRng::seed_from_u64(seed);
            let mut known = known();
            known.definition_version = any(random);
            known.seen.next_value = any(random);
            known.seen.version = any(random);
            known.revision = any(random);
            known.floor = any(random);
            known.trusted = random.random();
            let mut state = IssuerState::new(Arc::clone(&known.definition));
            state.is_used = random.random();
            state.has_rate = random.random();
            state.floor = any(random);
            state.is_retired = random.random();
            state.life_version = any(random);
            state.must_reload = random.random();
            state.reload_version = any(random);
            state.floor_version = any(random);
            state.adopts = random.random();
            state.issued_below = any(random);
            state.rates = Rates::resume(f64::from_bits(random.random()));
            state.used_at -= Duration::from_nanos(random.random_range(0..1 << 40));
            let why = SizeReason::ALL
                .get(random.random_range(0..9_usize))
                .copied();
            state.last_refill = random.random::<bool>().then(|| LastRefill {
                at_ms: any(random),
                size: random.random(),
                why,
                met_conflicts: random.random(),
            });
            for n in 0..random.random_range(0..=4_i64) {
                let mut open = open(0, 1);
                open.id = Uuid::from_u128(random.random());
                open.block = any_block(random, n);
                open.source.store = random.random();
                open.source.database = random.random();
                open.reserved_at = any(random);
                open.recovered_at = NonZeroI64::new(any(random)).filter(|_| random.random());
                state.hold(open);
                let n_issued = random.random_range(0..=open.block.count());
                state.spare.extend(open.block.split_front(n_issued).1);
            }
            let expected = said(&state, &known);
            // The average falls from the last sample to the end of the rest.
            let sampled_at = state.sampled_at;
            let mut rates = state.rates;
            state.known = Some(known);
            let parked = ParkedName::new(&mut state);
            let woken = parked.state();
            let rested = woken.sampled_at - sampled_at;
            rates.sample(0, rested.as_secs_f64());
            assert_eq!(woken.rates, rates, "seed {seed}");
            assert_eq!(
                said(&woken, woken.known.as_ref().unwrap()),
                expected,
                "seed {seed}"
            );
        }
    }

    /// Returns all that must be the same when a name is woken.
    fn said(state: &IssuerState, known: &Resolved) -> String {
        let flags = [
            state.is_used,
            state.has_rate,
            state.is_retired,
            state.must_reload,
            state.adopts,
        ];
        let versions = [
            state.life_version,
            state.reload_version,
            state.floor_version,
        ];
        let bounds = [state.floor, state.issued_below];
        let (held, refill) = (&state.held, &state.last_refill);
        format!(
            "{known:?} {flags:?} {versions:?} {bounds:?} {:?} {held:?} {:?} {refill:?}",
            state.used_at, state.spare
        )
    }
}
