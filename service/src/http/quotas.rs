//! Keeps callers within the quotas of their role.

use std::time::{Duration, Instant};

use odometer_core::glob::Glob;
use odometer_core::name::SequenceName;
use odometer_core::period::Period;
use odometer_process::faults::{self, Fault};
use odometer_sequence::workers::{LeaseGrant, LeaseWanted};
use tokio::time::timeout;

use super::caller::Caller;
use super::problem::{Code, Problem};
use super::state::Http;
use super::visible_names::beginnings;
use super::{sources, suggestions};
use crate::access::quotas::Quota;
use crate::access::quotas::names::{Creation, Room};
use crate::access::quotas::share::ALWAYS;
use crate::access::right::Right;

/// When a caller may ask again for a worker id, in milliseconds.
const LEASE_RETRY_MS: u64 = 5000;

/// How long a caller waits while other callers of its role lease worker ids.
const TURN: Duration = Duration::from_secs(5);

/// A block is at most this part of what is left, whoever asks.
const PART_OF_BLOCK: u64 = 4096;

/// What a call takes of a sequence at once.
pub(crate) struct Taking<'a> {
    /// The name in the call, and the sequence that gives its numbers.
    pub(crate) name: &'a SequenceName,
    pub(crate) source: &'a SequenceName,
    pub(crate) period: Option<&'a Period>,
    /// How many numbers, and whether they are a block.
    pub(crate) n: u64,
    pub(crate) is_block: bool,
    /// Whether the caller says that it means so many.
    pub(crate) is_confirmed: bool,
}

/// Checks that the role of a caller may take `n` numbers now.
///
/// # Errors
/// 429 if its callers took too many in the last seconds, or 400 if it may never take so many in one
/// call.
pub(crate) fn check_numbers(caller: &Caller, n: u64) -> Result<(), Problem> {
    let quota = caller.quotas().and_then(|quotas| quotas.numbers.as_ref());
    let Some((role, quota)) = caller.role().zip(quota) else {
        return Ok(());
    };
    let role = role.name();
    if n > quota.burst() {
        let detail = format!(
            "The role `{role}` may take {} numbers in one call at most.",
            quota.burst()
        );
        return Err(Problem::new(Code::InvalidCount, detail));
    }
    let Some(wait) = quota.wait(n, Instant::now()).filter(|_| is_counted()) else {
        return Ok(());
    };
    let detail = format!(
        "The callers of the role `{role}` may take {} numbers a second from this replica, and have \
         taken more.",
        quota.rate()
    );
    let refusal = caller.quota_refusal(Code::QuotaExceeded, Quota::Numbers, detail);
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    Err(refusal.after_ms(wait_ms))
}

/// Notes that a caller got `n` numbers.
pub(crate) fn charge(caller: &Caller, n: u64) {
    if let Some(quota) = caller.quotas().and_then(|quotas| quotas.numbers.as_ref()) {
        quota.charge(n, Instant::now());
    }
}

/// Checks that a call takes no larger share of what a sequence has left than its role allows.
///
/// # Errors
/// 409 if it does and is not confirmed. 403 if it is confirmed by a caller who may not define the
/// sequence.
pub(crate) async fn check_share(
    http: &Http,
    caller: &Caller,
    taking: &Taking<'_>,
) -> Result<(), Problem> {
    let (n, source) = (taking.n, taking.source);
    let Some((role, quotas)) = caller.role().zip(caller.quotas()) else {
        return Ok(());
    };
    let share = quotas.share;
    if n <= ALWAYS || share.is_all() || !is_counted() {
        return Ok(());
    }
    if taking.is_confirmed {
        return match caller.may(Right::Define, source) {
            true => Ok(()),
            false => {
                Err(caller.refusal(Right::Define, &sources::told(caller, taking.name, source)))
            }
        };
    }
    let left = http.directory.left(source, taking.period);
    let Some(left) = suggestions::with_suggestions(http, caller, left).await? else {
        return Ok(());
    };
    let most = share.most(left);
    // A block that is too large for anybody is refused as such.
    if n <= most || (taking.is_block && n > left / PART_OF_BLOCK) {
        return Ok(());
    }
    let role = role.name();
    let detail = format!(
        "{n} numbers are more than {share} of the {left} that are left, which is the most that a \
         call of the role `{role}` takes. Ask for {most} at most. If you mean so many, add \
         `confirm=true`, for which your role needs the right `define`."
    );
    Err(caller.quota_refusal(Code::ConfirmNeeded, Quota::Share, detail))
}

/// Lets a caller create a name, or a key with `code` [`Code::TooManyPeriods`], if its role may have
/// another one. The creation counts as under way until the value is dropped.
///
/// # Errors
/// 409 if there are as many as the role may have, or the store was asked and did not answer.
pub(crate) async fn creation(
    http: &Http,
    caller: &Caller,
    code: Code,
) -> Result<Option<Creation>, Problem> {
    let role = caller.role();
    let quota = caller.quotas().and_then(|quotas| quotas.names.as_ref());
    let Some((role, quota)) = role.zip(quota).filter(|_| is_counted()) else {
        return Ok(None);
    };
    let creation = match quota.room(Instant::now()) {
        Room::Free(creation) => Some(creation),
        Room::Full => None,
        Room::Unknown => {
            let began = Instant::now();
            let globs = [Right::Create, Right::Define].map(|right| role.globs(right));
            let globs = globs.concat();
            let counted = http.directory.count_names(
                beginnings(&globs, ""),
                |name| fits(&globs, name),
                quota.most(),
            );
            quota.room_after(counted.await?, began)
        }
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

/// Leases a worker id, if the role of the caller may have another one.
///
/// # Errors
/// 429 if the pools of the role have as many held ids as the role may have, or why the worker id was
/// not leased.
pub(crate) async fn lease(
    http: &Http,
    caller: &Caller,
    wanted: LeaseWanted,
) -> Result<LeaseGrant, Problem> {
    let directory = &http.directory;
    let role = caller.role();
    let quota = caller
        .quotas()
        .and_then(|quotas| quotas.worker_ids.as_ref());
    let Some((role, quota)) = role.zip(quota).filter(|_| is_counted()) else {
        return Ok(directory.lease_worker(wanted).await?);
    };
    let turn = timeout(TURN, quota.turn()).await;
    let _turn = turn.map_err(|_elapsed| {
        let detail = "Too many calls of the role lease worker ids at once; try again.";
        Problem::new(Code::Overloaded, detail)
    })?;
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
