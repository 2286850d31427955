//! Raises all counters of a database: by as many steps as an operator says, or above the line that
//! no lost commit can have passed.
//!
//! The [speed limit](odometer_core::speed_limit) of a sequence tells where that line is. A range
//! that is too short for a limit has no line: its counters give nothing until an operator says how
//! far they must rise.
//!
//! Counters rise in groups, each by one statement. A counter that was used in the seconds before
//! the loss rises by an amount of its own, which is computed here, and many of them are written by
//! one statement.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    time::Duration,
};

use entity::{counter, meta, sequence};
use odometer_core::{
    definition::{Definition, Kind, Stripe},
    speed_limit::{Paced, SpeedLimit, fence::Fence},
};
use odometer_database::{session::DatabaseTransaction, start_error::StartError};
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, ConnectionTrait, DbErr, EntityTrait, IntoActiveModel,
    QueryFilter, QueryOrder, QuerySelect, QueryTrait, UpdateMany,
    sea_query::{CaseStatement, Expr, ExprTrait, OnConflict},
};

use super::{recover::Recovered, transaction::TransactionError};
use crate::{
    installation_id,
    rows::{
        catalog::{self, LIVE, NO_PERIOD},
        counter::leased_from_now,
        payment::limit_of,
    },
};

/// Bounds the sequences of one step.
const PAGE: u64 = 1000;
/// Sets by how much the versions of counters and the numbers of windows rise that are above those
/// of the recovery. So nothing that was remembered from the time before fits any more.
pub(crate) const VERSIONS: i64 = 1 << 40;
/// Bounds the counters that one statement writes each by itself.
const N_WRITTEN: usize = 1000;
/// Bounds the exhausted sequences that are named.
const MAX_NAMED: usize = 1000;

/// Gets the number of sequences that are raised so far, after each page of them.
pub(crate) type OnPage<'a> = &'a (dyn Fn(u64) + Send + Sync);

impl Recovered {
    /// Names the sequences that waited for an operator before.
    pub(super) fn naming(self, waiting: Vec<String>) -> Self {
        Self {
            n_unknown: u64::try_from(waiting.len()).unwrap_or(u64::MAX),
            unknown: waiting.into_iter().take(MAX_NAMED).collect(),
            ..self
        }
    }
}

/// A raising of all counters that is under way.
pub(crate) struct RaisedCounters<'a> {
    pub(crate) transaction: &'a DatabaseTransaction,
    /// How far all counters rise.
    pub(crate) fence: Fence,
    /// The only sequence to raise, if not all are raised.
    pub(crate) only: Option<&'a str>,
    /// Whether a recovery that was lost is made again, before a fence. Then its counters only rise:
    /// what was lost since is not known, so a counter that waits for an operator still does.
    pub(crate) is_again: bool,
    pub(crate) stripe: Stripe,
    /// Whether Redis counts in front of the database.
    pub(crate) has_redis: bool,
    /// The least version of each counter afterwards.
    pub(crate) version: i64,
    /// The longest time that the existing sequences reserve ahead.
    pub(crate) longest_hold: Duration,
    pub(crate) on_page: OnPage<'a>,
    pub(crate) outcome: Recovered,
}

/// How far a counter rises.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Amount {
    /// By this length.
    Length(i64),
    /// To the line of this limit.
    Line(SpeedLimit),
    /// Nobody knows.
    Unknown,
}

/// A group of sequences that rise alike, and that end at the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rise {
    amount: Amount,
    step: i64,
    /// The highest number that a counter can rise to.
    highest: i64,
    /// From this number on a sequence is exhausted, unless its `max` is raised.
    end: i64,
    /// Whether these sequences count in periods. Then their counter without period issues nothing.
    has_periods: bool,
}

impl Rise {
    /// A rise of which nobody knows how far it is.
    const UNKNOWN: Self = Self {
        amount: Amount::Unknown,
        step: 1,
        highest: 0,
        end: 0,
        has_periods: false,
    };

