//! Takes numbers from memory: the warm path.
//!
//! For a sequence without periods, a call does not await, lock, send or allocate. One caller is an
//! exception: the caller that reaches the low-water mark sends a command to the actor. So does the
//! caller that finds the lease of a time-ordered sequence due.

use std::{hash::RandomState, ops::Deref, sync::Arc};

use arc_swap::Guard;
use odometer_core::{block::Block, cursor::Ranges, format::Printer, name::SequenceName};
use odometer_process::clock;
use papaya::{HashMapRef, LocalGuard};

use crate::{
    command::Command,
    directory::Directory,
    issued::IssuedBy,
    issuer::{Issuer, IssuerKind},
    period_directory::PeriodDirectory,
    shared::Shared,
    snowflake_issuer::SnowflakeIssuer,
};

/// The names in memory, held still for one call.
pub struct Pinned<'a> {
    shared: &'a Arc<Shared>,
    issuers: HashMapRef<'a, SequenceName, Arc<Issuer>, RandomState, LocalGuard<'a>>,
}

/// Numbers that were taken from memory, with the issuer that gave them.
pub struct Taken<'a, T> {
    issuer: Counting<'a>,
    printer: Guard<Option<Arc<Printer>>>,
    pub numbers: T,
}

/// The ascending ranges of one batch.
pub enum TakenRanges {
    Counted(Ranges),
    Ids(Vec<Block>),
}

/// The issuer that has the numbers of a call.
enum Counting<'a> {
    Pinned(&'a Arc<Issuer>),
    OfPeriod(Arc<Issuer>),
}

impl Directory {
    /// Holds the names in memory still, so that numbers can be taken from them.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        Pinned {
            shared: &self.shared,
            issuers: self.shared.issuers.pin(),
        }
    }
}

impl Pinned<'_> {
    /// Takes one number, or returns `None` if memory has none.
    #[inline]
    pub fn take(&self, name: &str, period: Option<&str>) -> Option<Taken<'_, i64>> {
        let issuer = self.find(name, period)?;
        let value = match &issuer.kind {
            IssuerKind::Block(cursor) => {
                let taken = cursor.take()?;
                if taken.low_water {
                    self.shared.tell(&issuer, Command::LowWater);
                }
                taken.value
            }
            IssuerKind::Snowflake(snowflake) => self.take_id(&issuer, snowflake)?,
            IssuerKind::Strict | IssuerKind::Periods(_) => return None,
        };
        Some(Taken::new(issuer, value))
    }

    /// Takes a batch of `count` numbers, in one range if `contiguous`. Returns `None` if memory does
    /// not have all of it.
    #[inline]
    pub fn take_batch(
        &self,
        name: &str,
        period: Option<&str>,
        (count, contiguous): (u64, bool),
    ) -> Option<Taken<'_, TakenRanges>> {
        let issuer = self.find(name, period)?;
        let ranges = match &issuer.kind {
            IssuerKind::Block(cursor) => {
                let taken = cursor.take_batch(count, contiguous)?;
                if taken.low_water {
                    self.shared.tell(&issuer, Command::LowWater);
                }
                TakenRanges::Counted(taken.ranges)
            }
            IssuerKind::Snowflake(snowflake) => {
                let taken = snowflake.take_batch(count, contiguous).ok()?;
                if taken.is_due {
                    self.shared.tell(&issuer, Command::LowWater);
                }
                TakenRanges::Ids(taken.ids)
            }
            IssuerKind::Strict | IssuerKind::Periods(_) => return None,
        };
        Some(Taken::new(issuer, ranges))
    }

    /// Returns how a sequence prints its numbers, or `None` if memory does not know. The inner
    /// `None` means plain numbers.
    pub fn printer(&self, name: &str, period: Option<&str>) -> Option<Option<Arc<Printer>>> {
        let issuer = self.find(name, period)?;
        Some(issuer.printer().as_ref().map(Arc::clone))
    }

    /// Returns the issuer that has the numbers, if it is in memory.
    #[inline]
    fn find(&self, name: &str, period: Option<&str>) -> Option<Counting<'_>> {
        let issuer = match self.issuers.get(name) {
            Some(issuer) => issuer,
            None => self.issuers.get(self.shared.aliases.pin().get(name)?)?,
        };
        match (&issuer.kind, period) {
            (IssuerKind::Periods(periods), period) => of_period(periods, period),
            (_, None) => Some(Counting::Pinned(issuer)),
            (_, Some(_)) => None,
        }
    }

    /// Takes the next id of a time-ordered sequence. In a function of its own, so that block
    /// sequences pay nothing for snowflake ids.
    #[inline(never)]
    fn take_id(&self, issuer: &Arc<Issuer>, snowflake: &SnowflakeIssuer) -> Option<i64> {
        let taken = snowflake.take().ok()?;
        if taken.is_due {
            self.shared.tell(issuer, Command::LowWater);
        }
        Some(taken.ids)
    }
}

/// Returns the issuer of a period, or of the present one. In a function of its own, so that
/// sequences without periods pay nothing for them.
#[inline(never)]
fn of_period<'a>(periods: &PeriodDirectory, period: Option<&str>) -> Option<Counting<'a>> {
    let now_ms = clock::now_ms();
    let issuer = match period {
        None => periods.present(now_ms)?,
        Some(period) => periods.named(period, now_ms)?,
    };
    Some(Counting::OfPeriod(issuer))
}

impl<'a, T> Taken<'a, T> {
    #[inline]
    fn new(issuer: Counting<'a>, numbers: T) -> Self {
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
            printer: self.printer.as_ref(),
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

impl Deref for Counting<'_> {
    type Target = Arc<Issuer>;

    #[inline]
    fn deref(&self) -> &Arc<Issuer> {
        match self {
            Self::Pinned(issuer) => issuer,
            Self::OfPeriod(issuer) => issuer,
        }
    }
}
