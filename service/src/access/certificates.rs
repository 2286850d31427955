//! Reads the certificate of the listeners and its key, and what the certificates of callers are
//! checked against.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use odometer_process::faults::{self, Fault};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, TrustAnchor, UnixTime,
};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};
use webpki::{EndEntityCert, KeyUsage};

use super::expiry::seconds_until;
use super::revocations;
use crate::config::guarded_file;

/// The protocol that callers agree on by ALPN. There is no other one.
const PROTOCOL: &[u8] = b"http/1.1";

/// The files of the listeners' certificate, and of who signs those of callers. All are PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFiles {
    /// The certificate, followed by those that lead to its authority.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The authorities that sign certificates of callers. Without them, no caller is asked for one.
    pub clients_ca: Option<PathBuf>,
    /// The lists of revoked certificates: one of each authority in `clients_ca`, and of each that
    /// signed another certificate of a chain.
    pub clients_crl: Option<PathBuf>,
}

/// What the listeners need for TLS, as the files said when they were read.
pub struct ListenerTls {
    server: Arc<ServerConfig>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    begins: Timestamp,
    expires: Timestamp,
    /// The SHA-256 of all files.
    fingerprint: [u8; 32],
}

/// The contents of the files. They are read together, before anything is made of them.
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    clients_ca: Option<Vec<u8>>,
    clients_crl: Option<Vec<u8>>,
}

impl ListenerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// A sentence that names the key, the file and what is wrong. The file cannot be read, is no
    /// regular file, cannot be used, or everybody may write to it. The sentence never repeats anything
    /// of the private key.
    pub fn read(files: &CertificateFiles) -> Result<Self, String> {
        Self::of(files, &Contents::read(files)?)
    }

    /// Reads the files again at the time `now`. Returns `None` if they are as they were.
    ///
    /// # Errors
    /// As [`ListenerTls::read`], and the certificate does not count now, while the former one does.
    pub fn read_again(
        &self,
        files: &CertificateFiles,
        now: SystemTime,
    ) -> Result<Option<Self>, String> {
        let contents = Contents::read(files)?;
        if contents.fingerprint() == self.fingerprint {
            return Ok(None);
        }
        let tls = Self::of(files, &contents)?;
        match tls.untimely(files, now) {
            Some(problem) if self.untimely(files, now).is_none() => Err(problem),
            Some(_) | None => Ok(Some(tls)),
        }
    }

    fn of(files: &CertificateFiles, contents: &Contents) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let clients = contents.verifier(files, &provider)?;
        let named = |problem: &str| Err(said("certificate_file", &files.certificate, problem));
        let Some(chain) = certificates(&contents.certificate) else {
            return named("it has no certificate in PEM, or a broken one");
        };
        let Some((begins, expires)) = chain.first().and_then(period_of) else {
            return named("its first certificate cannot be read, or ends before it begins");
        };
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("tls: {error}"))?;
        let builder = match &clients {
            Some(clients) => builder.with_client_cert_verifier(Arc::clone(clients)),
            None => builder.with_no_client_auth(),
        };
        let key = contents.key(files)?;
        let mut server = builder.with_single_cert(chain, key).map_err(|_| {
            let problem = "it is not the private key of the certificate in tls.certificate_file, or \
                is of a kind that is not known; give that key, of RSA, ECDSA or Ed25519";
            said("key_file", &files.key, problem)
        })?;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        if clients.is_some() {
            // A connection that resumes an earlier one would not show its certificate again.
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.send_tls13_tickets = 0;
        }
        Ok(Self {
            server: Arc::new(server),
            clients,
            begins,
            expires,
            fingerprint: contents.fingerprint(),
        })
    }

    /// Returns what a new connection is served with.
    pub fn server(&self) -> &Arc<ServerConfig> {
        &self.server
    }

    /// Returns whether a caller may show this certificate now. The certificate comes first in
    /// `chain`, then those that lead to its authority.
    pub fn takes(&self, chain: &[CertificateDer<'static>]) -> bool {
        let (Some(clients), Some((certificate, others))) = (&self.clients, chain.split_first())
        else {
            return false;
        };
        let checked = clients.verify_client_cert(certificate, others, UnixTime::now());
        checked.is_ok()
    }

    /// Returns when the certificate of the listeners expires.
    pub fn expires(&self) -> Timestamp {
        self.expires
    }

    /// Returns for how many seconds the certificate of the listeners is still good at the time
    /// `now`. The result is below 0 once it has expired.
    pub fn seconds_left(&self, now: SystemTime) -> f64 {
        seconds_until(self.expires, now)
    }

    /// Returns a sentence if the certificate of the listeners does not count at the time `now`: it
    /// has expired, or is not valid yet. `files` are those that were read.
    pub fn untimely(&self, files: &CertificateFiles, now: SystemTime) -> Option<String> {
        let problem = if self.seconds_left(now) < 0.0 {
            format!("the certificate expired at {}", self.expires)
        } else if seconds_until(self.begins, now) > 0.0 {
            format!("the certificate is not valid before {}", self.begins)
        } else {
            return None;
        };
        let problem = format!("{problem}; give one that is valid now");
        Some(said("certificate_file", &files.certificate, &problem))
    }
}

