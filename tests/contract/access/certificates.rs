//! Tests that a caller is known by its certificate, and no longer when that is revoked.

use std::time::Duration;

use jiff::{Timestamp, ToSpan as _};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::Value;

use super::{Roles, TestCaller, refused, replace};
use crate::support::{
    HOST, Options, Program, Reply, Scrape, SecureConnection, SignedCertificate, TestAuthority,
    TlsCaller, TlsFiles, operations, run, wait,
};

const LIMIT: Duration = Duration::from_secs(20);
const ACCESS: &str = "[access.roles.taker]\ntake = [\"*\"]\ncreate = [\"*\"]\n\
    [access.roles.reader]\nlook = [\"*\"]\n";
const NEXT: &str = "/v1/sequences/orders/next";
pub(super) const BILLING: &str = "spiffe://corp/ns/payments/sa/billing";
pub(super) const WEB: &str = "web.example";
/// The text of the log when the files of `[tls]` were read again.
const READ_AGAIN: &str = "The files of [tls] have changed";

/// A program that knows callers by their certificates.
pub(super) struct Certified {
    pub(super) roles: Roles,
    files: TlsFiles,
    /// Signs the certificates of the listener and of the callers.
    pub(super) authority: TestAuthority,
}

impl Certified {
    /// Starts a program with the roles of `access`, and with the callers of `sections`.
    pub(super) async fn start(options: Options, access: &str, sections: &str) -> Self {
        let authority = TestAuthority::new("of the tests");
        let files = TlsFiles::new(&authority.sign(&[HOST]));
        files.set("ca.pem", &authority.certificate());
        files.set("crl.pem", &authority.revocations(&[]));
        let options = files
            .given_to(options)
            .env(
                "ODOMETER_TLS__CLIENTS_CA_FILE",
                files.path("ca.pem").display(),
            )
            .env(
                "ODOMETER_TLS__CLIENTS_CRL_FILE",
                files.path("crl.pem").display(),
            )
            // Memory has numbers to the end.
            .env("ODOMETER_DEFAULT__BLOCK__MIN", 1000);
        let roles = Roles::start(options, access, sections).await;
        Self {
            roles,
            files,
            authority,
        }
    }

    async fn connection(&self, shown: Option<&SignedCertificate>) -> SecureConnection {
        let address = self.roles.program.address();
        let opened = SecureConnection::open(address, &self.authority, shown).await;
        opened.expect("the handshake is done")
    }

    /// Calls once on a connection of its own. Returns `None` if the connection ends.
    pub(super) async fn call(
        &self,
        shown: Option<&SignedCertificate>,
        token: &str,
        (method, path): (&str, &str),
    ) -> Option<Reply> {
        let mut connection = self.connection(shown).await;
        connection.call(method, path, token).await
    }

    pub(super) async fn take(&self, shown: Option<&SignedCertificate>, token: &str) -> Reply {
        let reply = self.call(shown, token, ("POST", NEXT)).await;
        reply.expect("a reply")
    }

    /// Returns by which name the service knows a caller.
    async fn name_of(&self, shown: Option<&SignedCertificate>, token: &str) -> String {
        let reply = self.call(shown, token, ("GET", "/v1/me")).await;
        let reply = reply.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
        let name = reply.json()["caller"].as_str().map(str::to_owned);
        name.expect("a name")
    }

    async fn revoke(&self, revoked: &SignedCertificate) {
        let list = self.authority.revocations(&[revoked]);
        self.files.set("crl.pem", &list);
        wait::until("the list was read", LIMIT, async || {
            let log = self.roles.program.log();
            log.contains(READ_AGAIN).then_some(())
        })
        .await;
    }
}

pub(super) fn section(name: &str, role: &str, certificate: &str) -> String {
    format!("[{name}]\nrole = \"{role}\"\ncertificate = \"{certificate}\"\n")
}