    fn of(definition: &Definition, counted: &Definition, fence: Fence) -> Self {
        let amount = if fence.is_said {
            Amount::Length(counted.length_of_steps(fence.n_steps))
        } else if definition.kind == Kind::Snowflake {
            Amount::Length(0)
        } else {
            limit_of(definition).map_or(Amount::Unknown, Amount::Line)
        };
        Self {
            amount,
            step: counted.step,
            highest: counted.highest(),
            end: counted.end(),
            has_periods: catalog::has_periods(definition),
        }
    }

    /// Returns the condition for the counters of these sequences that issue numbers.
    fn issuing(self, names: &[String]) -> Condition {
        let is_in_period = Expr::col(counter::Column::Period).gt(NO_PERIOD);
        Condition::all()
            .add(counters_of(names))
            .add(counter::Column::State.eq(LIVE))
            .add_option(self.has_periods.then_some(is_in_period))
    }

    /// Returns whether a counter of these sequences issues numbers.
    fn issues(self, row: &counter::Model) -> bool {
        row.state == LIVE && (!self.has_periods || row.period.as_str() > NO_PERIOD)
    }

    /// Returns the length of `n_steps` steps.
    fn length_of(self, n_steps: u64) -> i64 {
        let n_steps = i64::try_from(n_steps).unwrap_or(i64::MAX);
        self.step.saturating_mul(n_steps)
    }

    /// Returns the lowest high-water mark that a rise by `length` brings to the end.
    fn comes_to_its_end(self, length: i64) -> i64 {
        if self.highest < self.end {
            self.end
        } else {
            self.end.saturating_sub(length)
        }
    }

    /// Returns by how much a counter rises that would rise by `length`.
    fn cut(self, next_value: i64, length: i64) -> i64 {
        let left = self.highest.saturating_sub(next_value);
        Ord::max(Ord::min(length, left), 0)
    }
}

impl<'a> RaisedCounters<'a> {
    /// Begins to raise all counters of a database that nobody else uses.
    pub(crate) fn by(
        fence: Fence,
        transaction: &'a DatabaseTransaction,
        (meta, version): (&meta::Model, i64),
    ) -> Self {
        Self {
            transaction,
            fence,
            only: None,
            is_again: false,
            stripe: installation_id::of(meta),
            has_redis: meta.redis.is_some(),
            version,
            longest_hold: Duration::ZERO,
            on_page: &|_n_sequences| {},
            outcome: Recovered::default(),
        }
    }

    /// Raises all counters page by page, in the order of names. Retired sequences are raised like
    /// others.
    pub(crate) async fn raise_all(&mut self) -> Result<(), TransactionError<StartError>> {
        let mut after = String::new();
        loop {
            let only = self.only.map(|name| sequence::Column::Name.eq(name));
            let page = catalog::living_here()
                .filter(sequence::Column::Name.gt(after.as_str()))
                .filter(Condition::all().add_option(only))
                .order_by_asc(sequence::Column::Name)
                .limit(PAGE)
                .all(self.transaction)
                .await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after.clone_from(&last.name);
            let mut groups: BTreeMap<Rise, Vec<String>> = BTreeMap::new();
            for row in page {
                self.outcome.n_sequences += 1;
                let definition = match Definition::from_stored(&row.definition) {
                    Ok(definition) => definition,
                    // One name does not keep all others from being fenced.
                    Err(_) if self.is_again => continue,
                    Err(_) if !self.fence.is_said => {
                        groups.entry(Rise::UNKNOWN).or_default().push(row.name);
                        continue;
                    }
                    Err(error) => return Err(unreadable(&row.name, &error).into()),
                };
                if definition.kind == Kind::Snowflake {
                    let hold = Duration::from_secs(definition.block.hold.seconds());
                    self.longest_hold = Ord::max(self.longest_hold, hold);
                    self.outcome.n_time_ordered += 1;
                }
                let rise = Rise::of(&definition, &self.stripe.view(&definition), self.fence);
                groups.entry(rise).or_default().push(row.name);
            }
            for (rise, names) in groups {
                self.raise(rise, &names).await?;
            }
            // Pages come in the order of names, but groups do not.
            self.outcome.at_their_end.sort_unstable();
            self.outcome.at_their_end.truncate(MAX_NAMED);
            self.outcome.unknown.truncate(MAX_NAMED);
            (self.on_page)(self.outcome.n_sequences);
        }
    }

