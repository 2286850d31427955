//! Tells a caller whose call asks for too many numbers how many it could have now.
//!
//! The size of a call has several bounds, and the place that refuses a size knows one of them. A
//! caller takes the number that it is told, and calls once more. So it must be told the lowest of
//! all bounds that are known, which is found here, once, for all places.

use odometer_sequence::{CallBounds, Wants};

use super::caller::Caller;
use super::problem::Problem;
use super::quotas::{self, RequestedShare};
use super::state::Calls;

/// The most numbers that one call gives.
pub(crate) const MAX_COUNT: u64 = 10_000;

/// Lowers the limit of a refusal to the lowest bound of this call that is known. A refusal without
/// a limit stays as it is: it does not refuse the size.
///
/// The limit is 1 at least. A caller takes a refusal without a limit as final, but a quota that is
/// used up is filled again. The refusal of the one number says when to come back.
///
/// Asks no store, so that a refusal costs no more than before.
pub(crate) fn lowered(
    refused: Problem,
    calls: &Calls,
    caller: &Caller,
    requested: &RequestedShare<'_>,
) -> Problem {
    let Some(limit) = refused.limit() else {
        return refused;
    };
    let (source, period, wants) = (requested.source, requested.period, requested.wants);
    let known = calls.directory.call_bounds(source, period, wants);
    let of_one_call = match wants {
        Wants::Numbers | Wants::Range => MAX_COUNT,
        Wants::Block => u64::MAX,
    };
    let left = known.and_then(|known| known.left);
    let of_role = quotas::most_of_role(caller, requested, left);
    let of_sequence = known.map_or(u64::MAX, CallBounds::most);
    let most = limit.min(of_one_call).min(of_role).min(of_sequence);
    refused.limited_to(most.max(1))
}