#[test]
fn a_certificate_leads_to_the_role_of_its_caller() {
    run(async {
        let other = TestCaller::new("by-token", "reader");
        let sections = [
            section("billing", "taker", BILLING),
            section("web", "reader", WEB),
            section("past", "taker", "spiffe://corp/past"),
            "expires = 2020-01-01\n".to_owned(),
            other.section(),
        ];
        let service = Certified::start(Program::options(), ACCESS, &sections.concat()).await;
        let sign = |names: &[&str]| service.authority.sign(names);
        let (billing, web) = (sign(&[BILLING]), sign(&["other.example", WEB]));
        let mut connection = service.connection(Some(&billing)).await;
        for _ in 0..20 {
            let reply = connection.call("POST", NEXT, "").await.expect("a reply");
            assert_eq!(reply.status, 200, "{reply:?}");
        }
        assert_eq!(service.name_of(Some(&billing), "").await, "billing");
        assert_eq!(service.name_of(Some(&web), "").await, "web");
        let forbidden = service.take(Some(&web), "").await;
        refused(&forbidden, 403, "forbidden", "its role may not take");
        for (names, what) in [
            (
                &["spiffe://corp/ns/payments/sa/billing2"][..],
                "another name",
            ),
            (&["spiffe://corp/ns/payments/sa"], "a part of a name"),
            (&[], "no name"),
            (&[BILLING, WEB], "the names of two callers"),
            (&["spiffe://corp/past"], "a caller that has expired"),
        ] {
            let reply = service.take(Some(&sign(names)), "").await;
            refused(&reply, 401, "unauthenticated", what);
        }
        let nothing = service.take(None, "").await;
        refused(&nothing, 401, "unauthenticated", "it shows nothing");
        // A token beats the certificate.
        assert_eq!(
            service.name_of(Some(&billing), &other.token).await,
            "by-token"
        );
        let by_token = service.take(Some(&billing), &other.token).await;
        refused(
            &by_token,
            403,
            "forbidden",
            "the role of the token may not take",
        );
        for connection_of in [&billing, &web] {
            let wrong = service.take(Some(connection_of), "odo_wrong").await;
            refused(&wrong, 401, "unauthenticated", "a wrong token");
        }
        // On one connection, each call counts for itself.
        for (token, status) in [
            ("", 200),
            ("odo_wrong", 401),
            (other.token.as_str(), 403),
            ("", 200),
        ] {
            let reply = connection.call("POST", NEXT, token).await.expect("a reply");
            assert_eq!(reply.status, status, "{reply:?}");
        }
    });
}

/// Counts the calls that were refused because of what they showed.
async fn n_refused(service: &Certified) -> f64 {
    let scrape = Scrape::of(&operations(&service.roles.program)).await;
    scrape.sum("odometer_tokens_refused_total", &[])
}

#[test]
fn a_certificate_that_is_no_caller_s_is_counted_and_told() {
    run(async {
        let sections = section("billing", "taker", BILLING);
        let service = Certified::start(Program::options(), ACCESS, &sections).await;
        assert_eq!(n_refused(&service).await, 0.0);
        let unknown = service.authority.sign(&["spiffe://corp/unknown", WEB]);
        for _ in 0..3 {
            let reply = service.take(Some(&unknown), "").await;
            refused(&reply, 401, "unauthenticated", "it is no caller's");
        }
        assert_eq!(n_refused(&service).await, 3.0);
        let log = service.roles.program.stop().await;
        let told = log.lines().filter(|line| line.contains("no caller's"));
        let told: Vec<Value> = told
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        // The first refusal, and the others together. A refusal that comes later has its own line.
        assert!(told.len() >= 2, "{log}");
        let n_told = told.iter().map(|line| {
            let n_untold = line["n_untold"].as_u64();
            1 + n_untold.expect("how many had no line")
        });
        assert_eq!(n_told.sum::<u64>(), 3, "{log}");
        for line in told {
            assert_eq!(line["names"], format!("spiffe://corp/unknown {WEB}"));
            let peer = line["peer"].as_str().unwrap_or_default();
            assert!(peer.starts_with("127.0.0.1:"), "{line}");
        }
    });
}

