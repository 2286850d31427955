//! Decides who calls, and whether the caller may do what it asks for.
//!
//! Without `[access]`, everybody may do everything but define, and an administrator is known by a
//! token, or by a call from the same machine. With `[access]`, the role of a caller decides.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use odometer_core::glob::Glob;
use odometer_core::name::SequenceName;
use odometer_process::faults::{self, Fault};
use odometer_process::metrics::Metrics;
use subtle::ConstantTimeEq as _;

use super::call_limit::LeavableSlot;
use super::caller::{Caller, Shown, unauthenticated, uncertified};
use super::caller_memo::MemoTime;
use super::denials::Denials;
use super::evidence::{Evidence, ShownToken};
use super::problem::{Code, Problem};
use super::wrong_tokens::{ComparisonTime, WrongTokens};
use crate::access::credentials::Credentials;
use crate::access::quotas::{Quota, Quotas, share::Share};
use crate::access::right::Right;
use crate::access::role::Role;
use crate::access::shown_certificate::ShownCertificate;
use crate::access::token::{TokenHash, digest};
use crate::config::{MIN_TOKEN, Secret};

/// How long a token waits if many wrong tokens came from its address.
const DELAY: Duration = Duration::from_secs(1);

/// What everybody may do without `[access]`.
static EVERYBODY: LazyLock<Arc<Role>> = LazyLock::new(|| {
    let all = || Glob::parse("*").into_iter().collect();
    let rights = Right::ALL.into_iter();
    let rights = rights.filter(|right| *right != Right::Define);
    let role = Role::new("everybody").with_quotas(Quotas {
        share: Share::ALL,
        ..Quotas::default()
    });
    Arc::new(rights.fold(role, |role, right| role.with(right, all())))
});

/// Decides who may do what on one listener.
pub(crate) struct Access {
    /// Whether only this machine reaches the listener.
    is_loopback: bool,
    /// What callers have to show here if there are no roles.
    password: Option<Secret>,
    /// The hash of the password, if it is so long that nobody can guess it.
    password_hash: Option<TokenHash>,
    credentials: Arc<Credentials>,
    wrong: WrongTokens,
    denials: Arc<Denials>,
}

impl Access {
    /// Makes what decides on one listener.
    pub(crate) fn new(
        is_loopback: bool,
        credentials: Arc<Credentials>,
        metrics: Arc<Metrics>,
    ) -> Self {
        count_from_zero(&metrics, &credentials);
        Self {
            is_loopback,
            password: None,
            password_hash: None,
            credentials,
            wrong: WrongTokens::new(metrics.tokens_refused.clone()),
            denials: Arc::new(Denials::new(metrics)),
        }
    }

    /// Asks callers for a password, if there are no roles.
    pub(crate) fn with_password(mut self, password: Option<Secret>) -> Self {
        self.password = password.filter(|_| !faults::is(Fault::PasswordUnasked));
        let password = self.password.as_ref().map(Secret::expose);
        let long = password.filter(|password| password.len() >= MIN_TOKEN);
        self.password_hash = long.map(digest);
        self
    }

    /// Returns whether each call is asked who makes it.
    #[inline]
    pub(crate) fn asks_who(&self) -> bool {
        self.password.is_some() || self.has_roles()
    }

    /// Returns whether there is a token that a caller could show.
    pub(crate) fn takes_tokens(&self) -> bool {
        self.asks_who() || self.credentials.admin_token().is_some()
    }

    /// Returns whether callers who show no token get any answer.
    pub(crate) fn takes_anonymous(&self) -> bool {
        match self.credentials.access() {
            Some(access) => access.anonymous.is_some(),
            None => self.password.is_none(),
        }
    }

