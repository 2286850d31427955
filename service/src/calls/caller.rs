//! Says who makes a call, and what this caller may do.

use std::sync::Arc;

use odometer_core::name::SequenceName;
use odometer_process::faults::{self, Fault};
use odometer_sequence::audit::Author;

use super::denials::Denials;
use super::evidence::Evidence;
use super::problem::{Code, Problem};
use crate::access::quotas::Quota;
use crate::access::right::Right;
use crate::access::role::Role;

/// The most characters that are logged of what proxies say for whom they call.
const MAX_FORWARDED_FOR: usize = 256;

/// A caller, and what this caller may do.
pub(crate) struct Caller {
    name: Arc<str>,
    how: Shown,
    /// `None` for an administrator, who may do everything.
    role: Option<Arc<Role>>,
    denials: Arc<Denials>,
}

/// What a call showed of its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shown {
    /// A token that is right.
    Token,
    /// No token, on a connection with a certificate that is a caller's.
    Certificate,
    /// Nothing.
    Nothing,
}

impl Shown {
    /// Returns what the log calls it.
    fn word(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Certificate => "certificate",
            Self::Nothing => "nothing",
        }
    }
}

impl Caller {
    /// Creates what is known of a caller. An administrator has no role.
    pub(crate) fn new(
        name: Arc<str>,
        how: Shown,
        role: Option<Arc<Role>>,
        denials: Arc<Denials>,
    ) -> Self {
        Self {
            name,
            how,
            role,
            denials,
        }
    }

    /// Returns whether the caller has a right on a name.
    pub(crate) fn may(&self, right: Right, name: &SequenceName) -> bool {
        let is_unasked = faults::is(Fault::RightsUnasked) && right == Right::Take;
        let role = self.role.as_ref();
        role.is_none_or(|role| role.may(right, name)) || is_unasked
    }

    /// Returns whether the caller has a right on all names.
    pub(crate) fn may_all(&self, right: Right) -> bool {
        self.role.as_ref().is_none_or(|role| role.may_all(right))
    }

    /// Returns whether the caller may do everything.
    pub(crate) fn is_administrator(&self) -> bool {
        self.role.is_none()
    }

    /// Returns the name of the caller, as the file of callers or the log calls it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the role; `None` for an administrator.
    pub(crate) fn role(&self) -> Option<&Role> {
        self.role.as_deref()
    }

    /// Returns the role, to be kept; `None` for an administrator.
    pub(crate) fn shared_role(&self) -> Option<&Arc<Role>> {
        self.role.as_ref()
    }

    /// Checks that the caller has a right on a name.
    ///
    /// # Errors
    /// 403 without the right, or 401 if the caller showed neither token nor certificate.
    pub(crate) fn check(&self, right: Right, name: &SequenceName) -> Result<(), Problem> {
        match self.may(right, name) {
            true => Ok(()),
            false => Err(self.refusal(right, &format!("`{name}`"))),
        }
    }

    /// Returns why the caller may not do something, and counts the refusal. `names` says on which
    /// names it lacks the right.
    pub(crate) fn refusal(&self, right: Right, names: &str) -> Problem {
        let role = self.role_name();
        let who = (&self.name, self.how.word());
        self.denials.note_right(&role, right, who);
        let right = right.word();
        match self.how {
            Shown::Nothing => unauthenticated(true),
            Shown::Token | Shown::Certificate => Problem::new(
                Code::Forbidden,
                format!(
                    "The role `{role}` has no right `{right}` on {names}. Ask the operator to add \
                     it to `[access.roles.{role}]`."
                ),
            ),
        }
    }

    /// Returns why the caller may not use up more, and counts the refusal.
    pub(crate) fn quota_refusal(&self, code: Code, quota: Quota, detail: String) -> Problem {
        let who = (&self.name, self.how.word());
        self.denials.note_quota(&self.role_name(), quota, who);
        Problem::new(code, detail)
    }

    /// Returns the name of the role; an empty text for an administrator.
    fn role_name(&self) -> Arc<str> {
        let role = self.role.as_ref();
        role.map_or_else(|| "".into(), |role| Arc::clone(role.name()))
    }

    /// Returns what the log says of the caller of a change.
    pub(crate) fn author(&self, evidence: &Evidence<'_>) -> Author {
        let peer = evidence.peer;
        Author {
            who: Arc::clone(&self.name),
            how: Some(self.how.word()),
            role: self.role.as_ref().map(|role| Arc::clone(role.name())),
            peer: peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string()),
            forwarded_for: evidence.forwarded_for.map(printable),
            request_id: evidence.request_id.clone(),
        }
    }
}

/// Returns the refusal of a call without a token, or with a wrong one.
pub(crate) fn unauthenticated(has_roles: bool) -> Problem {
    let detail = match has_roles {
        true => {
            "This call needs `Authorization: Bearer` with the token of a caller whose role has the \
             right to make it."
        }
        false => "This call needs `Authorization: Bearer` with the administrator's token.",
    };
    Problem::new(Code::Unauthenticated, detail)
}

/// Returns the refusal of a call without a token, on a connection with a certificate that is no
/// caller's.
pub(crate) fn uncertified() -> Problem {
    Problem::new(
        Code::Unauthenticated,
        "The client certificate of this connection stands for no caller: it has expired or was \
         revoked, or its URI and DNS names are not those of exactly one caller. Show another one, or \
         the token of a caller with `Authorization: Bearer`.",
    )
}

/// Returns what the log shows of a text that a proxy wrote, or a caller who poses as one.
///
/// The text has only characters of addresses, and is not longer than the bound.
pub(crate) fn printable(forwarded_for: &[u8]) -> String {
    let written = forwarded_for.iter().map(|byte| char::from(*byte));
    written
        .filter(|found| found.is_ascii_alphanumeric() || ".:,[]-_ ".contains(*found))
        .take(MAX_FORWARDED_FOR)
        .collect()
}
