//! Takes numbers from memory: the warm path.
//!
//! For a sequence without periods, a call does not await, lock, send or allocate. One caller is an
//! exception: the caller that reaches the low-water mark sends a command to the actor. So does the
//! caller that finds the lease of a time-ordered sequence due.

use std::sync::Arc;

use arc_swap::Guard;
use odometer_core::{block::Block, cursor::Ranges, format::Printer, name::SequenceName};
use odometer_process::clock;

use crate::{
    actor::command::Command,
    directory::calls::Directory,
    directory::names::PinnedNames,
    directory::period_directory::PeriodDirectory,
    directory::shared::Shared,
    issuer::issued::IssuedBy,
    issuer::memory::{Issuer, IssuerKind},
    issuer::snowflake_issuer::{NoIds, TakenIds},
};

/// The names in memory, held still for one call.
pub struct Pinned<'a> {
    shared: &'a Arc<Shared>,
    names: PinnedNames<'a>,
    /// The issuer of the period that the last call counted in.
    of_period: Option<Arc<Issuer>>,
}

/// Numbers that were taken from memory, with the issuer that gave them.
pub struct Taken<'a, T> {
    issuer: &'a Issuer,
    /// `None` for plain numbers.
    printer: Option<Guard<Option<Arc<Printer>>>>,
    pub numbers: T,
}

/// The ascending ranges of one batch.
pub enum TakenRanges {
    Counted(Ranges),
    Ids(Vec<Block>),
}

impl Directory {
    /// Holds the names in memory still, so that numbers can be taken from them.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        Pinned {
            shared: &self.shared,
            names: self.shared.names.pin(),
            of_period: None,
        }
    }
}

impl Pinned<'_> {
    /// Takes one number, or returns `None` if memory has none.
    #[inline]
    pub fn take(&mut self, name: &str, period: Option<&str>) -> Option<Taken<'_, i64>> {
        let shared = self.shared;
        let issuer = self.find(name, period)?;
        let value = match &issuer.kind {
            IssuerKind::Block(cursor) => {
                let taken = cursor.take()?;
                if taken.low_water {
                    shared.tell(issuer, Command::LowWater);
                }
                taken.value
            }
            IssuerKind::Snowflake(snowflake) => take_ids(shared, issuer, move || snowflake.take())?,
            IssuerKind::Strict | IssuerKind::Periods(_) => return None,
        };
        Some(Taken::new(issuer, value))
    }

    /// Takes a batch of `count` numbers, in one range if `contiguous`. Returns `None` if memory does
    /// not have all of it.
    #[inline]
    pub fn take_batch(
        &mut self,
        name: &str,
        period: Option<&str>,
        (count, contiguous): (u64, bool),
    ) -> Option<Taken<'_, TakenRanges>> {
        let shared = self.shared;
        let issuer = self.find(name, period)?;
        match &issuer.kind {
            IssuerKind::Block(cursor) => {
                let taken = cursor.take_batch(count, contiguous)?;
                if taken.low_water {
                    shared.tell(issuer, Command::LowWater);
                }
                Some(Taken::new(issuer, TakenRanges::Counted(taken.ranges)))
            }
            IssuerKind::Snowflake(snowflake) => {
                let ids = take_ids(shared, issuer, move || {
                    snowflake.take_batch(count, contiguous)
                })?;
                Some(Taken::new(issuer, TakenRanges::Ids(ids)))
            }
            IssuerKind::Strict | IssuerKind::Periods(_) => None,
        }
    }

    /// Returns whether a name is in memory as a sequence of its own, and not parked.
    #[inline]
    pub fn is_in_use(&self, name: &str) -> bool {
        self.names.get(name).is_some()
    }

    /// Returns how a sequence prints its numbers, or `None` if memory does not know. The inner
    /// `None` means plain numbers.
    pub fn printer(&mut self, name: &str, period: Option<&str>) -> Option<Option<Arc<Printer>>> {
        Some(self.find(name, period)?.shared_printer())
    }

    /// Returns the issuer that has the numbers, if it is in memory.
    #[inline]
    fn find(&mut self, name: &str, period: Option<&str>) -> Option<&Arc<Issuer>> {
        let issuer = match self.names.get(name) {
            Some(issuer) => issuer,
            None => find_otherwise(self.shared, &self.names, name)?,
        };
        match (&issuer.kind, period) {
            (IssuerKind::Periods(periods), period) => {
                Some(self.of_period.insert(of_period(periods, period)?))
            }
            (_, None) => Some(issuer),
            (_, Some(_)) => None,
        }
    }
}

/// Returns the issuer of a name that is not in use: the name is parked, or shares the numbers of
/// another sequence.
#[cold]
#[inline(never)]
fn find_otherwise<'a>(
    shared: &Shared,
    names: &'a PinnedNames<'_>,
    name: &str,
) -> Option<&'a Arc<Issuer>> {
    let aliases = shared.aliases.pin();
    let name = aliases.get(name).map_or(name, SequenceName::as_str);
    names.get(name).or_else(|| {
        let _woken = shared.names.find(name)?;
        names.get(name)
    })
}

/// Takes ids of a time-ordered sequence. In a function of its own, so that block sequences pay
/// nothing for snowflake ids.
#[inline(never)]
fn take_ids<T>(
    shared: &Arc<Shared>,
    issuer: &Arc<Issuer>,
    take: impl FnOnce() -> Result<TakenIds<T>, NoIds>,
) -> Option<T> {
    let taken = take().ok()?;
    if taken.is_due {
        shared.tell(issuer, Command::LowWater);
    }
    Some(taken.ids)
}

/// Returns the issuer of a period, or of the present one. In a function of its own, so that
/// sequences without periods pay nothing for them.
#[inline(never)]
fn of_period(periods: &PeriodDirectory, period: Option<&str>) -> Option<Arc<Issuer>> {
    let now_ms = clock::now_ms();
    match period {
        None => periods.present(now_ms),
        Some(period) => periods.named(period, now_ms),
    }
}

impl<'a, T> Taken<'a, T> {
    #[inline]
    fn new(issuer: &'a Issuer, numbers: T) -> Self {
        Self {
            printer: issuer.printer(),
            issuer,
            numbers,
        }
    }

    /// Returns what a reply shows besides the numbers.
    #[inline]
    pub fn shown(&self) -> IssuedBy<'_> {
        IssuedBy {
            key: &self.issuer.key,
            printer: self.printer.as_ref().and_then(|printer| printer.as_ref()),
        }
    }
}

impl TakenRanges {
    #[inline]
    pub fn as_slice(&self) -> &[Block] {
        match self {
            Self::Counted(ranges) => ranges.as_slice(),
            Self::Ids(ranges) => ranges,
        }
    }
}
