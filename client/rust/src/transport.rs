//! Makes one HTTP call over a connection that stays open for the next one.

use std::{
    fmt, fs,
    io::ErrorKind,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use ureq::{
    Agent, Body,
    config::Config,
    http::{HeaderMap, Method, Request, Response, StatusCode},
    tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem},
    unversioned::{resolver::DefaultResolver, transport::DefaultConnector},
};

use crate::{
    error::Error,
    panics::survive,
    resolver::{LastingResolver, MAX_AGE},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The time to connect begins after the lookup of the name.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);
/// The server closes connections that were idle for 75 s.
const MAX_IDLE: Duration = Duration::from_secs(60);
const MAX_IDLE_CONNECTIONS: usize = 32;
const MAX_REPLY_BYTES: u64 = 64 << 20;

/// What is sent. It may have a secret, so it cannot be printed.
#[derive(Clone)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    /// The path and the query.
    pub(crate) path: &'a str,
    /// The body, as JSON. Without one, the call has no content.
    pub(crate) json: Option<String>,
    /// The token of a worker lease.
    pub(crate) lease: Option<&'a str>,
    pub(crate) traceparent: Option<&'a str>,
    /// The call ends after this time, however slowly the bytes come.
    pub(crate) timeout: Duration,
}

impl<'a> Call<'a> {
    pub(crate) fn new(method: Method, path: &'a str, timeout: Duration) -> Self {
        Self {
            method,
            path,
            json: None,
            lease: None,
            traceparent: None,
            timeout,
        }
    }
}

/// What a replica answered.
#[derive(Clone)]
pub(crate) struct RawReply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) retry_after: Option<Duration>,
    /// Whether the server answers no further call on this connection.
    pub(crate) is_last: bool,
}

