//! Decides who calls, and whether the caller may do what it asks for.
//!
//! Without `[access]`, everybody may do everything but define, and an administrator is known by a
//! token, or by a call from the same machine. With `[access]`, the role of a caller decides.

use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use actix_web::http::header::{self, HeaderMap};
use actix_web::{HttpMessage, HttpRequest};
use odometer_core::glob::Glob;
use odometer_core::name::SequenceName;
use odometer_process::faults::{self, Fault};
use odometer_process::metrics::Metrics;
use subtle::ConstantTimeEq as _;

use super::call_limit::LeavableSlot;
use super::caller::{Caller, FORWARDED_FOR, Shown, unauthenticated, uncertified};
use super::caller_memo::{CallerMemo, MemoTime};
use super::denials::Denials;
use super::problem::{Code, Problem};
use super::wrong_tokens::{ComparisonTime, WrongTokens};
use crate::access::credentials::Credentials;
use crate::access::quotas::{Quota, Quotas, share::Share};
use crate::access::right::Right;
use crate::access::role::Role;
use crate::access::shown_certificate::ShownCertificate;
use crate::config::Secret;
use crate::edge::Watch;

/// The most bytes of a header with a token.
const MAX_TOKEN_HEADER: usize = 4096;

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
            credentials,
            wrong: WrongTokens::new(metrics.tokens_refused.clone()),
            denials: Arc::new(Denials::new(metrics)),
        }
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

    /// Writes a line to the log about a minute with wrong tokens, if that minute is over at the time
    /// `now`, and lines about refused calls that have waited long enough.
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
        request: &HttpRequest,
        right: Right,
        name: &SequenceName,
    ) -> Result<Caller, Problem> {
        let caller = self.identify(request, right).await?;
        caller.check(right, name)?;
        Ok(caller)
    }

    /// Lets a caller pass who has a right on all names, and returns what is known of the caller.
    ///
    /// # Errors
    /// As [`Access::identify`], and 401 or 403 without the right.
    pub(crate) async fn admit_to_all(
        &self,
        request: &HttpRequest,
        right: Right,
    ) -> Result<Caller, Problem> {
        let caller = self.identify(request, right).await?;
        if caller.may_all(right) {
            return Ok(caller);
        }
        Err(caller.refusal(right, "all names (`*`)"))
    }

    /// Finds out who makes a call that needs `right`.
    ///
    /// After many wrong tokens from one address, each further token that is not a caller's waits
    /// before it is compared, whether it is right or wrong. Nobody can guess the token of a caller,
    /// or sign one, so these need not wait.
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
        request: &HttpRequest,
        right: Right,
    ) -> Result<Caller, Problem> {
        if faults::is(Fault::AnybodyChanges) {
            return Ok(self.caller("anybody", Shown::Nothing, None));
        }
        if self.has_roles() {
            // Read before the callers are, so that a memo is never newer than they are.
            let generation = self.credentials.generation();
            let caller = self.caller_of(request).await?;
            remember(request, generation, &caller);
            Ok(caller)
        } else if right == Right::Define {
            self.administrator(request).await
        } else {
            let (name, role) = (Arc::clone(EVERYBODY.name()), Arc::clone(&EVERYBODY));
            Ok(self.caller(name, Shown::Nothing, Some(role)))
        }
    }

    /// Finds out who makes a call that needs no right, and what this caller may do.
    ///
    /// # Errors
    /// As [`Access::identify`].
    pub(crate) async fn identify_itself(&self, request: &HttpRequest) -> Result<Caller, Problem> {
        let headers = request.headers();
        let has_token = self.credentials.admin_token().is_some();
        let shows = has_token && headers.contains_key(header::AUTHORIZATION);
        let is_open = self.is_open() && !is_forwarded(headers);
        let right = match shows || is_open {
            true => Right::Define,
            false => Right::Look,
        };
        self.identify(request, right).await
    }

    /// Finds out who changes something, if there are no roles.
    async fn administrator(&self, request: &HttpRequest) -> Result<Caller, Problem> {
        let given = request.headers().get(header::AUTHORIZATION);
        match (self.credentials.admin_token(), self.is_loopback) {
            (None, true) if is_forwarded(request.headers()) => Err(Problem::new(
                Code::Forbidden,
                "The call came through a proxy to a service that takes changes from its own machine \
                 alone; set `ODOMETER_ADMIN_TOKEN` and send that token.",
            )),
            (None, true) => Ok(self.caller("loopback", Shown::Nothing, None)),
            (Some(_), _) if given.is_none() => Err(unauthenticated(false)),
            (Some(token), _) => self.compare(Some(&*token), request).await,
            (None, false) => Err(Problem::new(
                Code::Forbidden,
                "The service listens beyond loopback and has no administrator's token, so nobody \
                 may change sequences here; set `ODOMETER_ADMIN_TOKEN`.",
            )),
        }
    }

    /// Finds out who makes a call, if there are roles. Callers on the same machine have no
    /// privilege.
    async fn caller_of(&self, request: &HttpRequest) -> Result<Caller, Problem> {
        let anonymous = self
            .credentials
            .access()
            .and_then(|it| it.anonymous.clone());
        if !request.headers().contains_key(header::AUTHORIZATION) {
            if let Some(certificate) = request.conn_data::<Rc<ShownCertificate>>() {
                let certified = self.certified(certificate, request);
                if certified.is_ok() || !faults::is(Fault::UnknownIsAnonymous) {
                    return certified;
                }
            }
            let role = anonymous.ok_or_else(|| unauthenticated(true))?;
            return Ok(self.caller("anonymous", Shown::Nothing, Some(role)));
        }
        if let Some(token) = bearer(request.headers())
            && let Some(known) = self.credentials.caller_of(token, SystemTime::now())
        {
            let role = Some(Arc::clone(&known.role));
            return Ok(self.caller(Arc::clone(&known.name), Shown::Token, role));
        }
        // A JSON Web Token that is wrong is a wrong token like any other. So it waits, too, and the
        // administrator's token may have its form.
        let token = self.credentials.admin_token();
        self.compare(token.as_deref(), request).await
    }

    /// Finds out whose the certificate of a connection is. Nobody becomes anonymous by a certificate
    /// that is no caller's.
    fn certified(
        &self,
        certificate: &ShownCertificate,
        request: &HttpRequest,
    ) -> Result<Caller, Problem> {
        let (tls, names) = (self.credentials.tls(), certificate.names());
        let refused = || {
            self.denials.note_certificate(names, request.peer_addr());
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

    /// Compares the token of a call, after a delay if many wrong tokens came from its address.
    async fn compare(
        &self,
        token: Option<&Secret>,
        request: &HttpRequest,
    ) -> Result<Caller, Problem> {
        let peer = request.peer_addr().map(|peer| peer.ip());
        match self.wrong.turn(peer, Instant::now()) {
            ComparisonTime::Now => {}
            ComparisonTime::Later(_waiting) => wait(request).await?,
            ComparisonTime::Never => return Err(too_many_wait().closing()),
        }
        let given = bearer(request.headers());
        if let (Some(given), Some(token)) = (given, token)
            && same(given, token)
        {
            return Ok(self.caller("administrator", Shown::Token, None));
        }
        self.wrong.note(peer, Instant::now());
        Err(unauthenticated(self.has_roles()))
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
fn remember(request: &HttpRequest, generation: u64, caller: &Caller) {
    let memo = request.conn_data::<CallerMemo>();
    let (Some(memo), Some(watch)) = (memo, request.app_data::<Rc<Watch>>()) else {
        return;
    };
    let at = MemoTime {
        generation,
        tick: watch.now(),
    };
    let shown = request.headers().get(header::AUTHORIZATION);
    memo.remember(shown, at, caller.shared_role());
}

/// Waits, and leaves the call's slot to other calls meanwhile.
async fn wait(request: &HttpRequest) -> Result<(), Problem> {
    let place = request.extensions().get::<LeavableSlot>().cloned();
    if let Some(place) = &place {
        place.leave();
    }
    tokio::time::sleep(DELAY).await;
    place.map_or(Ok(()), |place| place.take_again())
}

/// Returns a refusal that is the same for a right token and a wrong one.
fn too_many_wait() -> Problem {
    Problem::new(
        Code::Overloaded,
        "Many wrong tokens came from this address, so its tokens wait before they are compared, and \
         too many wait already; try again, or from another address.",
    )
}

/// Returns whether a proxy says that it passed the call on.
fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(FORWARDED_FOR) || headers.contains_key(header::FORWARDED)
}

/// Returns the token that a call shows; `None` if it shows none, or in another form, or several.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION);
    let given = all.next().filter(|given| given.len() <= MAX_TOKEN_HEADER)?;
    if all.next().is_some() {
        return None;
    }
    let (scheme, token) = given.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Compares without a stop at the first difference, so that the time taken reveals nothing.
fn same(given: &str, token: &Secret) -> bool {
    let (given, token) = (given.as_bytes(), token.expose().as_bytes());
    !token.is_empty() && given.ct_eq(token).into()
}

#[cfg(test)]
#[allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]
mod tests {
    use actix_web::ResponseError;
    use actix_web::http::ConnectionType;
    use actix_web::http::header::HeaderValue;
    use actix_web::test::TestRequest;
    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::super::caller::printable;
    use super::super::request_id::RequestId;
    use super::super::wrong_tokens::{MAX_AT_ONCE, MAX_WAITING};
    use super::*;
    use crate::config::Config;

    fn access(loopback: bool, token: Option<&str>) -> Access {
        let config = Config {
            admin_token: token.map(Secret::new),
            ..Config::default()
        };
        of_config(loopback, &config)
    }

    fn of_config(loopback: bool, config: &Config) -> Access {
        let metrics = Arc::new(Metrics::new());
        let credentials = Credentials::new(config, metrics.access_stale.clone());
        Access::new(loopback, Arc::new(credentials.expect("no file")), metrics)
    }

    /// Asks whether a call may change a sequence.
    async fn change(access: &Access, request: &HttpRequest) -> Result<Caller, Problem> {
        let name = SequenceName::parse("orders").expect("a name");
        access.admit(request, Right::Define, &name).await
    }

    async fn code_of(access: &Access, authorization: Option<&str>) -> Option<Code> {
        let mut request = TestRequest::put();
        if let Some(given) = authorization {
            request = request.insert_header((header::AUTHORIZATION, given));
        }
        let admitted = change(access, &request.to_http_request()).await;
        admitted.err().map(|problem| problem.code())
    }

    #[actix_web::test]
    async fn loopback_needs_no_token_if_none_is_configured() {
        assert_eq!(code_of(&access(true, None), None).await, None);
        let proxied = TestRequest::put()
            .insert_header((FORWARDED_FOR, "192.0.2.7"))
            .to_http_request();
        let admitted = change(&access(true, None), &proxied).await;
        let code = admitted.err().map(|problem| problem.code());
        assert_eq!(code, Some(Code::Forbidden));
    }

    #[actix_web::test]
    async fn without_a_token_nobody_is_administrator_elsewhere() {
        let closed = access(false, None);
        assert_eq!(code_of(&closed, None).await, Some(Code::Forbidden));
        let empty = code_of(&closed, Some("Bearer ")).await;
        assert_eq!(empty, Some(Code::Forbidden));
    }

    #[actix_web::test]
    async fn a_configured_token_has_to_be_right_on_loopback_too() {
        for loopback in [false, true] {
            let token = access(loopback, Some("s3cret"));
            assert_eq!(code_of(&token, Some("Bearer s3cret")).await, None);
            assert_eq!(code_of(&token, Some("bearer s3cret")).await, None);
            for wrong in [
                "Bearer s3cre",
                "Bearer s3crets",
                "Bearer S3cret",
                "Basic s3cret",
                "Bearer",
                "",
            ] {
                let code = code_of(&token, Some(wrong)).await;
                assert_eq!(code, Some(Code::Unauthenticated), "{wrong}");
            }
            let code = code_of(&token, None).await;
            assert_eq!(code, Some(Code::Unauthenticated));
            let empty = access(loopback, Some(""));
            let code = code_of(&empty, Some("Bearer ")).await;
            assert_eq!(code, Some(Code::Unauthenticated));
        }
    }

    #[actix_web::test]
    async fn an_author_is_told_without_the_token() {
        let token = access(false, Some("s3cret"));
        let request = TestRequest::delete()
            .peer_addr(([192, 0, 2, 7], 5000).into())
            .insert_header((header::AUTHORIZATION, "Bearer s3cret"))
            .insert_header(("x-forwarded-for", "198.51.100.1, [2001:db8::1]\t\"x\""))
            .to_http_request();
        let id = HeaderValue::from_static("a-1");
        request.extensions_mut().insert(RequestId(id));
        let Ok(caller) = change(&token, &request).await else {
            unreachable!("the token is right")
        };
        let author = caller.author(&request);
        assert_eq!(
            (&*author.who, author.how, author.role.as_deref()),
            ("administrator", Some("token"), None)
        );
        assert_eq!(author.peer, "192.0.2.7:5000");
        assert_eq!(author.request_id, "a-1");
        let forwarded_for = author.forwarded_for.as_deref();
        assert_eq!(forwarded_for, Some("198.51.100.1, [2001:db8::1]x"));
        assert!(!format!("{author:?}").contains("s3cret"));
        let direct = TestRequest::delete().to_http_request();
        let who = change(&access(true, None), &direct).await;
        let how = who.as_ref().map(|caller| caller.author(&direct).how);
        assert_eq!(how.ok(), Some(Some("nothing")));
        assert_eq!(name_of(who).as_deref(), Some("loopback"));
        let long = HeaderValue::from_str(&"1".repeat(1000));
        assert_eq!(long.map(|long| printable(&long).len()).ok(), Some(256));
    }

    fn name_of(admitted: Result<Caller, Problem>) -> Option<String> {
        admitted.ok().map(|caller| caller.name().to_owned())
    }

    fn shows(token: &str, last: u8) -> HttpRequest {
        TestRequest::put()
            .peer_addr(([192, 0, 2, last], 5000).into())
            .insert_header((header::AUTHORIZATION, format!("Bearer {token}")))
            .to_http_request()
    }

    /// Returns what decides that got many wrong tokens from 192.0.2.1, so its next ones wait.
    fn guessed() -> Access {
        let access = access(false, Some("s3cret"));
        for n in 0..MAX_AT_ONCE {
            let request = shows("guess", 1);
            let answer = change(&access, &request).now_or_never();
            let code = answer.map(|answer| answer.err().map(|problem| problem.code()));
            assert_eq!(code, Some(Some(Code::Unauthenticated)), "{n}");
        }
        access
    }

    #[actix_web::test]
    async fn after_many_wrong_tokens_a_right_one_waits_as_long_as_a_wrong_one() {
        let access = guessed();
        for token in ["guess", "s3cret"] {
            let answer = change(&access, &shows(token, 1)).now_or_never();
            assert!(answer.is_none(), "{token} tells by its time");
            let other = change(&access, &shows(token, 2)).now_or_never();
            assert!(other.is_some(), "{token} from another address");
        }
        // Both get their answers in the end.
        let started = Instant::now();
        let right = change(&access, &shows("s3cret", 1)).await;
        assert!(started.elapsed() >= Duration::from_secs(1));
        assert_eq!(name_of(right).as_deref(), Some("administrator"));
        let wrong = change(&access, &shows("guess", 1)).await;
        let code = wrong.err().map(|problem| problem.code());
        assert_eq!(code, Some(Code::Unauthenticated));
    }

    #[actix_web::test]
    async fn of_many_tokens_at_once_a_few_wait_and_the_others_are_not_compared() {
        let access = guessed();
        let requests: Vec<_> = (0..=MAX_WAITING).map(|_| shows("s3cret", 1)).collect();
        let mut waiting = Vec::new();
        for request in &requests[..MAX_WAITING] {
            let mut answer = Box::pin(change(&access, request));
            assert!(answer.as_mut().now_or_never().is_none());
            waiting.push(answer);
        }
        let last = &requests[MAX_WAITING];
        let Some(Err(problem)) = change(&access, last).now_or_never() else {
            unreachable!("it is one too many")
        };
        assert_eq!(problem.code(), Code::Overloaded);
        let response = problem.error_response();
        let connection = response.head().connection_type();
        assert_eq!(connection, ConnectionType::Close);
        // If a waiting caller hangs up, another token may wait.
        waiting.pop();
        assert!(change(&access, last).now_or_never().is_none());
    }

    #[actix_web::test]
    async fn what_waits_holds_no_place_among_the_calls_being_answered() {
        let access = guessed();
        let (in_flight, place) = LeavableSlot::alone();
        let request = shows("s3cret", 1);
        request.extensions_mut().insert(place.clone());
        let mut answer = Box::pin(change(&access, &request));
        assert!(answer.as_mut().now_or_never().is_none());
        let other = in_flight.admit().ok();
        assert!(other.is_some(), "a place is held");
        let code = answer.await.err().map(|problem| problem.code());
        assert_eq!(code, Some(Code::Overloaded));
        drop(other);
        assert!(change(&access, &request).await.is_ok());
        assert!(
            in_flight.admit().ok().is_none(),
            "it goes on without a place"
        );
    }

    proptest! {
        #![proptest_config(odometer_tests::settings::properties())]

        #[test]
        fn fuzz_only_the_token_is_admitted(
            scheme in prop_oneof![Just("Bearer"), Just("bearer"), Just("BEARER"), Just("Basic")],
            blanks in " {1,3}",
            token in prop_oneof!["s3cret", "s3cre[a-z]", "[ -~]{0,7}"],
            tail in " {0,2}",
        ) {
            let text = format!("{scheme}{blanks}{token}{tail}");
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_str(&text);
            headers.insert(header::AUTHORIZATION, value.expect("it can be sent"));
            let secret = Secret::new("s3cret");
            let is_admitted = bearer(&headers).is_some_and(|given| same(given, &secret));
            let is_right = scheme != "Basic" && token.trim() == "s3cret";
            assert_eq!(is_admitted, is_right, "{text:?}");
        }
    }
}
