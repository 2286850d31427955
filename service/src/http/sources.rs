//! Lets callers pass who have a right on the sequence behind a name.

use actix_web::HttpRequest;
use odometer_core::name::SequenceName;
use odometer_core::period::Period;

use super::caller::Caller;
use super::problem::Problem;
use super::state::Http;
use super::suggestions;
use crate::access::right::Right;

/// Lets a caller pass who has `right` on the sequence behind a name: the sequence of this name, or
/// the one whose numbers the name shares.
///
/// # Errors
/// As [`Access::admit`](super::access::Access::admit), or the store was asked and did not answer.
pub(crate) async fn admit(
    request: &HttpRequest,
    http: &Http,
    right: Right,
    name: &SequenceName,
) -> Result<Caller, Problem> {
    let caller = http.access.identify(request, right).await?;
    if !caller.may_all(right) {
        source(http, &caller, right, name).await?;
    }
    Ok(caller)
}

/// Does the same for a call that would create what nobody has used, for which the caller also needs
/// the right to create it.
///
/// What was used once stays in the store for good, so a caller who passes here creates nothing that
/// it may not create.
///
/// # Errors
/// As [`admit`], and 401 or 403 if the caller may not create what does not exist.
pub(crate) async fn admit_first_use(
    request: &HttpRequest,
    http: &Http,
    right: Right,
    (name, period): (&SequenceName, Option<&Period>),
) -> Result<Caller, Problem> {
    let caller = http.access.identify(request, right).await?;
    if caller.may_all(right) && caller.may_all(Right::Create) {
        return Ok(caller);
    }
    let source = source(http, &caller, right, name).await?;
    if caller.may(Right::Create, &source) {
        return Ok(caller);
    }
    let directory = &http.directory;
    let used = directory.was_used(&source, period);
    let is_used = suggestions::with_suggestions(http, &caller, used).await?;
    // If no call creates the name, the right to create it would not help.
    match is_used || !(directory.creates(&source) || period.is_some()) {
        true => Ok(caller),
        false => {
            let names = format!(
                "{}, which nobody has used yet",
                told(&caller, name, &source)
            );
            Err(caller.refusal(Right::Create, &names))
        }
    }
}

/// Returns the sequence behind a name, on which the caller has `right`.
async fn source(
    http: &Http,
    caller: &Caller,
    right: Right,
    name: &SequenceName,
) -> Result<SequenceName, Problem> {
    let Some(target) = http.directory.shared_by_template(name) else {
        caller.check(right, name)?;
        return Ok(name.clone());
    };
    // Rights come before existence.
    if !caller.may(right, name) && !caller.may(right, &target) {
        return Err(caller.refusal(right, &format!("`{name}`")));
    }
    let source = http.directory.source(name);
    let source = suggestions::with_suggestions(http, caller, source).await?;
    match caller.may(right, &source) {
        true => Ok(source),
        false => Err(caller.refusal(right, &told(caller, name, &source))),
    }
}

/// Returns how a refusal names a sequence: by the name in the call, if the caller may not look at
/// the sequence behind it.
fn told(caller: &Caller, name: &SequenceName, source: &SequenceName) -> String {
    match caller.may(Right::Look, source) {
        true => format!("`{source}`"),
        false => format!("the sequence behind `{name}`"),
    }
}
