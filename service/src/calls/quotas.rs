//! Keeps callers within the quotas of their role.

use std::time::{Duration, Instant};

use odometer_core::glob::Glob;
use odometer_core::name::SequenceName;
use odometer_core::period::Period;
use odometer_core::sizing::max_at_once;
use odometer_process::faults::{self, Fault};
use odometer_sequence::workers::{LeaseGrant, LeaseWanted};
use odometer_sequence::{FirstUse, Wants, error::SequenceError};
use tokio::time::timeout;

use super::beginnings::beginnings;
use super::caller::Caller;
use super::problem::{Code, Problem};
use super::state::Calls;
use super::{sources, suggestions};
use crate::access::quotas::Quota;
use crate::access::quotas::names::{Creation, NamesQuota, Room};
use crate::access::quotas::numbers::NumbersQuota;
use crate::access::quotas::share::ALWAYS;
use crate::access::right::Right;
use crate::access::role::Role;

/// When a caller may ask again for a worker id, in milliseconds.
const LEASE_RETRY_MS: u64 = 5000;

/// How long a caller waits while what other callers of its role use up is counted.
const TURN: Duration = Duration::from_secs(5);

/// What a call takes of what a sequence has left.
pub(crate) struct RequestedShare<'a> {
    /// The name in the call, and the sequence that gives its numbers.
    pub(crate) name: &'a SequenceName,
    pub(crate) source: &'a SequenceName,
    pub(crate) period: Option<&'a Period>,
    /// How many numbers, and which.
    pub(crate) n: u64,
    pub(crate) wants: Wants,
    /// Whether the caller says that it means so many.
    pub(crate) is_confirmed: bool,
}

/// The numbers that a call took from the quota of its caller's role.
///
/// If this is dropped without the outcome of the call, the numbers stay taken. So a caller who
/// hangs up uses up its quota, too: numbers for it may be on their way, or in a write that goes on.
#[must_use = "the outcome of the call decides whether its numbers are given back"]
pub(crate) struct QuotaCharge<'a> {
    /// `None` if there is nothing to give back.
    quota: Option<&'a NumbersQuota>,
    n: u64,
}

impl QuotaCharge<'_> {
    /// Gives the numbers back if `outcome` says that certainly none was used up.
    pub(crate) fn settle<T>(mut self, outcome: &Result<T, SequenceError>) {
        let is_certain = match outcome {
            Ok(_) => false,
            Err(error) => !error.may_have_used_numbers() || faults::is(Fault::QuotaGivenBack),
        };
        let quota = self.quota.take();
        if let Some(quota) = quota.filter(|_| is_certain) {
            quota.give_back(self.n);
        }
    }
}

impl Drop for QuotaCharge<'_> {
    fn drop(&mut self) {
        if !faults::is(Fault::QuotaGivenBack) {
            return;
        }
        if let Some(quota) = self.quota {
            quota.give_back(self.n);
        }
    }
}

/// Takes `n` numbers from the quota of a caller's role.
///
/// # Errors
/// 429 if its callers took too many in the last seconds, or 400 if it may never take so many in one
/// call.
pub(crate) fn take_numbers(caller: &Caller, n: u64) -> Result<QuotaCharge<'_>, Problem> {
    let role = caller.role();
    let quota = role.and_then(|role| role.quotas().numbers.as_ref());
    let Some((role, quota)) = role.zip(quota) else {
        return Ok(QuotaCharge { quota: None, n });
    };
    let role = role.name();
    if n > quota.burst() {
        let detail = format!(
            "The role `{role}` may take {} numbers in one call at most.",
            quota.burst()
        );
        return Err(Problem::new(Code::InvalidCount, detail).limited_to(quota.burst()));
    }
    let now = Instant::now();
    let taken = quota.take(n, now);
    let Err(wait) = taken.or_else(|wait| if is_counted() { Err(wait) } else { Ok(()) }) else {
        let quota = Some(quota);
        return Ok(QuotaCharge { quota, n });
    };
    let detail = format!(
        "The callers of the role `{role}` may take {} numbers a second from this replica, and have \
         taken more.",
        quota.rate()
    );
    let refusal = caller.quota_refusal(Code::QuotaExceeded, Quota::Numbers, detail);
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    Err(refusal.after_ms(wait_ms).limited_to(quota.available(now)))
}