impl Contents {
    fn read(files: &CertificateFiles) -> Result<Self, String> {
        let read = |key: &str, path: &Path| {
            let read = guarded_file::read_bytes(path, guarded_file::MAX_BYTES);
            read.map_err(|problem| format!("tls.{key}: {problem}"))
        };
        let optional = |key: &str, path: &Option<PathBuf>| {
            path.as_deref().map(|path| read(key, path)).transpose()
        };
        Ok(Self {
            certificate: read("certificate_file", &files.certificate)?,
            key: read("key_file", &files.key)?,
            clients_ca: optional("clients_ca_file", &files.clients_ca)?,
            clients_crl: optional("clients_crl_file", &files.clients_crl)?,
        })
    }

    fn fingerprint(&self) -> [u8; 32] {
        let optional = [&self.clients_ca, &self.clients_crl];
        let optional = optional.map(|content| content.as_deref().unwrap_or_default());
        let mut hash = Sha256::new();
        for content in [self.certificate.as_slice(), &self.key]
            .into_iter()
            .chain(optional)
        {
            // Each content is hashed alone, so none can pass for a part of another one.
            hash.update(Sha256::digest(content));
        }
        hash.finalize().into()
    }

    /// Returns the private key.
    fn key(&self, files: &CertificateFiles) -> Result<PrivateKeyDer<'static>, String> {
        // The error of the parser may repeat a line of the file.
        PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| {
            let problem = "it has no private key in PEM, or a broken one; give an unencrypted key";
            said("key_file", &files.key, problem)
        })
    }

    /// Returns what checks the certificates of callers; `None` if callers are not asked for one.
    fn verifier(
        &self,
        files: &CertificateFiles,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
        let (Some(path), Some(content)) = (&files.clients_ca, &self.clients_ca) else {
            return Ok(None);
        };
        let wrong = |problem: &str| said("clients_ca_file", path, problem);
        let authorities = certificates(content)
            .ok_or_else(|| wrong("it has no certificate in PEM, or a broken one"))?;
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            let added = roots.add(authority);
            added.map_err(|error| wrong(&format!("a certificate cannot be used: {error}")))?;
        }
        let revocations = match faults::is(Fault::RevocationsUnread) {
            true => Vec::new(),
            false => self.revocations(files, &roots.roots, provider)?,
        };
        let (roots, provider) = (Arc::new(roots), Arc::clone(provider));
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
            // A caller may show a token instead.
            .allow_unauthenticated()
            .with_crls(revocations);
        let verifier = verifier.build().map_err(|error| {
            let (key, path) = match &files.clients_crl {
                Some(path) => ("clients_crl_file", path),
                None => ("clients_ca_file", path),
            };
            said(key, path, &format!("it cannot be used: {error}"))
        })?;
        Ok(Some(verifier))
    }

    /// Returns the lists of revoked certificates. There are none if no file is given, and otherwise
    /// one of each of the `authorities`.
    fn revocations(
        &self,
        files: &CertificateFiles,
        authorities: &[TrustAnchor<'_>],
        provider: &CryptoProvider,
    ) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
        let (Some(path), Some(content)) = (&files.clients_crl, &self.clients_crl) else {
            return Ok(Vec::new());
        };
        let lists: Result<Vec<_>, _> =
            CertificateRevocationListDer::pem_slice_iter(content).collect();
        let lists = lists.ok().filter(|lists| !lists.is_empty());
        let wrong = |problem: &str| said("clients_crl_file", path, problem);
        let lists = lists.ok_or_else(|| {
            wrong("it has no list of revoked certificates in PEM (`X509 CRL`), or a broken one")
        })?;
        let algorithms = provider.signature_verification_algorithms.all;
        match revocations::problem(&lists, authorities, algorithms) {
            Some(problem) => Err(wrong(&problem)),
            None => Ok(lists),
        }
    }
}