    /// Returns how often what callers have to show has changed.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.credentials.generation()
    }

    /// Returns whether callers need no token here, whatever they do.
    pub(crate) fn is_open(&self) -> bool {
        self.is_loopback
            && self.credentials.access().is_none()
            && self.credentials.admin_token().is_none()
    }

    /// Returns whether there are roles, so that every call is asked who makes it.
    pub(crate) fn has_roles(&self) -> bool {
        self.credentials.access().is_some()
    }

    /// Returns what callers have to show, if there are roles.
    pub(crate) fn of_roles(&self) -> Option<Arc<Credentials>> {
        self.has_roles().then(|| Arc::clone(&self.credentials))
    }

    /// Writes lines to the log that have waited long enough at the time `now`: about a minute with
    /// wrong tokens, and about refused calls.
    pub(crate) fn tell(&self, now: Instant) {
        self.wrong.tell(now);
        self.denials.tell(now);
    }

    /// Lets a caller pass who has a right on a name, and returns what is known of the caller.
    ///
    /// # Errors
    /// As [`Access::identify`] and [`Caller::check`].
    pub(crate) async fn admit(
        &self,
        evidence: &Evidence<'_>,
        right: Right,
        name: &SequenceName,
    ) -> Result<Caller, Problem> {
        let caller = self.identify(evidence, right).await?;
        caller.check(right, name)?;
        Ok(caller)
    }

    /// Lets a caller pass who has a right on all names, and returns what is known of the caller.
    ///
    /// # Errors
    /// As [`Access::identify`], and 401 or 403 without the right.
    pub(crate) async fn admit_to_all(
        &self,
        evidence: &Evidence<'_>,
        right: Right,
    ) -> Result<Caller, Problem> {
        let caller = self.identify(evidence, right).await?;
        if caller.may_all(right) {
            return Ok(caller);
        }
        Err(caller.refusal(right, "all names (`*`)"))
    }

    /// Finds out who makes a call that needs `right`.
    ///
    /// After many wrong tokens from one address, each further token that is not a caller's waits
    /// before it is compared, whether it is right or wrong. Nobody can guess the token of a caller,
    /// or sign one, so these need not wait, and neither need a long password.
    ///
    /// So a JSON Web Token is verified before it could wait. Otherwise a few wrong ones would keep away
    /// all right ones that come through the same proxy. If too many wrong ones wait, each further one
    /// closes its connection, so a flood of them needs a connection for each verification.
    ///
    /// # Errors
    /// 401 without the right token. 403 if no token would be right, or if callers need no token and
    /// the call came through a proxy. 503 if too many tokens of the address wait, or if too many
    /// calls are being answered after the wait.
    pub(crate) async fn identify(
        &self,
        evidence: &Evidence<'_>,
        right: Right,
    ) -> Result<Caller, Problem> {
        if faults::is(Fault::AnybodyChanges) {
            return Ok(self.caller("anybody", Shown::Nothing, None));
        }
        if self.asks_who() {
            // Read before the callers are, so that a memo is never newer than they are.
            let generation = self.generation();
            let caller = match self.has_roles() {
                true => self.caller_of(evidence).await?,
                false => self.member(evidence).await?,
            };
            remember(evidence, generation, &caller);
            Ok(caller)
        } else if right == Right::Define {
            self.administrator(evidence).await
        } else {
            Ok(self.everybody(Shown::Nothing))
        }
    }

    /// Finds out who makes a call that needs no right, and what this caller may do.
    ///
    /// # Errors
    /// As [`Access::identify`].
    pub(crate) async fn identify_itself(&self, evidence: &Evidence<'_>) -> Result<Caller, Problem> {
        let has_token = self.credentials.admin_token().is_some();
        let shows = has_token && evidence.shows_token();
        let is_open = self.is_open() && !evidence.is_forwarded;
        let right = match shows || is_open {
            true => Right::Define,
            false => Right::Look,
        };
        self.identify(evidence, right).await
    }

    /// Finds out who shows the password. A long one is looked at as the tokens of callers are: by
    /// its hash, so that the time taken reveals nothing, and before any token waits.
    async fn member(&self, evidence: &Evidence<'_>) -> Result<Caller, Problem> {
        if !evidence.shows_token() {
            return Err(unauthenticated(false));
        }
        if let ShownToken::Text(given) = evidence.token
            && self.password_hash.is_some_and(|hash| hash == digest(given))
        {
            return Ok(self.everybody(Shown::Token));
        }
        self.compare(evidence).await
    }

    /// Finds out who changes something, if there are no roles.
    async fn administrator(&self, evidence: &Evidence<'_>) -> Result<Caller, Problem> {
        match (self.credentials.admin_token(), self.is_loopback) {
            (None, true) if evidence.is_forwarded => Err(Problem::new(
                Code::Forbidden,
                "The call came through a proxy to a service that takes changes from its own machine \
                 alone; set `ODOMETER_ADMIN_TOKEN` and send that token.",
            )),
            (None, true) => Ok(self.caller("loopback", Shown::Nothing, None)),
            (Some(_), _) if !evidence.shows_token() => Err(unauthenticated(false)),
            (Some(_), _) => self.compare(evidence).await,
            (None, false) => Err(Problem::new(
                Code::Forbidden,
                "The service listens beyond loopback and has no administrator's token, so nobody \
                 may change sequences here; set `ODOMETER_ADMIN_TOKEN`.",
            )),
        }
    }

    /// Finds out who makes a call, if there are roles. Callers on the same machine have no
    /// privilege.
    async fn caller_of(&self, evidence: &Evidence<'_>) -> Result<Caller, Problem> {
        let anonymous = self
            .credentials
            .access()
            .and_then(|it| it.anonymous.clone());
        if !evidence.shows_token() {
            if let Some(certificate) = evidence.certificate {
                let certified = self.certified(certificate, evidence);
                if certified.is_ok() || !faults::is(Fault::UnknownIsAnonymous) {
                    return certified;
                }
            }
            let role = anonymous.ok_or_else(|| unauthenticated(true))?;
            return Ok(self.caller("anonymous", Shown::Nothing, Some(role)));
        }
        if let ShownToken::Text(token) = evidence.token
            && let Some(known) = self.credentials.caller_of(token, SystemTime::now())
        {
            let role = Some(Arc::clone(&known.role));
            return Ok(self.caller(Arc::clone(&known.name), Shown::Token, role));
        }
        // A JSON Web Token that is wrong is a wrong token like any other. So it waits, too, and the
        // administrator's token may have its form.
        self.compare(evidence).await
    }

    /// Finds out whose the certificate of a connection is. Nobody becomes anonymous by a certificate
    /// that is no caller's.
    fn certified(
        &self,
        certificate: &ShownCertificate,
        evidence: &Evidence<'_>,
    ) -> Result<Caller, Problem> {
        let (tls, names) = (self.credentials.tls(), certificate.names());
        let refused = || {
            self.denials.note_certificate(names, evidence.peer);
            uncertified()
        };
        if !tls.is_some_and(|tls| certificate.counts(&tls, Instant::now())) {
            // The caller may have a new certificate, and shows it on a new connection.
            return Err(refused().closing());
        }
        let known = self.credentials.certified(names, SystemTime::now());
        let known = known.ok_or_else(refused)?;
        let (name, role) = (Arc::clone(&known.name), Arc::clone(&known.role));
        Ok(self.caller(name, Shown::Certificate, Some(role)))
    }

    /// Compares the token of a call with those of the configuration, after a delay if many wrong
    /// tokens came from its address.
    async fn compare(&self, evidence: &Evidence<'_>) -> Result<Caller, Problem> {
        let peer = evidence.peer.map(|peer| peer.ip());
        if !evidence.was_right {
            match self.wrong.turn(peer, Instant::now()) {
                ComparisonTime::Now => {}
                ComparisonTime::Later(_waiting) => wait(evidence).await?,
                ComparisonTime::Never => return Err(too_many_wait().closing()),
            }
        }
        if let ShownToken::Text(given) = evidence.token
            && let Some(caller) = self.configured(given)
        {
            return Ok(caller);
        }
        self.wrong.note(peer, Instant::now());
        Err(unauthenticated(self.has_roles()))
    }

    /// Returns who shows the administrator's token, or the password of the listener.
    fn configured(&self, given: &str) -> Option<Caller> {
        let token = self.credentials.admin_token();
        if token.is_some_and(|token| same(given, &token)) {
            return Some(self.caller("administrator", Shown::Token, None));
        }
        let password = self.password.as_ref()?;
        same(given, password).then(|| self.everybody(Shown::Token))
    }

    fn everybody(&self, how: Shown) -> Caller {
        let (name, role) = (Arc::clone(EVERYBODY.name()), Arc::clone(&EVERYBODY));
        self.caller(name, how, Some(role))
    }

    fn caller(&self, name: impl Into<Arc<str>>, how: Shown, role: Option<Arc<Role>>) -> Caller {
        Caller::new(name.into(), how, role, Arc::clone(&self.denials))
    }
}