    async fn raise(&mut self, rise: Rise, names: &[String]) -> Result<(), DbErr> {
        let all = counters_of(names);
        let mut ends = BTreeSet::new();
        match rise.amount {
            Amount::Length(length) => {
                let issuing = rise.issuing(names);
                self.note_rises(rise, length, issuing, &mut ends).await?;
                let update = self.risen(rise, length).filter(all);
                update.exec(self.transaction).await?;
            }
            Amount::Line(limit) => self.raise_to_line(rise, limit, names, &mut ends).await?,
            Amount::Unknown => {
                self.stop(all).await?;
                self.note_unknown(names.iter().cloned());
            }
        }
        // A sequence may have several counters, and belongs to one group.
        self.outcome.n_at_their_end += u64::try_from(ends.len()).unwrap_or(u64::MAX);
        self.outcome.at_their_end.extend(ends);
        Ok(())
    }

    /// Lets these counters give nothing until an operator says how far they must rise.
    async fn stop(&self, counters: Condition) -> Result<(), DbErr> {
        let update = self.outdated().filter(counters);
        let stopped = update.col_expr(counter::Column::MustRecover, Expr::val(true));
        stopped.exec(self.transaction).await?;
        Ok(())
    }

    /// Notes that these sequences have counters that were stopped.
    fn note_unknown(&mut self, names: impl ExactSizeIterator<Item = String>) {
        self.outcome.n_unknown += u64::try_from(names.len()).unwrap_or(u64::MAX);
        self.outcome.unknown.extend(names);
    }

    /// Raises counters to their line: all that rest by the same length, and each of the others by
    /// its own.
    async fn raise_to_line(
        &mut self,
        rise: Rise,
        limit: SpeedLimit,
        names: &[String],
        ends: &mut BTreeSet<String>,
    ) -> Result<(), DbErr> {
        let fence = self.fence;
        self.hold(names).await?;
        let paced_until = counter::Column::PacedUntilUs;
        let is_busy = || paced_until.gt(fence.since_us);
        let busy = counter::Entity::find()
            .filter(counters_of(names).add(is_busy()))
            .all(self.transaction)
            .await?;
        // Afterwards they are still no counters that rest, and those that rest would be taken for busy
        // ones if they were raised before.
        self.raise_each((rise, limit), names, busy, ends).await?;
        let rested = fence.raise(limit, Paced::RESTED);
        let length = self.length(rise, rested);
        let issuing = rise.issuing(names).add(is_busy().not());
        self.note_rises(rise, length, issuing, ends).await?;
        self.risen(rise, length)
            .col_expr(paced_until, paid(rested))
            .filter(counters_of(names).add(is_busy().not()))
            .exec(self.transaction)
            .await?;
        Ok(())
    }

