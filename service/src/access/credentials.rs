//! Holds what callers have to show: the administrator's token, the tokens, subjects and certificates
//! of callers, and the keys of issuers. Reads all of it again when the files change, with the
//! certificate of the listeners.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use arc_swap::{ArcSwap, ArcSwapOption};
use metrics::Gauge;
use odometer_process::secret::Secret;
use parking_lot::Mutex;

use super::callers::{Callers, KnownCaller};
use super::certificates::{CertificateFiles, ListenerTls};
use super::expiry::seconds_until;
use super::issuers::issuer::TokenIssuers;
use super::settings::AccessSettings;
use super::token;
use super::verdicts::{Verdict, Verdicts};
use crate::config::Config;

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::access";

/// What callers have to show now.
pub struct Credentials {
    admin_token: ArcSwapOption<Secret>,
    admin_token_file: Option<PathBuf>,
    access: Option<AccessSettings>,
    callers: ArcSwap<Callers>,
    issuers: ArcSwap<TokenIssuers>,
    verdicts: Verdicts,
    /// `None` if the listeners speak no TLS.
    certificates: Option<Certificates>,
    /// How often the token, the callers, the keys of issuers or the certificates have changed.
    generation: AtomicU64,
    /// 1 while a file cannot be used, so that its former content counts.
    stale: Gauge,
    /// The problems that were logged last.
    logged: Mutex<Vec<String>>,
}

/// The files of certificates, and what they last said.
struct Certificates {
    files: CertificateFiles,
    tls: ArcSwap<ListenerTls>,
}

impl Credentials {
    /// Reads what a configuration names.
    ///
    /// # Errors
    /// A sentence: the file of callers, that of an issuer's keys, or a file of `[tls]` cannot be
    /// used.
    pub fn new(config: &Config, stale: Gauge) -> Result<Self, String> {
        let access = config.access.clone();
        let callers = access
            .as_ref()
            .map(AccessSettings::read_callers)
            .transpose()?;
        let issuers = access
            .as_ref()
            .map(AccessSettings::read_issuers)
            .transpose()?;
        let certificates = config.tls.files().map(|files| {
            let tls = ListenerTls::read(&files)?;
            warn_if_untimely(&tls, &files);
            let tls = ArcSwap::from_pointee(tls);
            Ok::<_, String>(Certificates { files, tls })
        });
        Ok(Self {
            admin_token: ArcSwapOption::from_pointee(config.admin_token.clone()),
            admin_token_file: config.admin_token_file.clone(),
            access,
            callers: ArcSwap::from_pointee(callers.unwrap_or_default()),
            issuers: ArcSwap::from_pointee(issuers.unwrap_or_default()),
            verdicts: Verdicts::default(),
            certificates: certificates.transpose()?,
            generation: AtomicU64::new(0),
            stale,
            logged: Mutex::default(),
        })
    }

    /// Returns the administrator's token, if there is one.
    pub fn admin_token(&self) -> Option<Arc<Secret>> {
        self.admin_token.load_full()
    }

    /// Returns what `[access]` says; `None` if it is not configured.
    pub fn access(&self) -> Option<&AccessSettings> {
        self.access.as_ref()
    }

    /// Returns the caller whose token this is, if the token is right at the time `now`.
    ///
    /// A token is one of the file of callers, or a JSON Web Token of an issuer for a subject in that
    /// file. To verify one takes far longer than to look it up, so those that were right are
    /// remembered.
    pub fn caller_of(&self, token: &str, now: SystemTime) -> Option<Arc<KnownCaller>> {
        // Read before keys and callers are, so that no verdict is newer than what it is made of.
        let generation = self.generation();
        let callers = self.callers.load();
        if let Some(caller) = callers.shown_by(token, now) {
            return Some(Arc::clone(caller));
        }
        let issuers = self.issuers.load();
        if !issuers.may_have_signed(token) {
            return None;
        }
        let hash = token::digest(token);
        if let Some(caller) = self.verdicts.get(&hash, generation, now) {
            return Some(caller);
        }
        let identity = issuers.identity(token, now)?;
        let caller = callers.called(&identity.issuer, &identity.subject, now)?;
        let verdict = Verdict {
            caller: Arc::clone(caller),
            until: identity.until,
        };
        self.verdicts.keep(hash, verdict, generation, now);
        Some(Arc::clone(caller))
    }

    /// Returns the caller whose certificate has these names, if the caller has not expired at the
    /// time `now`. `None` if the names are of several callers, too.
    pub fn certified(&self, names: &[String], now: SystemTime) -> Option<Arc<KnownCaller>> {
        let callers = self.callers.load();
        callers.certified(names, now).cloned()
    }

    /// Returns for how many seconds what each caller shows is good at the time `now`, below 0 once it
    /// has expired. Callers without an end are left out.
    pub fn seconds_left(&self, now: SystemTime) -> Vec<(Arc<str>, f64)> {
        let callers = self.callers.load();
        let ends = callers.iter().filter_map(|caller| {
            let left = seconds_until(caller.expires?, now);
            Some((Arc::clone(&caller.name), left))
        });
        ends.collect()
    }