/// Shows what can be refused before anything is, so that the first refusal is seen as a rise.
fn count_from_zero(metrics: &Metrics, credentials: &Credentials) {
    let Some(access) = credentials.access() else {
        let (role, right) = (EVERYBODY.name(), Right::Define.word());
        metrics.access_refused(role, right).increment(0);
        let quota = Quota::Numbers.word();
        metrics.quota_refused(role, quota).increment(0);
        return;
    };
    for role in access.roles.iter() {
        for quota in Quota::ALL {
            let refused = metrics.quota_refused(role.name(), quota.word());
            refused.increment(0);
        }
        for right in Right::ALL {
            let refused = metrics.access_refused(role.name(), right.word());
            refused.increment(0);
        }
    }
}

/// Lets the connection of a call remember its caller.
fn remember(evidence: &Evidence<'_>, generation: u64, caller: &Caller) {
    let Some(place) = &evidence.memo else {
        return;
    };
    let at = MemoTime {
        generation,
        tick: place.tick,
    };
    place.memo.remember(place.shown, at, caller.shared_role());
}

/// Waits, and leaves the call's slot to other calls meanwhile.
async fn wait(evidence: &Evidence<'_>) -> Result<(), Problem> {
    let slot = evidence.slot.as_ref();
    if let Some(slot) = slot {
        slot.leave();
    }
    tokio::time::sleep(DELAY).await;
    slot.map_or(Ok(()), LeavableSlot::take_again)
}