    /// Raises the busy counters of these sequences to their lines, each by a length of its own.
    /// Those whose line is not known are stopped.
    async fn raise_each(
        &mut self,
        (rise, limit): (Rise, SpeedLimit),
        names: &[String],
        busy: Vec<counter::Model>,
        ends: &mut BTreeSet<String>,
    ) -> Result<(), DbErr> {
        let fence = self.fence;
        // A level is more than any sequel can have given, whatever the copy has paid.
        let is_known = |row: &counter::Model| {
            fence.n_levels > 0 || limit.knows_line(paced(row), fence.since_us)
        };
        let (mut busy, unknown): (Vec<_>, Vec<_>) = busy.into_iter().partition(is_known);
        let paced_until = counter::Column::PacedUntilUs;
        let last_known = fence.since_us.saturating_add(limit.horizon_us());
        let is_unknown = || paced_until.gt(last_known);
        if !unknown.is_empty() {
            self.stop(counters_of(names).add(is_unknown())).await?;
            let stopped: BTreeSet<String> = unknown.into_iter().map(|row| row.sequence).collect();
            self.note_unknown(stopped.into_iter());
        }
        if busy.is_empty() {
            return Ok(());
        }
        if let Some(update) = self.renewed() {
            let is_known = (fence.n_levels == 0).then(|| is_unknown().not());
            update
                .filter(counters_of(names).add(paced_until.gt(fence.since_us)))
                .filter(Condition::all().add_option(is_known))
                .exec(self.transaction)
                .await?;
        }
        for row in &mut busy {
            let raised = fence.raise(limit, paced(row));
            let length = self.length(rise, raised);
            if rise.issues(row) {
                if row.next_value >= rise.comes_to_its_end(length) {
                    ends.insert(row.sequence.clone());
                }
                self.note_rise(rise.cut(row.next_value, length), &row.sequence);
            }
            row.next_value += rise.cut(row.next_value, length);
            if !faults::is(Fault::FullBucket) {
                row.paced_until_us = raised.paced_until_us;
            }
        }
        self.write(busy).await
    }

    /// Writes how far these counters are raised and paid for. All of them are there.
    async fn write(&self, raised: Vec<counter::Model>) -> Result<(), DbErr> {
        let key = [counter::Column::Sequence, counter::Column::Period];
        let columns = [counter::Column::NextValue, counter::Column::PacedUntilUs];
        for rows in raised.chunks(N_WRITTEN) {
            let rows = rows.iter().cloned();
            counter::Entity::insert_many(rows.map(|row| row.into_active_model().reset_all()))
                .on_conflict(OnConflict::columns(key).update_columns(columns).to_owned())
                .exec_without_returning(self.transaction)
                .await?;
        }
        Ok(())
    }

    /// Locks the counters of these sequences. Otherwise a counter could be used between the read that
    /// finds the busy ones and the statement that raises it.
    async fn hold(&self, names: &[String]) -> Result<(), DbErr> {
        let find = counter::Entity::find()
            .select_only()
            .column(counter::Column::Sequence)
            .filter(counters_of(names));
        // No row is kept: one sequence may have very many counters.
        let find = self.transaction.holding(find).into_query();
        self.transaction.execute(&find).await?;
        Ok(())
    }

    fn length(&self, rise: Rise, raised: Paced) -> i64 {
        match faults::is(Fault::NoFence) {
            true => 0,
            false => rise.length_of(raised.n_reserved),
        }
    }

    /// Notes what raising these counters by `length` will come to. The database finds it out,
    /// because one sequence may have very many counters.
    async fn note_rises(
        &mut self,
        rise: Rise,
        length: i64,
        issuing: Condition,
        ends: &mut BTreeSet<String>,
    ) -> Result<(), DbErr> {
        let at_their_end: Vec<String> = counter::Entity::find()
            .select_only()
            .distinct()
            .column(counter::Column::Sequence)
            .filter(issuing.clone())
            .filter(counter::Column::NextValue.gte(rise.comes_to_its_end(length)))
            .into_tuple()
            .all(self.transaction)
            .await?;
        ends.extend(at_their_end);
        // The rise is cut off at `highest`, and most for the highest counters. So the lowest
        // counter rises most.
        let lowest = counter::Entity::find()
            .filter(issuing)
            .order_by_asc(counter::Column::NextValue)
            .order_by_asc(counter::Column::Sequence)
            .one(self.transaction)
            .await?;
        if let Some(row) = lowest {
            self.note_rise(rise.cut(row.next_value, length), &row.sequence);
        }
        Ok(())
    }

    fn note_rise(&mut self, rises_by: i64, sequence: &str) {
        if rises_by > self.outcome.highest_rise {
            self.outcome.highest_rise = rises_by;
            self.outcome.highest_riser = Some(sequence.to_owned());
        }
    }