/// Returns the most numbers that the quotas of a caller's role let a call take now, if `left`
/// numbers are left of the sequence.
pub(crate) fn most_of_role(
    caller: &Caller,
    requested: &RequestedShare<'_>,
    left: Option<u64>,
) -> u64 {
    let Some(role) = caller.role().filter(|_| is_counted()) else {
        return u64::MAX;
    };
    let (numbers, share) = (role.quotas().numbers.as_ref(), role.quotas().share);
    let of_numbers = numbers.map(|quota| quota.available(Instant::now()));
    let has_share = !requested.is_confirmed && !share.is_all();
    let of_share = left.filter(|_| has_share).map(|left| share.most(left));
    let bounds = of_numbers.into_iter().chain(of_share);
    bounds.min().unwrap_or(u64::MAX)
}

/// Checks that a call takes no larger share of what a sequence has left than its role allows.
///
/// # Errors
/// 409 if it does and is not confirmed. 403 if it is confirmed by a caller who may not define the
/// sequence.
pub(crate) async fn check_share(
    calls: &Calls,
    caller: &Caller,
    requested: &RequestedShare<'_>,
) -> Result<(), Problem> {
    let (n, source) = (requested.n, requested.source);
    let Some(role) = caller.role() else {
        return Ok(());
    };
    let share = role.quotas().share;
    if n <= ALWAYS || share.is_all() || !is_counted() {
        return Ok(());
    }
    if requested.is_confirmed {
        return match caller.may(Right::Define, source) {
            true => Ok(()),
            false => Err(caller.refusal(
                Right::Define,
                &sources::told(caller, requested.name, source),
            )),
        };
    }
    let left = calls.directory.left(source, requested.period);
    let Some(left) = suggestions::with_suggestions(calls, caller, left).await? else {
        return Ok(());
    };
    let most = share.most(left);
    // A block that is too large for anybody is refused as such.
    if n <= most || (requested.wants == Wants::Block && n > max_at_once(left)) {
        return Ok(());
    }
    let role = role.name();
    let detail = format!(
        "{n} numbers are more than {share} of the {left} that are left, which is the most that a \
         call of the role `{role}` takes. Ask for {most} at most. If you mean so many, add \
         `confirm=true`, for which your role needs the right `define`."
    );
    let refusal = caller.quota_refusal(Code::ConfirmNeeded, Quota::Share, detail);
    Err(refusal.limited_to(most))
}

/// Lets a caller create a name, or a key with `code` [`Code::TooManyPeriods`], if its role may have
/// another one. The creation counts as under way until the value is dropped.
///
/// # Errors
/// 409 if there are as many as the role may have, or the store was asked and did not answer.
pub(crate) async fn creation(
    calls: &Calls,
    caller: &Caller,
    code: Code,
) -> Result<Option<Creation>, Problem> {
    let Some(role) = caller.role().filter(|_| is_counted()) else {
        return Ok(None);
    };
    let Some(quota) = &role.quotas().names else {
        return Ok(None);
    };
    let creation = match quota.room(Instant::now()) {
        Room::Free(creation) => Some(creation),
        Room::Full => None,
        Room::Unknown => counted_room(calls, role, quota).await?,
    };
    if creation.is_some() {
        return Ok(creation);
    }
    let (role, most) = (role.name(), quota.most());
    let detail = format!(
        "The callers of the role `{role}` create no more names and keys while there are {most} that \
         fit its globs of `create` and `define`. Retire names or remove keys, or ask the operator to \
         raise `names` of `[access.roles.{role}]`."
    );
    Err(caller.quota_refusal(code, Quota::Names, detail))
}

