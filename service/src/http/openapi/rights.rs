//! Says which right each call needs.

use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::SecurityRequirement;

use crate::access::right::Right;

/// The name of the scheme by which a call shows a token.
pub(crate) const BEARER: &str = "bearer";

/// The name of the scheme by which a connection shows a certificate.
pub(crate) const MUTUAL_TLS: &str = "mutualTLS";

/// The key under which the description of a call names the right.
const KEY: &str = "x-odometer-right";

/// Returns the right that an operation needs on the name in its path or body, or on all names if it
/// has none. `None` if everybody may make the call.
fn right_of(operation_id: &str) -> Option<Right> {
    match operation_id {
        "takeNumbers" => Some(Right::Take),
        "reserveBlock" => Some(Right::Block),
        "defineSequence" | "advanceSequence" | "retireSequence" | "restoreSequence"
        | "removePeriod" | "releasePool" => Some(Right::Define),
        "leaseWorker" | "renewWorker" | "returnWorker" => Some(Right::Lease),
        "parseNumber" | "explainNumber" | "listSequences" | "getSequence" | "listWorkers"
        | "getReplica" | "listLiveSequences" | "getLiveSequence" | "getMetrics" => {
            Some(Right::Look)
        }
        _ => None,
    }
}

/// Adds to an operation which right it needs, and that a token or a certificate may show who has it.
pub(crate) fn add(operation: &mut Operation) {
    let id = operation.operation_id.as_deref().unwrap_or_default();
    let right = right_of(id);
    if right.is_none() && id != "getCaller" {
        return;
    }
    let by = |scheme| SecurityRequirement::new(scheme, Vec::<String>::new());
    let nothing = SecurityRequirement::default();
    operation.security = Some(vec![nothing, by(BEARER), by(MUTUAL_TLS)]);
    if let Some(right) = right {
        let mut extensions = Extensions::default();
        extensions.insert(KEY.to_owned(), right.word().into());
        operation.extensions = Some(extensions);
    }
}