/// Signs a certificate of `billing`, and another one that comes with it. Both together have
/// `n_names` names more, of 100 bytes each. Returns also how many bytes they have.
fn with_names(authority: &TestAuthority, n_names: usize) -> (SignedCertificate, usize) {
    let names: Vec<String> = (0..n_names)
        .map(|n| format!("spiffe://corp/{n:086}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (own, others) = names.split_at(n_names / 2);
    let mut signed = authority.sign(&[&[BILLING][..], own].concat());
    signed.certificate += &authority.sign(others).certificate;
    let chain = CertificateDer::pem_slice_iter(signed.certificate.as_bytes());
    let n_bytes = chain.map(|one| one.expect("a certificate").len()).sum();
    (signed, n_bytes)
}

#[test]
fn certificates_of_a_caller_may_have_12_kib_together() {
    const FAILED: &str = "odometer_tls_handshakes_failed_total";
    const MAX: usize = 12 * 1024;
    run(async {
        let sections = section("billing", "taker", BILLING);
        let service = Certified::start(Program::options(), ACCESS, &sections).await;
        let n_failed = async || {
            let scrape = Scrape::of(&operations(&service.roles.program)).await;
            scrape.sum(FAILED, &[])
        };
        let (large, n_bytes) = with_names(&service.authority, 106);
        assert!((MAX - 1024..=MAX).contains(&n_bytes), "{n_bytes}");
        assert_eq!(service.name_of(Some(&large), "").await, "billing");
        assert_eq!(service.take(Some(&large), "").await.status, 200);
        assert_eq!(n_failed().await, 0.0);

        let (too_large, n_bytes) = with_names(&service.authority, 124);
        assert!((MAX + 1..MAX + 2048).contains(&n_bytes), "{n_bytes}");
        let reply = service.call(Some(&too_large), "", ("POST", NEXT)).await;
        assert!(reply.is_none(), "{reply:?}");
        wait::until("it is counted", LIMIT, async || {
            (n_failed().await == 1.0).then_some(())
        })
        .await;
        assert_eq!(n_refused(&service).await, 0.0);
        let log = service.roles.program.stop().await;
        let said = "the certificates of the caller are too large";
        assert!(log.contains(said), "{log}");
    });
}

#[test]
fn certificates_of_callers_count_by_tls_1_2_too() {
    run(async {
        let sections = section("billing", "taker", BILLING);
        let service = Certified::start(Program::options(), ACCESS, &sections).await;
        let (address, authority) = (service.roles.program.address(), &service.authority);
        let open = async |shown: Option<&SignedCertificate>| {
            let caller = TlsCaller::by(authority, shown, &[&rustls::version::TLS12]);
            caller.connect(address).await
        };
        let billing = authority.sign(&[BILLING]);
        let mut connection = open(Some(&billing)).await.expect("the handshake is done");
        let mut nothing = open(None).await.expect("the handshake is done");
        let reply = connection.call("POST", NEXT, "").await.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
        let reply = nothing.call("POST", NEXT, "").await.expect("a reply");
        refused(&reply, 401, "unauthenticated", "it shows nothing");
        // With TLS 1.2 a certificate that is not good fails the handshake of the caller, too.
        let expired = authority.sign_for_days(&[BILLING], -2);
        let another = TestAuthority::new("another one").sign(&[BILLING]);
        for wrong in [&expired, &another] {
            assert!(open(Some(wrong)).await.is_err());
        }
        service.revoke(&billing).await;
        assert!(open(Some(&billing)).await.is_err(), "it was revoked");
        let reply = connection.call("POST", NEXT, "").await.expect("a reply");
        refused(&reply, 401, "unauthenticated", "it was revoked");
    });
}

/// The control is `without_certificates_of_callers_a_connection_resumes_an_earlier_one`.
#[test]
fn a_connection_that_may_show_a_certificate_resumes_none() {
    run(async {
        let sections = section("billing", "taker", BILLING);
        let service = Certified::start(Program::options(), ACCESS, &sections).await;
        let billing = service.authority.sign(&[BILLING]);
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let caller = TlsCaller::by(&service.authority, Some(&billing), &[version]);
            for _ in 0..2 {
                let opened = caller.connect(service.roles.program.address()).await;
                let mut connection = opened.expect("the handshake is done");
                let reply = connection.call("POST", NEXT, "").await.expect("a reply");
                assert_eq!(reply.status, 200, "{reply:?}");
                assert!(connection.is_full(), "{version:?}");
            }
        }
    });
}

/// Takes a number by a certificate that is no caller's, where callers who show nothing may take.
async fn taken_by_an_unknown(options: Options) -> (Certified, Reply) {
    let access = format!("anonymous = \"taker\"\n{ACCESS}");
    let sections = section("billing", "taker", BILLING);
    let service = Certified::start(options, &access, &sections).await;
    assert_eq!(service.name_of(None, "").await, "anonymous");
    assert_eq!(service.take(None, "").await.status, 200);
    let unknown = service.authority.sign(&["spiffe://corp/unknown"]);
    let reply = service.take(Some(&unknown), "").await;
    (service, reply)
}

#[test]
fn nobody_becomes_anonymous_by_a_certificate() {
    run(async {
        let (service, reply) = taken_by_an_unknown(Program::options()).await;
        refused(&reply, 401, "unauthenticated", "it is no caller's");
        // A certificate that is not good at all ends the connection.
        let expired = service.authority.sign_for_days(&[BILLING], -2);
        let another = TestAuthority::new("another one").sign(&[BILLING]);
        for wrong in [expired, another] {
            let reply = service.call(Some(&wrong), "", ("POST", NEXT)).await;
            assert!(reply.is_none(), "{reply:?}");
        }
    });
}

/// The control of `nobody_becomes_anonymous_by_a_certificate`.
#[test]
fn an_unknown_certificate_that_is_anonymous_is_found_out() {
    run(async {
        let options = Program::options().without_guards("unknown-is-anonymous");
        let (_service, reply) = taken_by_an_unknown(options).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    });
}

#[test]
fn a_withdrawn_certificate_is_wrong_on_an_open_connection_too() {
    run(async {
        let sections = section("billing", "taker", BILLING);
        let service = Certified::start(Program::options(), ACCESS, &sections).await;
        let billing = service.authority.sign(&[BILLING]);
        let mut connection = service.connection(Some(&billing)).await;
        let reply = connection.call("POST", NEXT, "").await.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
        let file = service.roles.callers_file();
        replace(&file, &section("billing", "taker", "spiffe://corp/another"));
        wait::until("it is refused", LIMIT, async || {
            let reply = connection.call("POST", NEXT, "").await.expect("a reply");
            (reply.status == 401).then_some(())
        })
        .await;
        replace(&file, &sections);
        wait::until("it counts again", LIMIT, async || {
            let reply = connection.call("POST", NEXT, "").await.expect("a reply");
            (reply.status == 200).then_some(())
        })
        .await;
    });
}

#[test]
fn a_caller_that_expires_is_refused_on_an_open_connection_too() {
    run(async {
        let sections = section("billing", "taker", BILLING);
        let service = Certified::start(Program::options(), ACCESS, &sections).await;
        let billing = service.authority.sign(&[BILLING]);
        let mut connection = service.connection(Some(&billing)).await;
        let end = Timestamp::now() + 8.seconds();
        let with_end = format!("{sections}expires = {end}\n");
        replace(&service.roles.callers_file(), &with_end);
        wait::until("the callers were read", LIMIT, async || {
            let log = service.roles.program.log();
            log.contains("The callers have changed").then_some(())
        })
        .await;
        let reply = connection.call("POST", NEXT, "").await.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
        let refusal = wait::until("the caller has expired", LIMIT, async || {
            let reply = connection.call("POST", NEXT, "").await.expect("a reply");
            (reply.status != 200).then_some(reply)
        })
        .await;
        refused(&refusal, 401, "unauthenticated", "it has expired");
        assert!(Timestamp::now() >= end, "it was refused too early");
    });
}

/// What becomes of a certificate after its revocation.
#[derive(PartialEq, Eq, Debug)]
struct AfterRevocation {
    /// A new connection gets a number.
    counts_anew: bool,
    /// A connection from before gets a number.
    counts_on: bool,
}

/// Revokes the certificate of a caller whose connection takes numbers from memory.
async fn revoked(options: Options) -> AfterRevocation {
    let sections = format!(
        "{}{}",
        section("billing", "taker", BILLING),
        section("web", "taker", WEB)
    );
    let service = Certified::start(options, ACCESS, &sections).await;
    let (billing, web) = (
        service.authority.sign(&[BILLING]),
        service.authority.sign(&[WEB]),
    );
    let mut connection = service.connection(Some(&billing)).await;
    let mut of_another = service.connection(Some(&web)).await;
    for _ in 0..20 {
        let reply = connection.call("POST", NEXT, "").await.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    service.revoke(&billing).await;
    let reply = connection.call("POST", NEXT, "").await.expect("a reply");
    let counts_on = reply.status == 200;
    if !counts_on {
        refused(&reply, 401, "unauthenticated", "it was revoked");
        assert_eq!(reply.header("connection"), Some("close"));
    }
    let anew = service.call(Some(&billing), "", ("POST", NEXT)).await;
    let counts_anew = anew.is_some_and(|reply| reply.status == 200);
    // No other certificate is touched, on old connections and on new ones.
    let reply = of_another.call("POST", NEXT, "").await.expect("a reply");
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(service.take(Some(&web), "").await.status, 200);
    AfterRevocation {
        counts_anew,
        counts_on,
    }
}

#[test]
fn a_revoked_certificate_is_refused_on_open_connections_too() {
    run(async {
        let after = revoked(Program::options()).await;
        assert!(!after.counts_anew && !after.counts_on, "{after:?}");
    });
}

#[test]
fn a_list_of_revoked_certificates_that_is_not_read_is_found_out() {
    run(async {
        let options = Program::options().without_guards("revocations-unread");
        let after = revoked(options).await;
        assert!(after.counts_anew && after.counts_on, "{after:?}");
    });
}

#[test]
fn a_certificate_that_is_checked_once_is_found_out() {
    run(async {
        let options = Program::options().without_guards("certificates-checked-once");
        let after = revoked(options).await;
        assert!(!after.counts_anew && after.counts_on, "{after:?}");
    });
}

#[test]
fn a_broken_list_or_authority_changes_nothing_and_is_told() {
    run(async {
        let sections = section("billing", "taker", BILLING);
        let service = Certified::start(Program::options(), ACCESS, &sections).await;
        let billing = service.authority.sign(&[BILLING]);
        let good = service.authority.revocations(&[]);
        for (name, good) in [
            ("crl.pem", &good),
            ("ca.pem", &service.authority.certificate()),
        ] {
            for (text, is_stale) in [("nonsense", true), (good.as_str(), false)] {
                service.files.set(name, text);
                wait::until("the metric says so", LIMIT, async || {
                    let client = crate::support::operations(&service.roles.program);
                    let reply = client.get("/metrics").await.expect("a reply");
                    let stale = format!("\nodometer_access_stale {}\n", u8::from(is_stale));
                    reply.body.contains(&stale).then_some(())
                })
                .await;
                assert_eq!(service.take(Some(&billing), "").await.status, 200);
            }
        }
        let log = service.roles.program.stop().await;
        for key in ["tls.clients_crl_file: ", "tls.clients_ca_file: "] {
            assert!(log.contains(key), "{log}");
        }
    });
}

/// Sets a file of `[tls]`, and waits until `odometer_access_stale` says whether it can be used.
async fn becomes(service: &Certified, (name, text): (&str, &str), is_stale: bool) {
    service.files.set(name, text);
    wait::until("the metric says so", LIMIT, async || {
        let scrape = Scrape::of(&operations(&service.roles.program)).await;
        let stale = scrape.sum("odometer_access_stale", &[]);
        (stale == f64::from(u8::from(is_stale))).then_some(())
    })
    .await;
}

#[test]
fn a_second_list_of_an_authority_is_refused_in_both_orders() {
    run(async {
        let sections = section("billing", "taker", BILLING);
        let service = Certified::start(Program::options(), ACCESS, &sections).await;
        let billing = service.authority.sign(&[BILLING]);
        let old = service.authority.revocations(&[]);
        let new = service.authority.revocations(&[&billing]);
        for both in [format!("{old}{new}"), format!("{new}{old}")] {
            becomes(&service, ("crl.pem", &both), true).await;
            // The former list counts on.
            assert_eq!(service.take(Some(&billing), "").await.status, 200);
            becomes(&service, ("crl.pem", &old), false).await;
        }
        service.files.set("crl.pem", &new);
        wait::until("the new list counts alone", LIMIT, async || {
            let anew = service.call(Some(&billing), "", ("POST", NEXT)).await;
            anew.is_none().then_some(())
        })
        .await;
        let log = service.roles.program.stop().await;
        let told = "lists 1 and 2 are of the same issuer";
        assert!(log.contains("tls.clients_crl_file: "), "{log}");
        assert!(log.contains(told), "{log}");
    });
}

#[test]
fn a_list_of_another_authority_refuses_no_caller() {
    run(async {
        let sections = section("billing", "taker", BILLING);
        let service = Certified::start(Program::options(), ACCESS, &sections).await;
        let billing = service.authority.sign(&[BILLING]);
        let good = service.authority.revocations(&[]);
        // The second one has the name of the right authority, but another key.
        for name in ["another one", "of the tests"] {
            let wrong = TestAuthority::new(name).revocations(&[]);
            becomes(&service, ("crl.pem", &wrong), true).await;
            assert_eq!(service.take(Some(&billing), "").await.status, 200);
            becomes(&service, ("crl.pem", &good), false).await;
        }
        // An authority that is new needs its list, too.
        let new = TestAuthority::new("a new one");
        let both = format!("{}{}", service.authority.certificate(), new.certificate());
        becomes(&service, ("ca.pem", &both), true).await;
        let lists = format!("{good}{}", new.revocations(&[]));
        becomes(&service, ("crl.pem", &lists), false).await;
        for authority in [&service.authority, &new] {
            let shown = authority.sign(&[BILLING]);
            assert_eq!(service.take(Some(&shown), "").await.status, 200);
        }
        let log = service.roles.program.stop().await;
        assert!(log.contains("tls.clients_crl_file: "), "{log}");
        for n in [1, 2] {
            let told = format!("it has no list that the authority of certificate {n} in ");
            assert!(log.contains(&told), "{log}");
        }
    });
}
