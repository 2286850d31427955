//! Refuses a name that does not exist, with the names that may have been meant.

use odometer_core::name::SequenceName;
use odometer_sequence::error::SequenceError;

use super::caller::Caller;
use super::problem::{Code, Problem};
use super::state::Calls;
use crate::access::right::Right;

/// Waits for what the directory answers, and turns an error into a refusal.
///
/// # Errors
/// The problem for the error. If there is no such sequence, the problem may have up to three
/// similar names that the caller may look at.
pub(crate) async fn with_suggestions<T>(
    calls: &Calls,
    caller: &Caller,
    asked: impl Future<Output = Result<T, SequenceError>>,
) -> Result<T, Problem> {
    let error = match asked.await {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let (SequenceError::NotFound { name } | SequenceError::NotCreated { name }) = &error else {
        return Err(error.into());
    };
    let mut names = calls.directory.near(name).await;
    names.retain(|name| SequenceName::parse(name).is_ok_and(|name| caller.may(Right::Look, &name)));
    Err(match suggestion(&names) {
        None => error.into(),
        Some(suggestion) => {
            let detail = format!("{error} {suggestion}");
            Problem::new(Code::SequenceNotFound, detail).suggesting(names)
        }
    })
}

fn suggestion(names: &[String]) -> Option<String> {
    let (last, others) = names.split_last()?;
    Some(if others.is_empty() {
        format!("Did you mean `{last}`?")
    } else {
        format!("Did you mean `{}` or `{last}`?", others.join("`, `"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suggestion_names_all() {
        let said = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            suggestion(&names)
        };
        assert_eq!(said(&[]), None);
        assert_eq!(said(&["a"]).as_deref(), Some("Did you mean `a`?"));
        assert_eq!(
            said(&["a", "b", "c"]).as_deref(),
            Some("Did you mean `a`, `b` or `c`?")
        );
    }
}
