//! Says why calls should not be sent to this replica.

use odometer_sequence::Readiness;

use super::problem::Code;

/// Returns why calls should not be sent to this replica, or `None` if they should.
pub(crate) fn why_not_ready(readiness: Readiness) -> Option<(Code, &'static str)> {
    match readiness {
        Readiness::Ready => None,
        Readiness::Draining => Some((Code::Draining, "This replica is stopping.")),
        Readiness::Loading => Some((
            Code::StoreUnavailable,
            "The names used most recently are being loaded.",
        )),
        Readiness::NoContact => Some((
            Code::StoreUnavailable,
            "The database does not answer, and there is no number left in memory.",
        )),
        Readiness::WrongSchema => Some((
            Code::StoreUnavailable,
            "The schema of the database does not fit this version; run `odometer migrate`.",
        )),
    }
}