/// Returns the sentence about a file that a key of `[tls]` names.
fn said(key: &str, path: &Path, problem: &str) -> String {
    format!("tls.{key}: {}: {problem}", path.display())
}

/// Returns the certificates of a text in PEM; `None` if it has none, or a broken one.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty())
}

/// Returns the names of a certificate that a caller can be known by: its URIs, then its DNS names.
///
/// A URI has a scheme, so it has a colon, which no DNS name has. An authority that may only sign URIs
/// could otherwise give one that passes for a DNS name.
pub(crate) fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(parsed) = EndEntityCert::try_from(certificate) else {
        return Vec::new();
    };
    let uris = parsed.valid_uri_names().filter(|uri| uri.contains(':'));
    let names = uris.chain(parsed.valid_dns_names());
    names.map(str::to_owned).collect()
}

/// Returns the first and the last second in which a certificate is good; `None` if it cannot be
/// read.
///
/// A certificate that never expires ends with the year 9999 (RFC 5280, section 4.1.2.5). That is
/// later than the last time that can be written here, so the last time stands for it.
///
/// webpki reads these times but has no function that returns them. It names a time in its refusal of
/// a certificate that has expired or is not valid yet, and looks at the times before anything else.
fn period_of(certificate: &CertificateDer<'_>) -> Option<(Timestamp, Timestamp)> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    let refusal_at = |seconds| {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let usage = KeyUsage::server_auth();
        let checked = parsed.verify_for_usage(&[], &[], &[], time, usage, None, None);
        checked.err()
    };
    let timestamp = |time: UnixTime| {
        let seconds = i64::try_from(time.as_secs()).ok();
        let timestamp = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        timestamp.unwrap_or(Timestamp::MAX)
    };
    let Some(webpki::Error::CertExpired { not_after, .. }) = refusal_at(u64::MAX) else {
        return None;
    };
    let begins = match refusal_at(0) {
        Some(webpki::Error::CertNotValidYet { not_before, .. }) => timestamp(not_before),
        Some(_) | None => Timestamp::UNIX_EPOCH,
    };
    Some((begins, timestamp(not_after)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use odometer_tests::{SignedCertificate, TestAuthority, directory};
    use tempfile::TempDir;

    use super::*;

    const NAME: &str = "spiffe://corp/ns/payments/sa/billing";

    /// A folder with the files of `[tls]`.
    struct Folder(TempDir);

    impl Folder {
        fn with(server: &SignedCertificate) -> Self {
            let folder = Self(directory("tls"));
            folder.set("server.pem", &server.certificate);
            folder.set("server.key", &server.key);
            folder
        }

        fn set(&self, name: &str, text: &str) {
            fs::write(self.0.path().join(name), text).unwrap();
        }

        /// Returns the files, with those about callers if there are any.
        fn files(&self) -> CertificateFiles {
            let path = |name: &str| self.0.path().join(name);
            let optional = |name: &str| Some(path(name)).filter(|path| path.exists());
            CertificateFiles {
                certificate: path("server.pem"),
                key: path("server.key"),
                clients_ca: optional("ca.pem"),
                clients_crl: optional("crl.pem"),
            }
        }

        fn refusal(&self) -> String {
            ListenerTls::read(&self.files()).err().unwrap_or_default()
        }

        /// Reads the files again. Returns `None` if they are as they were.
        fn again(&self, tls: &ListenerTls) -> Result<Option<ListenerTls>, String> {
            tls.read_again(&self.files(), SystemTime::now())
        }
    }

    fn chain_of(signed: &SignedCertificate) -> Vec<CertificateDer<'static>> {
        certificates(signed.certificate.as_bytes()).unwrap()
    }

    fn days_left(tls: &ListenerTls) -> f64 {
        tls.seconds_left(SystemTime::now()) / 86_400.0
    }

    #[test]
    fn the_certificate_is_read_with_its_names_and_its_end() {
        let authority = TestAuthority::new("a");
        let (server, soon) = (
            authority.sign(&["localhost"]),
            authority.sign_for_days(&["localhost", NAME, "b.example"], 3),
        );
        let names = names_of(chain_of(&soon).first().unwrap());
        assert_eq!(names, [NAME, "localhost", "b.example"]);
        let folder = Folder::with(&server);
        let tls = ListenerTls::read(&folder.files()).unwrap();
        assert!((28.0..=31.0).contains(&days_left(&tls)));
        assert_eq!(tls.server().alpn_protocols, [PROTOCOL]);
        assert!(!tls.takes(&chain_of(&soon)), "no caller is asked for one");
        assert!(folder.again(&tls).unwrap().is_none());
        let folder = Folder::with(&soon);
        let tls = folder.again(&tls).unwrap().unwrap();
        assert!((1.0..=4.0).contains(&days_left(&tls)));
    }

    #[test]
    fn a_certificate_that_is_not_good_now_replaces_no_good_one() {
        let authority = TestAuthority::new("a");
        let expired = Folder::with(&authority.sign_for_days(&["a"], -2));
        let early = Folder::with(&authority.sign_for_later(&["a"]));
        let good = Folder::with(&authority.sign(&["a"]));
        let now = SystemTime::now();
        let tls = ListenerTls::read(&good.files()).unwrap();
        assert_eq!(tls.untimely(&good.files(), now), None);
        for (folder, another, said) in [
            (&expired, &early, "the certificate expired at "),
            (&early, &expired, "the certificate is not valid before "),
        ] {
            let files = folder.files();
            let refusal = folder.again(&tls).err().unwrap();
            let path = files.certificate.display();
            let named = format!("tls.certificate_file: {path}: {said}");
            assert!(refusal.starts_with(&named), "{refusal}");
            // The start takes it, and another one may replace it.
            let wrong = ListenerTls::read(&files).unwrap();
            assert_eq!(wrong.untimely(&files, now), Some(refusal));
            assert!(another.again(&wrong).unwrap().is_some());
            assert!(good.again(&wrong).unwrap().is_some());
        }
        // Once the former one has expired, too, it is no better.
        let later = now + Duration::from_secs(40 * 86_400);
        assert!(tls.read_again(&expired.files(), later).unwrap().is_some());
    }

    #[test]
    fn a_certificate_that_never_expires_is_taken() {
        let forever = TestAuthority::new("a").sign_until(&["localhost"], (9999, 12, 31));
        let tls = ListenerTls::read(&Folder::with(&forever).files()).unwrap();
        assert_eq!(tls.expires(), Timestamp::MAX);
        assert!(days_left(&tls) > 1_000_000.0);
    }

    #[test]
    fn a_uri_that_looks_like_a_dns_name_is_no_name() {
        let signed = TestAuthority::new("a").sign_uris(&["web.example", NAME]);
        assert_eq!(names_of(chain_of(&signed).first().unwrap()), [NAME]);
    }

    #[test]
    fn certificates_of_callers_count_by_authority_time_and_list() {
        let (authority, another) = (TestAuthority::new("a"), TestAuthority::new("b"));
        let folder = Folder::with(&authority.sign(&["localhost"]));
        folder.set("ca.pem", &authority.certificate());
        let tls = ListenerTls::read(&folder.files()).unwrap();
        let good = authority.sign(&[NAME]);
        assert!(tls.takes(&chain_of(&good)));
        assert!(!tls.takes(&[]));
        for wrong in [another.sign(&[NAME]), authority.sign_for_days(&[NAME], -2)] {
            assert!(!tls.takes(&chain_of(&wrong)));
        }
        let revoked = authority.sign(&[NAME]);
        folder.set("crl.pem", &authority.revocations(&[&revoked]));
        let tls = folder.again(&tls).unwrap().unwrap();
        assert!(tls.takes(&chain_of(&good)) && !tls.takes(&chain_of(&revoked)));
        // A list of another authority, or an older one after it, is refused.
        for lists in [
            another.revocations(&[]),
            authority.revocations(&[&revoked]) + &authority.revocations(&[]),
        ] {
            folder.set("crl.pem", &lists);
            let refusal = folder.again(&tls).err().unwrap();
            let path = folder.files().clients_crl.unwrap();
            let named = format!("tls.clients_crl_file: {}: ", path.display());
            assert!(refusal.starts_with(&named), "{refusal}");
            assert_eq!(folder.refusal(), refusal);
        }
        folder.set("crl.pem", &authority.revocations(&[]));
        let tls = folder.again(&tls).unwrap().unwrap();
        assert!(tls.takes(&chain_of(&revoked)));
    }

    #[test]
    fn a_chain_needs_the_list_of_each_authority_that_signed_in_it() {
        let root = TestAuthority::new("root");
        let between = root.intermediate("between");
        let caller = between.sign(&[NAME]);
        let chain = format!("{}{}", caller.certificate, between.certificate());
        let chain = certificates(chain.as_bytes()).unwrap();
        let folder = Folder::with(&root.sign(&["localhost"]));
        folder.set("ca.pem", &root.certificate());
        let tls = ListenerTls::read(&folder.files()).unwrap();
        assert!(tls.takes(&chain), "no list is configured");
        assert!(!tls.takes(&chain_of(&caller)), "nothing leads to the root");
        let (of_root, of_between) = (root.revocations(&[]), between.revocations(&[]));
        for (lists, is_taken) in [
            (format!("{of_root}{of_between}"), true),
            (of_root.clone(), false),
            (
                format!("{of_root}{}", between.revocations(&[&caller])),
                false,
            ),
        ] {
            folder.set("crl.pem", &lists);
            let tls = ListenerTls::read(&folder.files()).unwrap();
            assert_eq!(tls.takes(&chain), is_taken, "{lists}");
        }
    }

    #[test]
    fn a_list_counts_after_its_next_update_too() {
        let authority = TestAuthority::new("a");
        let folder = Folder::with(&authority.sign(&["localhost"]));
        folder.set("ca.pem", &authority.certificate());
        let (good, revoked) = (authority.sign(&[NAME]), authority.sign(&[NAME]));
        folder.set("crl.pem", &authority.old_revocations(&[&revoked]));
        let tls = ListenerTls::read(&folder.files()).unwrap();
        assert!(tls.takes(&chain_of(&good)) && !tls.takes(&chain_of(&revoked)));
    }

    #[test]
    fn a_file_that_everybody_can_write_is_refused() {
        let authority = TestAuthority::new("a");
        let folder = Folder::with(&authority.sign(&["localhost"]));
        folder.set("ca.pem", &authority.certificate());
        folder.set("crl.pem", &authority.revocations(&[]));
        for (name, key) in [
            ("server.pem", "certificate_file"),
            ("server.key", "key_file"),
            ("ca.pem", "clients_ca_file"),
            ("crl.pem", "clients_crl_file"),
        ] {
            let path = folder.0.path().join(name);
            let set = |mode| fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            set(0o666);
            let refusal = folder.refusal();
            let named = format!("tls.{key}: {} can be written by everybody", path.display());
            assert!(refusal.starts_with(&named), "{refusal}");
            set(0o640);
            assert_eq!(folder.refusal(), "");
        }
    }

    #[test]
    fn what_is_wrong_is_named_without_the_private_key() {
        let authority = TestAuthority::new("a");
        let (server, another) = (authority.sign(&["a"]), authority.sign(&["a"]));
        let secret = another.key.lines().nth(1).unwrap();
        let cut = another.key.replace("-----END", "-----");
        let own = server.key.as_str();
        for (name, text, said) in [
            ("server.pem", "", "certificate_file: no certificate in PEM"),
            ("server.pem", own, "certificate_file: no certificate in PEM"),
            (
                "server.pem",
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "certificate_file: cannot be read, or ends",
            ),
            (
                "server.pem",
                &another.certificate,
                "key_file: not the private key",
            ),
            ("server.key", "", "key_file: no private key in PEM"),
            ("server.key", &cut, "key_file: no private key in PEM"),
            ("server.key", &another.key, "key_file: not the private key"),
            ("ca.pem", "", "clients_ca_file: no certificate in PEM"),
            ("ca.pem", own, "clients_ca_file: no certificate in PEM"),
            ("crl.pem", "", "clients_crl_file: no list of revoked"),
            (
                "crl.pem",
                "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
                "clients_crl_file: list 1 cannot be used",
            ),
        ] {
            let folder = Folder::with(&server);
            folder.set("ca.pem", &authority.certificate());
            folder.set(name, text);
            let (refusal, (key, said)) = (folder.refusal(), said.split_once(": ").unwrap());
            let path = folder.0.path().join(if key == "key_file" {
                "server.key"
            } else {
                name
            });
            let named = format!("tls.{key}: {}: ", path.display());
            assert!(refusal.starts_with(&named), "{name}: {refusal}");
            assert!(refusal.contains(said), "{name}: {refusal}");
            assert!(!refusal.contains(secret), "{refusal}");
            assert_eq!(refusal.lines().count(), 1, "{refusal}");
        }
        let folder = Folder::with(&server);
        fs::remove_file(folder.files().key).unwrap();
        assert!(folder.refusal().contains("server.key cannot be read: "));
    }
}