/// Does the same for a definer, if there is no live sequence of this name.
///
/// # Errors
/// As [`creation`].
pub(crate) async fn creation_of_name(
    calls: &Calls,
    caller: &Caller,
    name: &SequenceName,
) -> Result<Option<Creation>, Problem> {
    if !has_names_quota(caller) || calls.directory.is_live(name).await? {
        return Ok(None);
    }
    creation(calls, caller, Code::TooManySequences).await
}

/// Does the same for a definer, if nobody has used this key.
///
/// # Errors
/// As [`creation`].
pub(crate) async fn creation_of_key(
    calls: &Calls,
    caller: &Caller,
    name: &SequenceName,
    key: &Period,
) -> Result<Option<Creation>, Problem> {
    let is_asked = has_names_quota(caller) && !key.is_none();
    if !is_asked || calls.directory.first_use(name, Some(key)).await? != Some(FirstUse::Key) {
        return Ok(None);
    }
    creation(calls, caller, Code::TooManyPeriods).await
}

fn has_names_quota(caller: &Caller) -> bool {
    let role = caller.role();
    role.is_some_and(|role| role.quotas().names.is_some())
}

/// Counts the names that a role can create, one call after the other, and says whether there is room.
async fn counted_room(
    calls: &Calls,
    role: &Role,
    quota: &NamesQuota,
) -> Result<Option<Creation>, Problem> {
    let _turn = in_turn(quota.turn()).await?;
    // Another call may have counted meanwhile.
    match quota.room(Instant::now()) {
        Room::Free(creation) => return Ok(Some(creation)),
        Room::Full => return Ok(None),
        Room::Unknown => {}
    }
    let count = quota.begin_count(Instant::now());
    let globs = [Right::Create, Right::Define].map(|right| role.globs(right));
    let globs = globs.concat();
    let fits = |name: &SequenceName| fits(&globs, name);
    let counted = calls
        .directory
        .count_names(beginnings(&globs, ""), fits, quota.most());
    Ok(quota.room_after(count, counted.await?))
}

/// Waits for a turn among the callers of a role.
async fn in_turn<T>(turn: impl Future<Output = T>) -> Result<T, Problem> {
    timeout(TURN, turn).await.map_err(|_elapsed| {
        let detail = "Too many callers of the role wait until its quota is counted; try again.";
        Problem::new(Code::Overloaded, detail)
    })
}

/// Leases a worker id, if the role of the caller may have another one.
///
/// # Errors
/// 429 if the pools of the role have as many held ids as the role may have, or why the worker id was
/// not leased.
pub(crate) async fn lease(
    calls: &Calls,
    caller: &Caller,
    wanted: LeaseWanted,
) -> Result<LeaseGrant, Problem> {
    let directory = &calls.directory;
    let role = caller.role().filter(|_| is_counted());
    let quota = role.and_then(|role| role.quotas().worker_ids.as_ref());
    let Some((role, quota)) = role.zip(quota) else {
        return Ok(directory.lease_worker(wanted).await?);
    };
    let _turn = in_turn(quota.turn()).await?;
    let globs = role.globs(Right::Lease);
    let fits = |pool: &SequenceName| fits(globs, pool);
    let n_held = directory.count_held(beginnings(globs, ""), fits).await?;
    if n_held < quota.most() {
        return Ok(directory.lease_worker(wanted).await?);
    }
    let (role, most) = (role.name(), quota.most());
    let detail = format!(
        "The callers of the role `{role}` lease no more worker ids while {most} are held in pools \
         that fit its globs of `lease`. Return ids that are not used, or ask the operator to raise \
         `workers` of `[access.roles.{role}]`."
    );
    let refusal = caller.quota_refusal(Code::QuotaExceeded, Quota::WorkerIds, detail);
    Err(refusal.after_ms(LEASE_RETRY_MS))
}

fn fits(globs: &[Glob], name: &SequenceName) -> bool {
    globs.iter().any(|glob| glob.fits(name))
}

/// Returns whether quotas are counted. A test may say that they are not.
fn is_counted() -> bool {
    !faults::is(Fault::QuotaUncounted)
}
