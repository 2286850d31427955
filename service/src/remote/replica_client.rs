//! Makes one call after the other to a replica, and tells a refusal from silence.
//!
//! A redirect is not followed, and no proxy is used, so the token goes to the named host alone.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use ureq::http::{HeaderMap, Method, Request, Response};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, Error, Timeout};
use url::Url;

use super::options::ReplicaSettings;
use super::replies::ProblemReply;
use crate::commands::failure::CommandFailure;
use crate::config::Secret;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// As long as the page waits. Longer than a replica lets callers wait with the default
/// configuration.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// What is said of a host whose name was not found.
const HOST_UNKNOWN: &str = "its host is not known";
/// The most bytes of a reply. A page of 1000 definitions with the longest texts has a tenth of it.
const MAX_REPLY: u64 = 64 << 20;

/// Calls one replica.
#[derive(Clone)]
pub(crate) struct ReplicaClient {
    agent: Agent,
    base: Url,
    token: Option<Secret>,
}

/// One call of the API.
pub(crate) struct ApiCall<'a> {
    method: Method,
    path: &'a [&'a str],
    query: Vec<(&'a str, String)>,
    body: Option<Vec<u8>>,
    creates_only: bool,
    /// What is unknown if no reply comes, as a sentence.
    if_silent: &'a str,
}

impl<'a> ApiCall<'a> {
    /// Returns a call that only reads.
    pub(crate) fn get(path: &'a [&'a str]) -> Self {
        Self {
            method: Method::GET,
            path,
            query: Vec::new(),
            body: None,
            creates_only: false,
            if_silent: "Try again.",
        }
    }

    /// Returns a call that does something. `if_silent` says what is unknown if no reply comes.
    pub(crate) fn acting(method: Method, path: &'a [&'a str], if_silent: &'a str) -> Self {
        Self {
            method,
            if_silent,
            ..Self::get(path)
        }
    }

    /// Adds a parameter to the query, if it has a value.
    pub(crate) fn with(mut self, name: &'a str, value: Option<impl ToString>) -> Self {
        self.query
            .extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// Sends this JSON.
    pub(crate) fn sending(mut self, body: Vec<u8>) -> Self {
        self.body = Some(body);
        self
    }

    /// Asks that nothing be changed that exists.
    pub(crate) fn creating_only(mut self, creates_only: bool) -> Self {
        self.creates_only = creates_only;
        self
    }
}

/// A reply that is no refusal.
pub(crate) struct ApiReply {
    pub(crate) status: u16,
    /// The body as it came.
    pub(crate) body: String,
}

/// What a replica refused, or why it could not be asked.
pub(crate) enum CallFailure {
    /// The replica said no, with this code.
    Refused {
        code: String,
        said: CommandFailure,
    },
    Other(CommandFailure),
}

impl From<CallFailure> for CommandFailure {
    fn from(failure: CallFailure) -> Self {
        match failure {
            CallFailure::Refused { said, .. } | CallFailure::Other(said) => said,
        }
    }
}