/// Leaves out the body, which may have the token of a lease.
impl fmt::Debug for RawReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawReply")
            .field("status", &self.status)
            .field("n_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Makes calls, and keeps connections for the calls after them.
pub(crate) struct Transport {
    /// The connections. They are replaced as a whole, to close those that no call uses.
    agent: Mutex<Agent>,
}

impl Transport {
    pub(crate) fn new(agent: Agent) -> Self {
        Self {
            agent: Mutex::new(agent),
        }
    }

    /// Closes what no call uses. Calls in flight close theirs when they end.
    pub(crate) fn close_idle(&self) {
        let mut present = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        *present = agent(present.config().clone());
    }

    /// Makes one call. Retries nothing, and follows no redirect.
    ///
    /// # Errors
    /// [`Error::Unreachable`] without a whole reply, and [`Error::InvalidReply`] if it is too long.
    pub(crate) fn call(
        &self,
        endpoint: &Arc<str>,
        call: &Call<'_>,
        token: Option<&str>,
    ) -> Result<RawReply, Error> {
        // The HTTP library panics if the system gives it no thread.
        let exchanged = survive("a call", || self.exchange(endpoint, call, token));
        exchanged.unwrap_or_else(|| Err(unreachable(endpoint, false, "the call panicked")))
    }

    fn exchange(
        &self,
        endpoint: &Arc<str>,
        call: &Call<'_>,
        token: Option<&str>,
    ) -> Result<RawReply, Error> {
        let began = Instant::now();
        let failed = |error: ureq::Error| failure(endpoint, &error, began.elapsed());
        let mut response = self.send(endpoint, call, token).map_err(failed)?;
        if response.status().is_success() && !has_known_end(&response) {
            // The end of the stream may be the end of the body, or of the connection. A refusal
            // says enough by its status.
            return Err(unreachable(endpoint, false, "the reply has no known end"));
        }
        let body = response.body_mut().with_config().limit(MAX_REPLY_BYTES);
        let body = body.read_to_vec().map_err(failed)?;
        let headers = response.headers();
        Ok(RawReply {
            status: response.status().as_u16(),
            body,
            retry_after: retry_after(headers),
            is_last: header(headers, "connection")
                .is_some_and(|words| words.to_ascii_lowercase().contains("close")),
        })
    }

    fn send(
        &self,
        endpoint: &str,
        call: &Call<'_>,
        token: Option<&str>,
    ) -> Result<Response<Body>, ureq::Error> {
        let url = format!("{}{}", endpoint.trim_end_matches('/'), call.path);
        let mut request = Request::builder()
            .method(&call.method)
            .uri(url)
            .header("accept", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(lease) = call.lease {
            request = request.header("odometer-lease", lease);
        }
        if let Some(traceparent) = call.traceparent {
            request = request.header("traceparent", traceparent);
        }
        let agent = self.agent();
        let timeout = Some(call.timeout);
        match &call.json {
            Some(json) => {
                let request = request.header("content-type", "application/json");
                run(&agent, request.body(json.as_bytes())?, timeout)
            }
            // Without a length of 0, a body in chunks would be announced.
            None if call.method == Method::POST => {
                let nothing: &[u8] = &[];
                run(&agent, request.body(nothing)?, timeout)
            }
            None => run(&agent, request.body(())?, timeout),
        }
    }

    /// Returns the connections of now.
    fn agent(&self) -> Agent {
        let agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        agent.clone()
    }
}

/// Makes connections of its own, and looks names up.
pub(crate) fn agent(config: Config) -> Agent {
    let resolver = LastingResolver::new(DefaultResolver::default(), MAX_AGE);
    Agent::with_parts(config, DefaultConnector::default(), resolver)
}

/// Runs a request, with a timeout of its own only if it differs from the usual one. So the settings
/// of TLS are usually read once for all connections.
fn run(
    agent: &Agent,
    request: Request<impl ureq::AsSendBody>,
    timeout: Option<Duration>,
) -> Result<Response<Body>, ureq::Error> {
    if agent.config().timeouts().global == timeout {
        return agent.run(request);
    }
    let configured = agent.configure_request(request);
    agent.run(configured.timeout_global(timeout).build())
}

/// Returns how calls are made: with these certificates, and at most for this time.
pub(crate) fn config(certificates: Option<&[Certificate<'static>]>, timeout: Duration) -> Config {
    let mut tls = TlsConfig::builder();
    if let Some(certificates) = certificates {
        tls = tls.root_certs(RootCerts::new_with_certs(certificates));
    }
    Agent::config_builder()
        .tls_config(tls.build())
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .max_idle_age(MAX_IDLE)
        .max_idle_connections_per_host(MAX_IDLE_CONNECTIONS)
        .max_idle_connections(usize::MAX)
        .timeout_resolve(Some(LOOKUP_TIMEOUT))
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(timeout))
        .user_agent(concat!("odometer-client-rust/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Reads the certificates of authorities from a PEM file.
///
/// # Errors
/// [`Error::InvalidSetting`] if the file cannot be read, or has none.
pub(crate) fn certificates_in(file: &Path) -> Result<Vec<Certificate<'static>>, Error> {
    let shown = file.display();
    let content = fs::read(file)
        .map_err(|error| Error::setting(format!("{shown} cannot be read: {error}")))?;
    let mut found = Vec::new();
    for item in parse_pem(&content) {
        let item =
            item.map_err(|error| Error::setting(format!("{shown} is no PEM file: {error}")))?;
        if let PemItem::Certificate(certificate) = item {
            found.push(certificate);
        }
    }
    if found.is_empty() {
        return Err(Error::setting(format!("{shown} has no certificate")));
    }
    Ok(found)
}

/// Returns the certificates of authorities that this system trusts.
///
/// # Errors
/// [`Error::InvalidSetting`] if there are none.
pub(crate) fn certificates_of_the_system() -> Result<Vec<Certificate<'static>>, Error> {
    let loaded = rustls_native_certs::load_native_certs();
    if loaded.certs.is_empty() {
        let detail = "this system has no trusted certificates that can be read: give a `ca_file`";
        return Err(Error::setting(detail));
    }
    let certificates = loaded.certs.iter();
    Ok(certificates
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect())
}

/// Returns whether the reply says where its body ends, so that half of it is not taken for a whole.
fn has_known_end(response: &Response<Body>) -> bool {
    let headers = response.headers();
    response.status() == StatusCode::NO_CONTENT
        || headers.contains_key("content-length")
        || headers.contains_key("transfer-encoding")
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = header(headers, "retry-after")?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn failure(endpoint: &Arc<str>, error: &ureq::Error, after: Duration) -> Error {
    if let ureq::Error::BodyExceedsLimit(_) = error {
        return Error::invalid_reply(endpoint, "a reply with too many bytes");
    }
    if let ureq::Error::Http(error) = error {
        return Error::setting(format!("the call cannot be sent: {error}"));
    }
    if is_late(error) {
        let seconds = after.as_secs_f64();
        return unreachable(endpoint, true, &format!("nothing within {seconds:.1} s"));
    }
    unreachable(endpoint, false, &error.to_string())
}

/// Returns whether the time for the call was over.
fn is_late(error: &ureq::Error) -> bool {
    if let ureq::Error::Io(error) = error {
        error.kind() == ErrorKind::TimedOut
    } else {
        matches!(error, ureq::Error::Timeout(_))
    }
}

fn unreachable(endpoint: &Arc<str>, timed_out: bool, detail: &str) -> Error {
    Error::Unreachable {
        endpoint: Arc::clone(endpoint),
        timed_out,
        detail: detail.into(),
    }
}
