//! Plans the fence of a database that may have lost commits.
//!
//! A [fence](odometer_core::speed_limit) raises every counter to a line that no lost commit can have
//! passed. It needs a time *T* before which no lost commit began. The youngest heartbeat or stamp in
//! the database gives it: a database loses its newest commits, and it has this one. A commit is later
//! than the clock that its statement read, so *T* is earlier by the time that a statement may last.
//! And the clock may have jumped back since, within the margin of clocks.
//!
//! All times are those of database servers, whose clocks agree within that margin. The clock of the
//! machine that makes the fence does not count.

use std::time::Duration;

use entity::{counter, lineage::Entity as Lineage, meta, replica};
use odometer_core::speed_limit::fence::Fence;
use odometer_database::{
    bounds::longest_on_server, database_clock, server_mark::ServerMark,
    session::DatabaseTransaction, start_error::StartError,
};
use odometer_process::faults::{self, Fault};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

use super::transaction::TransactionError;
use crate::{
    fences::{ASTRAY, Recoveries, StoredFence},
    heartbeat::Heartbeat,
    lineage::{self, StampVerdict},
    settings::StoreLimits,
};

const MS_US: i64 = 1000;
/// Bounds the sequences that are named in a sentence.
const MAX_NAMED: usize = 20;
/// Bounds the time from *T* to the end of a fence of which no commit was lost. A limit that is used
/// for so long after *T* still counts as used, and not as one of a clock that was set back.
pub(super) const LONGEST_MARGINS: Duration = Duration::from_secs(60);

/// A wish to raise all counters of a database by what it can have lost. The default is the wish of
/// an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FenceRequest {
    /// The installation that the replica knows.
    pub(crate) cluster_id: String,
    /// The replica that asks. Empty if an operator does.
    pub(crate) holder: String,
    /// The branch on which the replica knows the database, and the recoveries that it had there.
    pub(crate) branch: Option<i64>,
    pub(crate) known: Recoveries,
    /// How long ago the loss may have begun. `None` if an operator asks, who knows of it.
    pub(crate) within: Option<Duration>,
    /// Since when commits may be lost, as an operator says (Unix µs). It is not later than the time
    /// that the database itself shows.
    since_us: Option<i64>,
}

impl FenceRequest {
    /// Returns the wish of a replica.
    pub(crate) fn of(heartbeat: &Heartbeat, cluster_id: &str, within: Duration) -> Self {
        Self {
            cluster_id: cluster_id.to_owned(),
            holder: heartbeat.holder().to_string(),
            branch: heartbeat.branch(),
            known: (*heartbeat.recoveries()).clone(),
            within: Some(within),
            since_us: None,
        }
    }

    /// Returns the wish of an operator who says since when commits may be lost (Unix µs).
    #[must_use]
    pub fn since(since_us: i64) -> Self {
        Self {
            since_us: Some(since_us),
            ..Self::default()
        }
    }

    pub(crate) fn is_of_operator(&self) -> bool {
        self.within.is_none()
    }
}

/// A fence that is to be made.
pub(crate) struct FencePlan {
    pub(crate) fence: Fence,
    /// Recoveries of one sequence that the replica knows and the copy lacks. They are made again
    /// before the fence.
    pub(crate) again: Vec<StoredFence>,
}

impl FencePlan {
    /// Plans the fence of a database whose `meta` is locked. Returns `None` if a replica asks and
    /// the database needs none: another replica was faster.
    ///
    /// # Errors
    /// The reason why nothing can be computed.
    pub(crate) async fn of(
        transaction: &DatabaseTransaction,
        mark: Option<&ServerMark>,
        (meta, recoveries): (&meta::Model, &Recoveries),
        (request, limits): (&FenceRequest, &StoreLimits),
    ) -> Result<Option<Self>, TransactionError<StartError>> {
        let is_of_operator = request.is_of_operator();
        if !is_of_operator && meta.cluster_id != request.cluster_id {
            return Err(refused("it is another installation's than before").into());
        }
        let verdict = verdict(transaction, mark).await?;
        match verdict {
            StampVerdict::Promoted | StampVerdict::Restarted => {}
            StampVerdict::Copied if is_of_operator => {}
            // The copy is another database of the store.
            StampVerdict::Fits(_) if is_of_operator && meta.stripe_n > 1 => return Ok(None),
            StampVerdict::Fits(_) if !is_of_operator => {
                if recoveries.follow(request.branch, &request.known) {
                    return Ok(None);
                }
            }
            StampVerdict::Fits(_) if recoveries.concerning(None).is_unsettled() => {
                let names = waiting(transaction).await?;
                return Err(StartError::Configuration(fenced_already(&names)).into());
            }
            StampVerdict::Fits(_) => {
                let why = "its stamp fits, as if it had lost nothing; if it has, give --skip N";
                return Err(refused(why).into());
            }
            StampVerdict::Unstamped | StampVerdict::Copied | StampVerdict::Unmarked => {
                return Err(refused("its stamp does not say since when; give --skip N").into());
            }
        }
        let fits = matches!(verdict, StampVerdict::Fits(_));
        let branch = lineage::branch_of(transaction).await?;
        if !recoveries.lead_to(branch) {
            return Err(refused(&format!("{ASTRAY}; give --skip N")).into());
        }
        let lacking = recoveries.lacking(&request.known);
        let is_related = recoveries.share_a_branch(branch, (&request.known, request.branch));
        if !is_related || (fits && lacking.is_empty()) {
            return Err(refused("it has another history than this replica knows").into());
        }
        let times = FenceTimes::read(transaction, limits, (recoveries, &request.known)).await?;
        let times = times.told(request.since_us)?;
        let (known, in_copy) = (request.known.concerning(None), recoveries.concerning(None));
        let (known, in_copy) = (known.fences(), in_copy.fences());
        let ended = recoveries.ended(meta.births_after);
        let of = (&known[..], &in_copy[..], &ended.fences()[..]);
        let since = (times.since_us, request.since_us.is_some());
        let fence = Fence::plan(new_id(), of, since, times.until_us);
        let age_ms = times.now_us.saturating_sub(fence.since_us) / MS_US;
        let lacks_any = !lacking.is_empty();
        times
            .check()
            .and_then(|()| check(meta, request.within, (fence, age_ms), lacks_any))
            .map_err(|why| refused(&format!("{why}{}", advice(&lacking, &ended))))?;
        Ok(Some(Self {
            fence,
            again: lacking
                .into_iter()
                .filter(|it| it.sequence.is_some())
                .collect(),
        }))
    }
}