impl ReplicaClient {
    /// Makes a client. No connection is opened yet.
    ///
    /// # Errors
    /// The trusted certificates cannot be read.
    pub(crate) fn new(settings: &ReplicaSettings) -> Result<Self, CommandFailure> {
        let mut tls = TlsConfig::builder();
        if settings.url.scheme() == "https" {
            let trusted = match &settings.ca {
                Some(file) => certificates_in(file)?,
                None => certificates_of_the_system()?,
            };
            tls = tls.root_certs(RootCerts::new_with_certs(&trusted));
        }
        let agent = Agent::config_builder()
            .tls_config(tls.build())
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(CALL_TIMEOUT))
            .user_agent(concat!("odometer/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Ok(Self {
            agent,
            base: settings.url.clone(),
            token: settings.token.clone(),
        })
    }

    /// Makes a call, and reads its reply. Also returns the body as it came.
    ///
    /// # Errors
    /// The errors of [`call`](Self::call), and a reply that is not of this kind.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        call: &ApiCall<'_>,
    ) -> Result<(T, ApiReply), CallFailure> {
        let reply = self.call(call)?;
        let parsed = serde_json::from_str(&reply.body);
        let parsed = parsed.map_err(|_| CallFailure::Other(self.is_another(reply.status, None)))?;
        Ok((parsed, reply))
    }

    /// Makes a call.
    ///
    /// # Errors
    /// The replica refuses the call, or something else answers, or nothing does.
    pub(crate) fn call(&self, call: &ApiCall<'_>) -> Result<ApiReply, CallFailure> {
        let silent = |error| CallFailure::Other(self.silent(&error, call));
        let mut response = self.send(call).map_err(silent)?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(MAX_REPLY);
        let body = body.read_to_string().map_err(silent)?;
        if response.status().is_success() {
            return Ok(ApiReply { status, body });
        }
        let headers = response.headers();
        match serde_json::from_str::<ProblemReply>(&body) {
            Ok(problem) => Err(CallFailure::Refused {
                said: self.refusal(&problem, headers),
                code: problem.code,
            }),
            Err(_) => Err(CallFailure::Other(self.is_another(status, Some(headers)))),
        }
    }

    fn send(&self, call: &ApiCall<'_>) -> Result<Response<Body>, Error> {
        let url = self.url(call);
        let mut request = Request::builder()
            .method(&call.method)
            .uri(url.as_str())
            .header("accept", "application/json");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {}", token.expose()));
        }
        if call.creates_only {
            request = request.header("if-none-match", "*");
        }
        match &call.body {
            Some(body) => {
                let request = request.header("content-type", "application/json");
                self.agent.run(request.body(body.as_slice())?)
            }
            None => self.agent.run(request.body(())?),
        }
    }

    fn url(&self, call: &ApiCall<'_>) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(call.path);
        }
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&call.query);
        }
        url
    }

    fn refusal(&self, problem: &ProblemReply, headers: &HeaderMap) -> CommandFailure {
        let ProblemReply { detail, code } = problem;
        let mut sentence = format!("{detail} ({code})");
        if let Some(seconds) = header(headers, "retry-after") {
            sentence.push_str(&format!("; try again in {seconds} s"));
        }
        if code == "unauthenticated" {
            sentence.push_str(if self.token.is_none() {
                "; set ODOMETER_TOKEN, or give --token-file"
            } else {
                "; the token that was sent is not the right one"
            });
        }
        CommandFailure::other(sentence)
    }

    /// Says that something else than Odometer answers.
    fn is_another(&self, status: u16, headers: Option<&HeaderMap>) -> CommandFailure {
        let redirect = headers.and_then(|headers| header(headers, "location"));
        let what = match redirect {
            Some(place) => format!("a redirect to {place}, which is not followed"),
            None => format!("a reply of status {status} that is not Odometer's"),
        };
        CommandFailure::other(format!(
            "{} gave {what}; correct --url or ODOMETER_URL",
            self.base
        ))
    }

    /// Says that no reply came, and whether the request may have been carried out.
    fn silent(&self, error: &Error, call: &ApiCall<'_>) -> CommandFailure {
        let base = &self.base;
        if is_before_the_request(error) {
            let why = why(error);
            return CommandFailure::other(format!(
                "{base} cannot be reached ({why}); start a replica there with `odometer serve`, or \
                 name another one by --url or ODOMETER_URL"
            ));
        }
        if let Some(why) = certificate_refused(error) {
            return CommandFailure::other(format!(
                "{base} has a certificate that is not trusted ({why}); name the right one by --ca"
            ));
        }
        let (why, if_silent) = (why(error), call.if_silent);
        CommandFailure::other(format!("{base} gave no whole reply ({why}). {if_silent}"))
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Returns whether no connection was made, so that nothing was sent.
fn is_before_the_request(error: &Error) -> bool {
    if let Error::Io(error) = error {
        return is_unknown_host(error)
            || matches!(
                error.kind(),
                ErrorKind::ConnectionRefused
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
                    | ErrorKind::AddrNotAvailable
            );
    }
    matches!(
        error,
        Error::HostNotFound
            | Error::ConnectionFailed
            | Error::Timeout(Timeout::Resolve | Timeout::Connect)
    )
}

/// Returns whether the name of the host was not found. No stable kind of error says that.
fn is_unknown_host(error: &io::Error) -> bool {
    error
        .to_string()
        .starts_with("failed to lookup address information")
}

/// Returns why the certificate of the other side was refused, before anything was sent.
fn certificate_refused(error: &Error) -> Option<String> {
    let said = error.to_string();
    let (_, why) = said.split_once("invalid peer certificate: ")?;
    Some(why.to_owned())
}

fn why(error: &Error) -> String {
    if let Error::Timeout(timeout) = error {
        return if matches!(timeout, Timeout::Resolve | Timeout::Connect) {
            format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())
        } else {
            format!("nothing within {} s", CALL_TIMEOUT.as_secs())
        };
    }
    let Error::Io(of_socket) = error else {
        return if matches!(error, Error::HostNotFound) {
            HOST_UNKNOWN.to_owned()
        } else {
            error.to_string()
        };
    };
    if is_unknown_host(of_socket) {
        HOST_UNKNOWN.to_owned()
    } else if of_socket.kind() == ErrorKind::ConnectionRefused {
        "connection refused".to_owned()
    } else {
        of_socket.to_string()
    }
}