    /// Returns a statement that raises counters by `length`, and lets them give numbers.
    fn risen(&self, rise: Rise, length: i64) -> UpdateMany<counter::Entity> {
        let next_value = || Expr::col(counter::Column::NextValue);
        let raised = CaseStatement::new()
            .case(next_value().gt(rise.highest), next_value())
            .case(
                next_value().gt(rise.highest.saturating_sub(length)),
                rise.highest,
            )
            .finally(next_value().add(length));
        let update = self.renewed().unwrap_or_else(counter::Entity::update_many);
        update.col_expr(counter::Column::NextValue, raised.into())
    }

    /// Returns a statement that makes counters ready to give numbers after they were raised. `None`
    /// if another raising follows, which does it.
    fn renewed(&self) -> Option<UpdateMany<counter::Entity>> {
        if self.is_again {
            return None;
        }
        let update = self.outdated();
        Some(match self.fence.is_said {
            true => update.col_expr(counter::Column::MustRecover, Expr::val(false)),
            false => update,
        })
    }

    /// Returns a statement after which nothing fits that was remembered of counters.
    fn outdated(&self) -> UpdateMany<counter::Entity> {
        // Strict order trusts a remembered revision, so the revision rises as far as the version.
        let least = self.version;
        let risen = |column: counter::Column| {
            CaseStatement::new()
                .case(Expr::col(column).lt(least), least)
                .finally(Expr::col(column).add(VERSIONS))
        };
        // A version above its revision says that numbers were reserved of the counter. It stays
        // above.
        let version = || Expr::col(counter::Column::Version);
        let is_used = version().gt(Expr::col(counter::Column::Revision));
        let risen_version = CaseStatement::new()
            .case(version().lt(least).and(is_used), least.saturating_add(1))
            .case(version().lt(least), least)
            .finally(version().add(VERSIONS));
        let update = counter::Entity::update_many()
            // Comes before the revision, because MySQL reads the columns that are set already.
            .col_expr(counter::Column::Version, risen_version.into())
            .col_expr(
                counter::Column::Revision,
                risen(counter::Column::Revision).into(),
            )
            .col_expr(counter::Column::WindowOpen, Expr::val(false));
        self.next_window(update, risen(counter::Column::Window).into())
    }

    /// Lets the next window follow those that lost commits opened: above their numbers, and after
    /// their leases.
    fn next_window(
        &self,
        update: UpdateMany<counter::Entity>,
        number: Expr,
    ) -> UpdateMany<counter::Entity> {
        // The number rises as far as that of counters that are created from now on.
        let update = match faults::is(Fault::FenceKeepsWindows) {
            true => update,
            false => update.col_expr(counter::Column::Window, number),
        };
        if self.fence.is_said || !self.has_redis {
            // An operator stops the replicas before.
            return update;
        }
        let latest = leased_from_now(self.transaction.get_database_backend());
        update.col_expr(counter::Column::WindowLeasedUntil, latest)
    }
}

/// Returns the condition for all counters of these sequences, which are in the order of names.
///
/// Their first and their last name make PostgreSQL use its index, also if it knows nothing yet of
/// the names in the table. With a list of names alone it then reads the whole table.
fn counters_of(names: &[String]) -> Condition {
    let name = counter::Column::Sequence;
    Condition::all()
        .add_option(names.first().map(|first| name.gte(first.as_str())))
        .add_option(names.last().map(|last| name.lte(last.as_str())))
        .add(name.is_in(names))
}

/// Returns what a counter's row says of its limit. What was reserved before is not asked.
fn paced(row: &counter::Model) -> Paced {
    Paced {
        n_reserved: 0,
        paced_until_us: row.paced_until_us,
    }
}

/// Returns the time up to which the limit of a counter is used after a fence.
fn paid(raised: Paced) -> Expr {
    match faults::is(Fault::FullBucket) {
        true => Expr::col(counter::Column::PacedUntilUs),
        false => Expr::val(raised.paced_until_us),
    }
}

fn unreadable(name: &str, error: &impl Display) -> StartError {
    StartError::Other(format!("nothing was changed: sequence `{name}`: {error}"))
}