/// Says what to do about a copy that is not fenced and that lacks these recoveries. An operator has
/// `ended` others for new counters, which may have begun above them where they were not ended.
fn advice(lacking: &[StoredFence], ended: &Recoveries) -> String {
    if lacking.is_empty() {
        return String::new();
    }
    let skipped = lacking.iter().chain(ended.stored());
    let n_steps = skipped.map(StoredFence::n_steps_at_most);
    format!(
        ". It lacks recoveries that this replica knows, and `odometer recover` by itself skips too \
         little: give --skip N, more than {} and all that a sequence can have given since",
        n_steps.fold(0, u64::saturating_add)
    )
}

/// Returns the recovery that an operator makes who says how many steps were lost.
pub(crate) async fn said(
    transaction: &DatabaseTransaction,
    (recoveries, limits): (&Recoveries, &StoreLimits),
    n_steps: u64,
) -> Result<Fence, DbErr> {
    let times = FenceTimes::read(transaction, limits, (recoveries, recoveries)).await?;
    Ok(Fence {
        id: new_id(),
        since_us: times.since_us,
        until_us: times.until_us,
        n_levels: 0,
        n_steps,
        is_said: true,
    })
}

fn new_id() -> u128 {
    u128::from(lineage::new_branch().unsigned_abs())
}

/// The times of a recovery (Unix µs).
struct FenceTimes {
    /// The last heartbeat or stamp, or the time that an operator says.
    last_good_us: i64,
    /// No commit that began before was lost.
    since_us: i64,
    now_us: i64,
    /// Not before the end of a recovery that is known. So the next one covers all of them, even if
    /// the clock of this server is behind.
    until_us: i64,
    margin_us: i64,
    longest_us: i64,
}

impl FenceTimes {
    async fn read(
        transaction: &DatabaseTransaction,
        limits: &StoreLimits,
        (recoveries, known): (&Recoveries, &Recoveries),
    ) -> Result<Self, DbErr> {
        let now_us = in_us(database_clock::read(transaction).await?);
        let margin = match faults::is(Fault::NoClockMargin) {
            true => Duration::ZERO,
            false => limits.failover.clock_margin,
        };
        let longest = match faults::is(Fault::InstantStatements) {
            true => Duration::ZERO,
            false => longest_on_server(limits.statement.timeout),
        };
        let (margin_us, longest_us) = (whole_us(margin), whole_us(longest));
        let until_us = now_us.saturating_add(margin_us);
        let last_good_us = in_us(last_good(transaction).await?);
        Ok(Self {
            last_good_us,
            since_us: last_good_us
                .saturating_sub(longest_us)
                .saturating_sub(margin_us),
            now_us,
            until_us: (known.last_until_us().max(recoveries.last_until_us()))
                .map_or(until_us, |known_us| known_us.max(until_us)),
            margin_us,
            longest_us,
        })
    }

    /// Takes the time that an operator says instead of the time that the database shows.
    ///
    /// # Errors
    /// It is later than that, so that too little would be skipped.
    fn told(self, since_us: Option<i64>) -> Result<Self, StartError> {
        let Some(since_us) = since_us else {
            return Ok(self);
        };
        let latest_us = self.since_us.min(self.now_us);
        if since_us > latest_us {
            let ago_s = self.now_us.saturating_sub(latest_us).unsigned_abs();
            return Err(StartError::Configuration(format!(
                "--since: the database shows a loss that began at least {} s ago, by its own clock: \
                 give a time that is not later, or leave --since out",
                ago_s.div_ceil(1_000_000)
            )));
        }
        Ok(Self {
            last_good_us: since_us,
            since_us,
            ..self
        })
    }