fn certificates_in(file: &Path) -> Result<Vec<Certificate<'static>>, CommandFailure> {
    let refused = |problem: String| CommandFailure::usage(format!("--ca: {problem}"));
    let shown = file.display();
    let content = fs::read(file).map_err(|error| {
        refused(format!(
            "{shown} cannot be read ({error}); correct its path or its permissions"
        ))
    })?;
    let mut found = Vec::new();
    for item in parse_pem(&content) {
        let item = item.map_err(|error| refused(format!("{shown} is no PEM file ({error})")))?;
        if let PemItem::Certificate(certificate) = item {
            found.push(certificate);
        }
    }
    if found.is_empty() {
        return Err(refused(format!(
            "{shown} has no certificate; give a PEM file that begins with BEGIN CERTIFICATE"
        )));
    }
    Ok(found)
}

fn certificates_of_the_system() -> Result<Vec<Certificate<'static>>, CommandFailure> {
    let loaded = rustls_native_certs::load_native_certs();
    if loaded.certs.is_empty() {
        return Err(CommandFailure::other(
            "this system has no trusted certificates that can be read; install ca-certificates, or \
             name a file by --ca",
        ));
    }
    let certificates = loaded.certs.iter();
    Ok(certificates
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    fn client(url: &str, token: Option<&str>) -> ReplicaClient {
        let settings = ReplicaSettings {
            url: Url::parse(url).unwrap(),
            token: token.map(Secret::new),
            ca: None,
        };
        ReplicaClient::new(&settings).unwrap()
    }

    #[test]
    fn paths_and_queries_are_put_below_the_url() {
        let call = ApiCall::get(&["v1", "sequences", "a:b"])
            .with("period", Some("2026 W47&x"))
            .with("limit", None::<u32>);
        let below = client("http://h/odometer/", None).url(&call);
        let expected = "http://h/odometer/v1/sequences/a:b?period=2026+W47%26x";
        assert_eq!(below.as_str(), expected);
        let call = ApiCall::get(&["v1", "replica"]);
        let below = client("http://h:1", None).url(&call);
        assert_eq!(below.as_str(), "http://h:1/v1/replica");
    }

    #[test]
    fn a_refusal_says_when_to_try_again_and_which_token_is_missing() {
        let said = |token, code: &str, headers: &HeaderMap| {
            let problem = ProblemReply {
                detail: "It is so.".to_owned(),
                code: code.to_owned(),
            };
            let failure = client("http://h", token).refusal(&problem, headers);
            assert_eq!(failure.exit_code(), 1);
            failure.to_string()
        };
        let mut headers = HeaderMap::new();
        assert_eq!(said(None, "internal", &headers), "It is so. (internal)");
        let missing = said(None, "unauthenticated", &headers);
        assert!(missing.contains("ODOMETER_TOKEN"), "{missing}");
        let wrong = said(Some("s3cret"), "unauthenticated", &headers);
        assert!(wrong.contains("not the right one") && !wrong.contains("s3cret"));
        headers.insert("retry-after", "7".parse().unwrap());
        let later = said(None, "overloaded", &headers);
        assert_eq!(later, "It is so. (overloaded); try again in 7 s");
    }

    #[test]
    fn silence_says_whether_the_request_may_have_been_carried_out() {
        let client = client("http://h:1", Some("s3cret"));
        let call = ApiCall::acting(Method::POST, &["next"], "A number may be used up.");
        let refused = || Error::Io(io::Error::from(ErrorKind::ConnectionRefused));
        let reset = || Error::Io(io::Error::from(ErrorKind::ConnectionReset));
        let lookup = "failed to lookup address information: Name or service not known";
        for error in [
            Error::Io(io::Error::other(lookup)),
            Error::HostNotFound,
            Error::ConnectionFailed,
            Error::Timeout(Timeout::Connect),
            refused(),
        ] {
            let said = client.silent(&error, &call).to_string();
            assert!(
                said.starts_with("http://h:1/ cannot be reached ("),
                "{said}"
            );
            assert!(said.contains("`odometer serve`"), "{said}");
            assert!(!said.contains("used up"), "{said}");
        }
        for error in [Error::Timeout(Timeout::Global), reset()] {
            let said = client.silent(&error, &call).to_string();
            assert!(said.ends_with("A number may be used up."), "{said}");
        }
        let untrusted = io::Error::new(
            ErrorKind::InvalidData,
            "invalid peer certificate: UnknownIssuer",
        );
        let said = client.silent(&Error::Io(untrusted), &call).to_string();
        assert!(said.contains("not trusted (UnknownIssuer)"), "{said}");
    }
}
