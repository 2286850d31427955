//! Describes the state of one counter in memory.

use odometer_core::{block::Block, runway::Runway, sizing};
use odometer_process::clock;

use crate::{
    inspection::description::CounterStatus,
    issuer::memory::{Issuer, IssuerKind},
    issuer::state::IssuerState,
};

/// Explains in descriptions why a sequence with strict order has no block size.
const NO_BLOCK: &str = "strict order keeps no block: each write is for the callers that wait";
/// Explains in descriptions why a time-ordered sequence has no block size.
const TIME_RESERVED: &str = "time-ordered ids keep no block: time is reserved ahead, for `hold`";

impl Issuer {
    /// Returns for how many seconds the numbers in memory last at the present rate. For a
    /// time-ordered sequence, returns for how long ids can be issued without the store.
    pub(crate) fn reserve_seconds(&self) -> Option<f64> {
        let remaining = self.remaining();
        self.reserve_of(&self.memory.lock(), remaining)
    }

    fn reserve_of(&self, memory: &IssuerState, remaining: u64) -> Option<f64> {
        match &self.kind {
            // A name whose lease has ended may be at rest, so nothing is measured here.
            IssuerKind::Snowflake(snowflake) => snowflake
                .is_serving()
                .then(|| snowflake.left().as_secs_f64()),
            // With strict order, memory is always empty.
            IssuerKind::Strict => None,
            IssuerKind::Block(_) | IssuerKind::Periods(_) => {
                memory.rates.reserve_seconds(remaining)
            }
        }
    }

    /// Returns whether memory is short only because the counter has just become busy.
    fn is_warming_up(&self, memory: &IssuerState, reserve_seconds: Option<f64>) -> bool {
        let policy = &memory.definition.block;
        let has_blocks = matches!(self.kind, IssuerKind::Block(_));
        let is_short = reserve_seconds.is_some_and(|left| left < policy.hold.as_secs_f64());
        let newest = memory.last_refill.filter(|_| has_blocks && is_short);
        let known = memory.known.as_ref();
        newest.zip(known).is_some_and(|(refill, known)| {
            let left = memory.definition.left(known.seen.next_value);
            let block = (refill.size, refill.why);
            sizing::is_warming_up(policy, &memory.rates, block, left)
        })
    }

    /// Returns the status of the counter, as far as memory knows it.
    pub(crate) fn state(&self) -> CounterStatus {
        let memory = self.memory.lock();
        let rest = self.blocks(&memory);
        let n_remaining = rest.iter().map(Block::count).sum();
        let mut blocks = rest.iter().map(|left| memory.block_of(left));
        let snowflake = self.snowflake();
        let counted = memory.known.as_ref().filter(|_| snowflake.is_none());
        let why = match &self.kind {
            IssuerKind::Snowflake(_) => Some(TIME_RESERVED.to_owned()),
            IssuerKind::Strict => Some(NO_BLOCK.to_owned()),
            IssuerKind::Block(_) | IssuerKind::Periods(_) => {
                memory.last_refill.map(|refill| refill.describe())
            }
        };
        let rate = memory.rates.average();
        let reserve_seconds = self.reserve_of(&memory, n_remaining);
        CounterStatus {
            period: self.key.period.clone(),
            period_until_ms: self.span().map(|span| span.until_ms),
            n_remaining,
            high_water_mark: counted.map(|known| known.seen.next_value),
            block: blocks.next(),
            next_block: blocks.next(),
            rate,
            lease: snowflake.and_then(|snowflake| snowflake.state()),
            reserve_seconds,
            warming_up: self.is_warming_up(&memory, reserve_seconds),
            last_refill: memory
                .last_refill
                .map(|refill| clock::time_of(refill.at_ms)),
            why,
            runway: memory.known.as_ref().map(|known| {
                let next_value = known.seen.next_value;
                Runway::of(&known.definition, next_value, rate, clock::now_ms())
            }),
        }
    }
}