    /// Checks that the time of the loss can be known.
    fn check(&self) -> Result<(), String> {
        let before_us = self.longest_us.saturating_add(self.margin_us);
        let after_us = self.until_us.saturating_sub(self.now_us);
        let why = if self.last_good_us > self.until_us {
            "its last heartbeat is dated after the present time; give --since TIME, the time since \
             when commits may be lost, or --skip N"
        } else if before_us.saturating_add(self.margin_us) > whole_us(LONGEST_MARGINS) {
            "twice `failover.clock_margin` and `store.timeout` are more than a minute together"
        } else if before_us.saturating_add(after_us) > whole_us(LONGEST_MARGINS) {
            "a recovery that is known is dated after the present time: wait, or set the clock of \
             this server right"
        } else {
            return Ok(());
        };
        Err(why.to_owned())
    }
}

/// Checks that the loss is recent, and that all programs paid for their numbers then.
///
/// What a replica knows and the copy lacks is computed at any age: what an operator computes does
/// not have it.
fn check(
    meta: &meta::Model,
    within: Option<Duration>,
    (fence, age_ms): (Fence, i64),
    lacks_any: bool,
) -> Result<(), String> {
    if within.is_some_and(|within| within.is_zero()) {
        return Err("`failover.within` is 0".to_owned());
    }
    let is_older = |within| age_ms.saturating_mul(MS_US) > whole_us(within);
    if !lacks_any && within.is_some_and(is_older) {
        let seconds = age_ms / 1000;
        return Err(format!(
            "it was last good {seconds} s ago, longer than `failover.within`"
        ));
    }
    if meta
        .armed_at
        .is_none_or(|armed_at| fence.since_us < in_us(armed_at))
    {
        return Err(
            "it is not armed: a program that knows no speed limit may have used it then, or it is \
             a SQLite file; give --skip N"
                .to_owned(),
        );
    }
    Ok(())
}

fn fenced_already(waiting: &[String]) -> String {
    let which = match waiting {
        [] => "only new sequences with fewer than 1,000,000 numbers wait".to_owned(),
        names => format!("these wait: {}", first_names(names)),
    };
    format!(
        "the database is fenced already, and sequences go on by themselves; {which} for `odometer \
         recover NAME`, with --skip N or --nothing-was-lost"
    )
}

/// Returns the first of these names for a sentence.
pub(super) fn first_names(names: &[String]) -> String {
    let named = names.iter().take(MAX_NAMED).map(String::as_str);
    let named = named.collect::<Vec<_>>().join(", ");
    match names.len() {
        n if n > MAX_NAMED => format!("{named} and {} more", n - MAX_NAMED),
        _ => named,
    }
}

/// Returns a refusal. It does not pass by waiting.
fn refused(why: &str) -> StartError {
    StartError::Configuration(format!("what the database has lost is not known: {why}"))
}

/// Returns the sequences that give nothing until an operator says what they have lost.
pub(crate) async fn waiting(transaction: &DatabaseTransaction) -> Result<Vec<String>, DbErr> {
    counter::Entity::find()
        .select_only()
        .distinct()
        .column(counter::Column::Sequence)
        .filter(counter::Column::MustRecover.eq(true))
        .order_by_asc(counter::Column::Sequence)
        .into_tuple()
        .all(transaction)
        .await
}

/// Looks where the database stands, within the transaction that is to stamp it.
pub(crate) async fn verdict(
    transaction: &DatabaseTransaction,
    mark: Option<&ServerMark>,
) -> Result<StampVerdict, DbErr> {
    match mark {
        Some(mark) => lineage::verdict_in(transaction, mark).await,
        None => Ok(StampVerdict::Unmarked),
    }
}

/// Returns the time of the youngest heartbeat or stamp, by the database's clock (Unix ms).
///
/// The heartbeats of programs that know no fences do not count. They have no guard against copies.
async fn last_good(transaction: &DatabaseTransaction) -> Result<i64, DbErr> {
    let youngest: Option<Option<i64>> = replica::Entity::find()
        .select_only()
        .column_as(replica::Column::BeatAt.max(), "youngest")
        .filter(replica::Column::Beat.gte(0))
        .filter(replica::Column::KnowsFences.eq(true))
        .into_tuple()
        .one(transaction)
        .await?;
    let stamp = Lineage::find_by_id(1_i16).one(transaction).await?;
    let stamped_at = stamp.map_or(0, |stamp| stamp.stamped_at);
    Ok(youngest.flatten().unwrap_or(0).max(stamped_at))
}

fn whole_us(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn in_us(ms: i64) -> i64 {
    ms.saturating_mul(MS_US)
}