/// Returns a refusal that is the same for a right token and a wrong one.
fn too_many_wait() -> Problem {
    Problem::new(
        Code::Overloaded,
        "Many wrong tokens came from this address, so its tokens wait before they are compared, and \
         too many wait already; try again, or from another address.",
    )
}

/// Compares without a stop at the first difference, so that the time taken reveals nothing.
pub(crate) fn same(given: &str, token: &Secret) -> bool {
    let (given, token) = (given.as_bytes(), token.expose().as_bytes());
    !token.is_empty() && given.ct_eq(token).into()
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "tests may fail loudly")]
mod tests {
    use futures_util::FutureExt as _;

    use super::super::wrong_tokens::MAX_AT_ONCE;
    use super::*;
    use crate::config::Config;

    fn with_password(password: &str) -> Access {
        let metrics = Arc::new(Metrics::new());
        let config = Config::default();
        let credentials = Credentials::new(&config, metrics.access_stale.clone());
        let credentials = Arc::new(credentials.expect("it reads no file"));
        let access = Access::new(true, credentials, metrics);
        access.with_password(Some(Secret::new(password)))
    }

    /// Returns whether a token is right; `None` if it has to wait.
    fn is_right(access: &Access, token: &str) -> Option<bool> {
        let evidence = Evidence {
            token: ShownToken::Text(token),
            peer: Some(([192, 0, 2, 1], 5000).into()),
            ..Evidence::default()
        };
        let caller = access.identify(&evidence, Right::Take).now_or_never()?;
        Some(caller.is_ok())
    }

    #[tokio::test]
    async fn a_long_password_waits_for_no_wrong_one_and_a_short_one_does() {
        let long = "p".repeat(MIN_TOKEN);
        let short = "p".repeat(MIN_TOKEN - 1);
        for (password, at_once) in [(long, Some(true)), (short, None)] {
            let access = with_password(&password);
            assert_eq!(is_right(&access, &password), Some(true));
            for _ in 0..MAX_AT_ONCE {
                assert_eq!(is_right(&access, "wrong"), Some(false));
            }
            assert_eq!(is_right(&access, "wrong"), None);
            assert_eq!(is_right(&access, &password), at_once, "{password}");
        }
    }
}