    /// Returns what the files of `[tls]` last said; `None` if the listeners speak no TLS.
    pub fn tls(&self) -> Option<Arc<ListenerTls>> {
        let certificates = self.certificates.as_ref()?;
        Some(certificates.tls.load_full())
    }

    /// Returns how often the token, the callers, the keys of issuers or the certificates have
    /// changed. What was read after this has changed at least as often.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns whether there is a file that can change.
    pub fn has_files(&self) -> bool {
        let access = self.access.as_ref();
        let of_access =
            access.is_some_and(|it| it.callers_file.is_some() || !it.issuers.is_empty());
        self.admin_token_file.is_some() || of_access || self.certificates.is_some()
    }

    /// Reads the files again. A file that cannot be used changes nothing: its former content goes
    /// on counting, and log and metric say so.
    pub fn refresh(&self) {
        let problems = [
            self.refresh_admin_token(),
            self.refresh_callers(),
            self.refresh_certificates(),
        ];
        let mut problems: Vec<String> = problems.into_iter().filter_map(Result::err).collect();
        problems.extend(self.refresh_issuers());
        self.note(problems);
    }

    /// Says that a refresh has not read all files yet, so that their former content counts.
    pub fn note_unfinished(&self, error: &dyn Error) {
        self.note(vec![format!("the files were not read to the end: {error}")]);
    }

    /// Shows by the metric whether there are problems, and logs them if they are others than before.
    fn note(&self, problems: Vec<String>) {
        self.stale.set(f64::from(u8::from(!problems.is_empty())));
        let mut logged = self.logged.lock();
        if *logged == problems {
            return;
        }
        for problem in &problems {
            tracing::error!(
                target: TARGET,
                "What callers have to show cannot be read again, so it stays as it was: {problem}"
            );
        }
        if problems.is_empty() {
            tracing::info!(target: TARGET, "What callers have to show can be read again");
        }
        *logged = problems;
    }

    fn refresh_admin_token(&self) -> Result<(), String> {
        let Some(file) = &self.admin_token_file else {
            return Ok(());
        };
        let named = |problem: String| format!("admin_token_file: {problem}");
        let token = crate::config::read_token(file).map_err(named)?;
        if self.admin_token().is_none_or(|former| *former != token) {
            self.admin_token.store(Some(Arc::new(token)));
            self.generation.fetch_add(1, Ordering::Release);
            tracing::info!(target: TARGET, "The administrator's token has changed");
        }
        Ok(())
    }

    fn refresh_callers(&self) -> Result<(), String> {
        let Some(access) = &self.access else {
            return Ok(());
        };
        let callers = access.read_callers()?;
        if callers != **self.callers.load() {
            let n_callers = callers.iter().count();
            self.callers.store(Arc::new(callers));
            self.generation.fetch_add(1, Ordering::Release);
            tracing::info!(target: TARGET, n_callers, "The callers have changed");
        }
        Ok(())
    }

    fn refresh_certificates(&self) -> Result<(), String> {
        let Some(certificates) = &self.certificates else {
            return Ok(());
        };
        let (former, files) = (certificates.tls.load(), &certificates.files);
        if let Some(tls) = former.read_again(files, SystemTime::now())? {
            warn_if_untimely(&tls, files);
            let expires = tls.expires().to_string();
            certificates.tls.store(Arc::new(tls));
            self.generation.fetch_add(1, Ordering::Release);
            tracing::info!(target: TARGET, expires, "The files of [tls] have changed");
        }
        Ok(())
    }

    /// Returns what is wrong with the files of issuers that cannot be used. The others count.
    fn refresh_issuers(&self) -> Vec<String> {
        let former = self.issuers.load();
        let (issuers, problems) = former.read_again();
        if issuers != **former {
            let n_keys = issuers.n_keys();
            self.issuers.store(Arc::new(issuers));
            self.generation.fetch_add(1, Ordering::Release);
            tracing::info!(target: TARGET, n_keys, "The keys of issuers have changed");
        }
        problems
    }
}

