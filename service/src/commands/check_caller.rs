//! `odometer check --as`: says what a caller may do, without a database.

use std::sync::Arc;
use std::time::SystemTime;

use odometer_core::{name::SequenceName, templates::Template};

use super::failure::CommandFailure;
use crate::access::quotas::Quotas;
use crate::access::right::Right;
use crate::access::role::Role;
use crate::access::settings::AccessSettings;
use crate::config::Config;

/// Says which rights a caller has, each with the globs that give it. With `name`, says which rights
/// the caller has on this name, and which glob decides.
///
/// # Errors
/// There are no roles, or no such caller, or `name` is not the name of a sequence.
pub fn check_caller(
    config: &Config,
    caller: &str,
    name: Option<&str>,
) -> Result<Vec<String>, CommandFailure> {
    let Some(access) = &config.access else {
        let sentence = "--as: there are no roles; configure [access] first";
        return Err(CommandFailure::usage(sentence));
    };
    let name = name.map(SequenceName::parse).transpose();
    let mut name = name.map_err(|error| CommandFailure::usage(format!("--name: {error}")))?;
    let (first, role) = known(access, caller)?;
    let mut lines = vec![first];
    if let Some(asked) = &name
        && let Some(Template::Share(target)) = config.templates.of(asked)
    {
        lines.push(format!(
            "# unless {asked} is defined, it shares the numbers of {target}, on which the rights are"
        ));
        name = Some(target);
    }
    let rights = Right::ALL.into_iter().map(|right| {
        let said = match (&role, &name) {
            (None, _) => "yes".to_owned(),
            (Some(role), None) => globs(role, right),
            (Some(role), Some(name)) => decision(role, right, name),
        };
        format!("{}: {said}", right.word())
    });
    lines.extend(rights);
    if let Some(role) = &role {
        lines.extend(quotas(role.quotas()));
    }
    Ok(lines)
}

/// Says what the callers of a role can use up.
fn quotas(quotas: &Quotas) -> Vec<String> {
    let numbers = quotas.numbers.as_ref();
    let numbers = numbers.map(|it| format!("numbers: {} a second from each replica", it.rate()));
    let names = quotas.names.as_ref();
    let names = names.map(|it| format!("names: {} that it can create, with keys", it.most()));
    let worker_ids = quotas.worker_ids.as_ref();
    let worker_ids = worker_ids.map(|it| format!("workers: {} held at once", it.most()));
    let share = format!("share: {} of what is left in one call", quotas.share);
    let said = [numbers, names, worker_ids, Some(share)];
    said.into_iter().flatten().collect()
}

/// Returns what is known of a caller as a line, and its role; `None` for the administrator.
fn known(
    access: &AccessSettings,
    caller: &str,
) -> Result<(String, Option<Arc<Role>>), CommandFailure> {
    let unknown = |problem: String| Err(CommandFailure::usage(format!("--as: {problem}")));
    match caller {
        "administrator" => Ok(("# administrator: may do everything".to_owned(), None)),
        "anonymous" => match &access.anonymous {
            Some(role) => Ok((
                format!("# anonymous: role {}", role.name()),
                Some(Arc::clone(role)),
            )),
            None => unknown("callers without a token get 401; set access.anonymous".to_owned()),
        },
        _ => {
            let callers = access.read_callers();
            let callers = callers.map_err(CommandFailure::configuration)?;
            let issuers = access.read_issuers();
            issuers.map_err(CommandFailure::configuration)?;
            let Some(known) = callers.named(caller) else {
                return unknown(format!("{caller:?} is not in the file of callers"));
            };
            let role = known.role.name();
            let expiry = match known.expires {
                None => String::new(),
                Some(expires) if SystemTime::from(expires) <= SystemTime::now() => {
                    format!(", expired since {expires}")
                }
                Some(expires) => format!(", expires at {expires}"),
            };
            let line = format!("# {caller}: role {role}{expiry}");
            Ok((line, Some(Arc::clone(&known.role))))
        }
    }
}

fn globs(role: &Role, right: Right) -> String {
    let globs = role.globs(right).iter();
    let globs: Vec<String> = globs.map(|glob| format!("\"{glob}\"")).collect();
    match globs.is_empty() {
        true => "no".to_owned(),
        false => format!("on {}", globs.join(", ")),
    }
}

fn decision(role: &Role, right: Right, name: &SequenceName) -> String {
    let mut globs = role.globs(right).iter();
    match globs.find(|glob| glob.fits(name)) {
        Some(glob) => format!("yes, by \"{glob}\""),
        None => "no".to_owned(),
    }
}
