//! Remembers the caller of a connection, so that the warm path need not find out who calls.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use odometer_core::name::SequenceName;
use odometer_process::faults::{self, Fault};

use crate::access::quotas::numbers::NumbersQuota;
use crate::access::right::Right;
use crate::access::role::Role;

/// What one connection last showed of its caller. It belongs to the connection alone.
#[derive(Default)]
pub(crate) struct CallerMemo(RefCell<Option<Remembered>>);

/// When something is remembered or asked: how often the callers have changed, and the tick of the
/// worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoTime {
    pub(crate) generation: u64,
    pub(crate) tick: u32,
}

struct Remembered {
    /// What the call showed, as it was sent; `None` if it showed nothing.
    shown: Option<Box<[u8]>>,
    at: MemoTime,
    /// `None` for an administrator.
    role: Option<Arc<Role>>,
    /// The last name that the caller may take numbers of.
    name: String,
}

impl CallerMemo {
    /// Remembers who the caller is that showed `shown`.
    pub(crate) fn remember(&self, shown: Option<&[u8]>, at: MemoTime, role: Option<&Arc<Role>>) {
        self.0.replace(Some(Remembered {
            shown: shown.map(Box::from),
            at,
            role: role.cloned(),
            name: String::with_capacity(SequenceName::MAX_LENGTH),
        }));
    }

    /// Returns whether a call that shows `shown` certainly may take numbers of a sequence. `false`
    /// says nothing.
    ///
    /// A memo counts within its tick, so a token that expires is asked for again within a second.
    pub(crate) fn may_take(&self, shown: Option<&[u8]>, at: MemoTime, name: &str) -> bool {
        let mut remembered = self.0.borrow_mut();
        let Some(remembered) = remembered.as_mut() else {
            return false;
        };
        let is_fresh = remembered.at == at || faults::is(Fault::MemoNeverStale);
        if !is_fresh || remembered.shown.as_deref() != shown {
            return false;
        }
        let Some(role) = &remembered.role else {
            return true;
        };
        // At first no name is remembered, and an empty text is none.
        if remembered.name == name && !name.is_empty() {
            return true;
        }
        let may = SequenceName::parse(name).is_ok_and(|name| role.may(Right::Take, &name));
        if may {
            remembered.name.clear();
            remembered.name.push_str(name);
        }
        may
    }

    /// Takes `n` numbers from the quota of the remembered role. Returns whether it had them.
    pub(crate) fn take_quota(&self, n: u64) -> bool {
        let remembered = self.0.borrow();
        let quota = remembered.as_ref().and_then(Remembered::quota);
        quota.is_none_or(|quota| quota.take(n, Instant::now()).is_ok())
    }

    /// Gives `n` numbers back to this quota, because memory did not have them.
    pub(crate) fn give_back_quota(&self, n: u64) {
        if let Some(quota) = self.0.borrow().as_ref().and_then(Remembered::quota) {
            quota.give_back(n);
        }
    }
}

impl Remembered {
    fn quota(&self) -> Option<&NumbersQuota> {
        self.role.as_deref()?.quotas().numbers.as_ref()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use metrics::Gauge;
    use odometer_core::glob::Glob;
    use odometer_tests::{HOST, TestAuthority, TlsFiles};

    use super::*;
    use crate::access::credentials::Credentials;
    use crate::config::Config;

    #[test]
    fn a_memo_counts_for_the_same_header_and_time_and_the_names_of_the_role() {
        let globs = vec![Glob::parse("orders-*").unwrap()];
        let role = Arc::new(Role::new("taker").with(Right::Take, globs));
        let (token, other) = (b"a".as_slice(), b"b".as_slice());
        let at = MemoTime {
            generation: 3,
            tick: 7,
        };
        let memo = CallerMemo::default();
        assert!(
            !memo.may_take(Some(token), at, "orders-1"),
            "nothing is remembered"
        );
        memo.remember(Some(token), at, Some(&role));
        assert!(!memo.may_take(Some(token), at, ""), "no name is remembered");
        for name in ["orders-1", "orders-1", "orders-2", "orders-1"] {
            assert!(memo.may_take(Some(token), at, name), "{name}");
        }
        for name in ["orders", "invoices", "orders-%31", ""] {
            assert!(!memo.may_take(Some(token), at, name), "{name}");
        }
        assert!(!memo.may_take(Some(other), at, "orders-1"));
        assert!(!memo.may_take(None, at, "orders-1"));
        let (changed, later) = (
            MemoTime {
                generation: 4,
                ..at
            },
            MemoTime { tick: 8, ..at },
        );
        assert!(!memo.may_take(Some(token), changed, "orders-1"));
        assert!(!memo.may_take(Some(token), later, "orders-1"));
        memo.remember(None, at, None);
        assert!(memo.may_take(None, at, "anything"));
        assert!(
            !memo.may_take(Some(token), at, "orders-1"),
            "it was replaced"
        );
    }

    #[test]
    fn a_memo_ends_when_a_certificate_is_revoked() {
        let authority = TestAuthority::new("a");
        let files = TlsFiles::new(&authority.sign(&[HOST]));
        files.set("ca.pem", &authority.certificate());
        files.set("crl.pem", &authority.revocations(&[]));
        let mut config = Config::default();
        config.tls.certificate_file = Some(files.path("server.pem"));
        config.tls.key_file = Some(files.path("server.key"));
        config.tls.clients_ca_file = Some(files.path("ca.pem"));
        config.tls.clients_crl_file = Some(files.path("crl.pem"));
        let credentials = Credentials::new(&config, Gauge::noop()).unwrap();
        let now = || MemoTime {
            generation: credentials.generation(),
            tick: 7,
        };
        let memo = CallerMemo::default();
        memo.remember(None, now(), None);
        credentials.refresh();
        assert!(memo.may_take(None, now(), "orders"), "nothing has changed");
        let caller = authority.sign(&["spiffe://corp/a"]);
        files.set("crl.pem", &authority.revocations(&[&caller]));
        credentials.refresh();
        assert!(!memo.may_take(None, now(), "orders"));
    }
}