/// Warns if callers refuse the certificate of the listeners because of its time.
fn warn_if_untimely(tls: &ListenerTls, files: &CertificateFiles) {
    if let Some(problem) = tls.untimely(files, SystemTime::now()) {
        tracing::warn!(target: TARGET, "Callers refuse the certificate: {problem}");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use jiff::Timestamp;
    use odometer_process::metrics::Metrics;
    use odometer_tests::directory;
    use odometer_tests::token_signer::{TokenSigner, key_set, unix_seconds};
    use serde_json::json;

    use super::super::issuers::issuer::IssuerSettings;
    use super::super::role::Role;
    use super::*;

    const CALLERS: &str = "[a]\nrole = \"taker\"\nsubject = \"s\"\n";

    /// Returns what callers have to show: tokens for the subject `s` that `signer` signs.
    fn credentials(folder: &Path, signer: &TokenSigner) -> Credentials {
        let [callers_file, jwks_file] = ["callers", "jwks"].map(|it| folder.join(it));
        fs::write(&callers_file, CALLERS).unwrap();
        fs::write(&jwks_file, key_set(&[signer])).unwrap();
        let mut access = AccessSettings {
            callers_file: Some(callers_file),
            issuers: vec![IssuerSettings {
                issuer: "x".to_owned(),
                audience: "odometer".to_owned(),
                jwks_file,
            }],
            ..AccessSettings::default()
        };
        access.roles.add(Role::new("taker"));
        let config = Config {
            access: Some(access),
            ..Config::default()
        };
        Credentials::new(&config, Gauge::noop()).unwrap()
    }

    fn token(signer: &TokenSigner, subject: &str, exp: u64) -> String {
        signer.token(&json!({"iss": "x", "aud": "odometer", "sub": subject, "exp": exp}))
    }

    #[test]
    fn a_token_that_was_right_is_remembered_until_keys_or_callers_change() {
        let folder = directory("credentials");
        let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let (old, new) = (TokenSigner::ed25519("old"), TokenSigner::es256("new"));
        let credentials = credentials(folder.path(), &old);
        assert!(credentials.has_files());
        let (now, exp) = (SystemTime::now(), unix_seconds() + 600);
        let [right, of_new] = [&old, &new].map(|signer| token(signer, "s", exp));
        let is_right = |token: &str| credentials.caller_of(token, now).is_some();
        let is_remembered = |token: &str| {
            let generation = credentials.generation();
            let hash = token::digest(token);
            credentials.verdicts.get(&hash, generation, now).is_some()
        };
        assert!(!is_remembered(&right) && is_right(&right) && is_remembered(&right));
        assert!(is_right(&right));
        for wrong in [
            token(&old, "other", exp),
            of_new.clone(),
            "a.b.c".to_owned(),
        ] {
            assert!(!is_right(&wrong) && !is_remembered(&wrong));
        }
        credentials.refresh();
        assert!(is_remembered(&right), "nothing has changed");

        file("callers", "");
        credentials.refresh();
        assert!(
            !is_remembered(&right) && !is_right(&right),
            "it was withdrawn"
        );
        file("callers", CALLERS);
        credentials.refresh();
        assert!(is_right(&right));

        file("jwks", &key_set(&[&old, &new]));
        credentials.refresh();
        assert!(!is_remembered(&right) && is_right(&right) && is_right(&of_new));
        file("jwks", "{");
        credentials.refresh();
        assert!(is_remembered(&right) && is_remembered(&of_new));
        file("jwks", &key_set(&[&new]));
        credentials.refresh();
        assert!(!is_right(&right) && is_right(&of_new));
    }

    #[test]
    fn a_remembered_token_ends_with_its_time_and_its_caller_s() {
        let folder = directory("credentials");
        let signer = TokenSigner::ed25519("k");
        let credentials = credentials(folder.path(), &signer);
        let (now, exp) = (SystemTime::now(), unix_seconds() + 600);
        let token = token(&signer, "s", exp);
        let is_right = |after| {
            let after = Duration::from_secs(after);
            credentials.caller_of(&token, now + after).is_some()
        };
        assert!(is_right(0) && is_right(628) && !is_right(631));
        let expiry = Timestamp::try_from(now + Duration::from_secs(60)).unwrap();
        let callers = format!("{CALLERS}expires = {expiry:.3}\n");
        fs::write(folder.path().join("callers"), callers).unwrap();
        credentials.refresh();
        assert!(is_right(0) && is_right(59) && !is_right(61));
    }

    #[test]
    fn files_that_were_not_all_read_again_count_as_stale() {
        let metrics = Metrics::new();
        let credentials = Credentials::new(&Config::default(), metrics.access_stale.clone());
        let credentials = credentials.unwrap();
        let is_stale = |stale: u8| {
            let line = format!("\nodometer_access_stale {stale}\n");
            metrics.render().contains(&line)
        };
        assert!(is_stale(0));
        credentials.note_unfinished(&std::fmt::Error);
        assert!(is_stale(1));
        credentials.refresh();
        assert!(is_stale(0));
    }

    #[test]
    fn only_callers_with_an_end_have_seconds_left() {
        let folder = directory("credentials");
        let credentials = credentials(folder.path(), &TokenSigner::ed25519("k"));
        let start = SystemTime::UNIX_EPOCH;
        assert!(credentials.seconds_left(start).is_empty());
        let callers = format!("{CALLERS}expires = 1970-01-01T00:01:00Z\n");
        fs::write(folder.path().join("callers"), callers).unwrap();
        credentials.refresh();
        for (after, left) in [(0, 60.0), (45, 15.0), (60, 0.0), (90, -30.0)] {
            let now = start + Duration::from_secs(after);
            let wanted: Vec<(Arc<str>, f64)> = vec![("a".into(), left)];
            assert_eq!(credentials.seconds_left(now), wanted);
        }
        fs::write(folder.path().join("callers"), CALLERS).unwrap();
        credentials.refresh();
        assert!(credentials.seconds_left(start).is_empty());
    }
}
