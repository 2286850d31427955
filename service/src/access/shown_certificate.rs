//! Holds the certificate that a caller showed when its connection began, and looks now and then
//! whether it still counts.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use odometer_process::faults::{self, Fault};
use rustls::pki_types::CertificateDer;

use super::certificates::{ListenerTls, names_of};

/// For how long a certificate counts as checked, if the files of `[tls]` do not change.
const CHECKED_FOR: Duration = Duration::from_secs(60);

/// A certificate that a caller showed. It belongs to one connection.
///
/// A connection can last longer than its caller's certificate. So the certificate is checked again
/// when the files of `[tls]` have changed, and once a minute because it may have expired.
pub struct ShownCertificate {
    /// The certificate, and those that lead to its authority.
    chain: Vec<CertificateDer<'static>>,
    names: Vec<String>,
    checked: RefCell<Checked>,
}

/// When a certificate was found good, and by what.
struct Checked {
    /// Only the address is compared, so a connection keeps none of its lists in memory.
    by: Weak<ListenerTls>,
    at: Instant,
}

impl ShownCertificate {
    /// Remembers the certificate of a connection, which `by` has checked at the time `at`.
    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        by: Arc<ListenerTls>,
        at: Instant,
    ) -> Self {
        Self {
            names: chain.first().map(names_of).unwrap_or_default(),
            chain,
            checked: RefCell::new(Checked::new(&by, at)),
        }
    }

    /// Returns the names by which the caller can be known: each URI and DNS name.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns whether the certificate counts at the time `now`, when `tls` is what the files say.
    pub(crate) fn counts(&self, tls: &Arc<ListenerTls>, now: Instant) -> bool {
        let mut checked = self.checked.borrow_mut();
        let is_fresh = now.saturating_duration_since(checked.at) < CHECKED_FOR;
        let is_checked = std::ptr::eq(checked.by.as_ptr(), Arc::as_ptr(tls)) && is_fresh;
        if is_checked || faults::is(Fault::CertificatesCheckedOnce) {
            return true;
        }
        if !tls.takes(&self.chain) {
            return false;
        }
        *checked = Checked::new(tls, now);
        true
    }
}

impl Checked {
    fn new(by: &Arc<ListenerTls>, at: Instant) -> Self {
        Self {
            by: Arc::downgrade(by),
            at,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_tests::{TestAuthority, directory};
    use rustls::pki_types::pem::PemObject as _;

    use super::super::certificates::CertificateFiles;
    use super::*;

    #[test]
    fn a_certificate_is_checked_again_if_the_files_have_changed_or_a_minute_has_passed() {
        let authority = TestAuthority::new("a");
        let folder = directory("tls");
        let set = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let server = authority.sign(&["localhost"]);
        let files = CertificateFiles {
            certificate: set("server.pem", &server.certificate),
            key: set("server.key", &server.key),
            clients_ca: Some(set("ca.pem", &authority.certificate())),
            clients_crl: Some(set("crl.pem", &authority.revocations(&[]))),
        };
        let caller = authority.sign(&["spiffe://corp/a"]);
        let chain = || vec![CertificateDer::from_pem_slice(caller.certificate.as_bytes()).unwrap()];
        let (first, begun) = (Arc::new(ListenerTls::read(&files).unwrap()), Instant::now());
        let shown = ShownCertificate::new(chain(), Arc::clone(&first), begun);
        assert_eq!(shown.names(), ["spiffe://corp/a"]);
        assert!(shown.counts(&first, begun) && shown.counts(&first, begun + 2 * CHECKED_FOR));

        set("crl.pem", &authority.revocations(&[&caller]));
        let revoked = Arc::new(ListenerTls::read(&files).unwrap());
        assert!(!shown.counts(&revoked, begun), "it was revoked");
        assert!(shown.counts(&first, begun), "the former list says nothing");

        // No connection keeps what is replaced, and what comes in its place is not taken for it.
        let shown = ShownCertificate::new(chain(), Arc::clone(&first), begun);
        let former = Arc::downgrade(&first);
        drop(first);
        assert!(former.upgrade().is_none(), "it is kept");
        assert!(!shown.counts(&revoked, begun));
        set("crl.pem", &authority.revocations(&[]));
        let first = Arc::new(ListenerTls::read(&files).unwrap());

        // It has expired since the handshake.
        let expired = authority.sign_for_days(&["spiffe://corp/a"], -2);
        let expired = CertificateDer::from_pem_slice(expired.certificate.as_bytes()).unwrap();
        let shown = ShownCertificate::new(vec![expired], Arc::clone(&first), begun);
        assert!(shown.counts(&first, begun + CHECKED_FOR / 2));
        assert!(!shown.counts(&first, begun + CHECKED_FOR));
    }
}
