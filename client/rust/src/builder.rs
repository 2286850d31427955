//! Makes clients, and checks what they are made with.

use std::{env, path::PathBuf, sync::Arc, time::Duration};

use odometer_core::block::MAX_COUNT;
use ureq::http::Uri;

use crate::{
    client::Client,
    error::Error,
    fork,
    hooks::{Hooks, MetricsHooks, SafeHooks},
    random,
    settings::Settings,
    threads,
    token::TokenSource,
    transport,
};

const DEFAULT_DEADLINE: Duration = Duration::from_secs(2);
/// The service holds a call for 5 s at most.
const DEFAULT_REFILL_TIMEOUT: Duration = Duration::from_secs(7);
const DEFAULT_INITIAL_SIZE: u64 = 100;
const MIN_LEASE_TTL: Duration = Duration::from_secs(1);
const MAX_LEASE_TTL: Duration = Duration::from_secs(600);
/// Longer waits are cut to a year, so that no time of their end is out of range.
const MAX_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Makes a [`Client`].
#[must_use]
pub struct ClientBuilder {
    endpoints: Vec<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    deadline: Duration,
    refill_timeout: Duration,
    max_age: Option<Duration>,
    initial_size: u64,
    lease_ttl: Duration,
    hooks: SafeHooks,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            token: None,
            token_file: None,
            ca_file: None,
            deadline: DEFAULT_DEADLINE,
            refill_timeout: DEFAULT_REFILL_TIMEOUT,
            max_age: None,
            initial_size: DEFAULT_INITIAL_SIZE,
            lease_ttl: MAX_LEASE_TTL,
            hooks: SafeHooks::new(MetricsHooks),
        }
    }
}

impl ClientBuilder {
    /// Reads `ODOMETER_URL` (addresses, with commas between them), `ODOMETER_TOKEN`,
    /// `ODOMETER_TOKEN_FILE` and `ODOMETER_CA_FILE`. Without an address it is
    /// `http://127.0.0.1:8080`.
    pub fn from_environment() -> Self {
        let read = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let listed = read("ODOMETER_URL");
        let listed = listed.as_deref().unwrap_or("http://127.0.0.1:8080");
        let addresses = listed.split(',').map(str::trim);
        let mut builder = Self::default().endpoints(addresses.filter(|it| !it.is_empty()));
        if let Some(token) = read("ODOMETER_TOKEN") {
            builder = builder.token(token);
        } else if let Some(file) = read("ODOMETER_TOKEN_FILE") {
            builder = builder.token_file(file);
        }
        if let Some(file) = read("ODOMETER_CA_FILE") {
            builder = builder.ca_file(file);
        }
        builder
    }

    /// Sets the addresses of the replicas, such as `http://host:8080`.
    pub fn endpoints<T: Into<String>>(mut self, endpoints: impl IntoIterator<Item = T>) -> Self {
        self.endpoints = endpoints.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the bearer token, instead of a file with it.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self.token_file = None;
        self
    }

    /// Sets a file with the bearer token. It is read at each call, because files are rotated. While
    /// the file has no token, the last one counts.
    pub fn token_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.token = None;
        self.token_file = Some(file.into());
        self
    }

    /// Sets a PEM file with the authorities for `https`. Without it, those of the system count.
    pub fn ca_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(file.into());
        self
    }

    /// Sets how long a caller waits who finds nothing in memory: up to a year. The default is 2 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets how long one call may take. The default is 7 s, because the service holds a call for up
    /// to 5 s.
    pub fn refill_timeout(mut self, timeout: Duration) -> Self {
        self.refill_timeout = timeout;
        self
    }

    /// Lets numbers be dropped that were asked for longer ago than this. By default none are.
    ///
    /// A raised floor and a retirement do not reach numbers in memory before that.
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.max_age = Some(max_age);
        self
    }

    /// Sets how many numbers the first refill asks for. The default is 100.
    pub fn initial_size(mut self, size: u64) -> Self {
        self.initial_size = size;
        self
    }

    /// Sets how long the lease of a stamper's worker id lasts: 1 s to 10 minutes, which is the
    /// default.
    ///
    /// A stamper renews its lease after a third of this time. So it outlives an outage of the
    /// service of two thirds of it. The id of a killed program is free after this time.
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.lease_ttl = ttl;
        self
    }

    /// Sets what is told about the client's work. The default is [`MetricsHooks`].
    pub fn hooks(mut self, hooks: impl Hooks) -> Self {
        self.hooks = SafeHooks::new(hooks);
        self
    }

    /// Makes the client. It makes no call yet.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] if a setting cannot be used.
    pub fn build(self) -> Result<Client, Error> {
        let (settings, hooks) = self.settings()?;
        Ok(Client::new(settings, hooks))
    }

    /// Checks what was set.
    pub(crate) fn settings(self) -> Result<(Settings, SafeHooks), Error> {
        if self.endpoints.is_empty() {
            return Err(Error::setting("a client needs an endpoint"));
        }
        let mut is_secure = false;
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            is_secure |= check_address(endpoint, index)?;
        }
        self.check_bounds()?;
        fork::install()?;
        let certificates = match &self.ca_file {
            Some(file) => Some(transport::certificates_in(file)?),
            None if is_secure => Some(transport::certificates_of_the_system()?),
            None => None,
        };
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => TokenSource::of_text(token)?,
            (None, Some(file)) => TokenSource::of_file(file)?,
            (None, None) => TokenSource::default(),
        };
        let refill_timeout = self.refill_timeout.min(MAX_WAIT);
        let settings = Settings {
            endpoints: self.endpoints.iter().map(|it| Arc::from(&**it)).collect(),
            http: transport::config(certificates.as_deref(), refill_timeout),
            token,
            deadline: self.deadline.min(MAX_WAIT),
            refill_timeout,
            max_age: self.max_age,
            initial_size: self.initial_size,
            lease_ttl: self.lease_ttl,
            uniform: random::uniform,
            spawn: threads::spawn,
        };
        Ok((settings, self.hooks))
    }

    fn check_bounds(&self) -> Result<(), Error> {
        if !(1..=MAX_COUNT).contains(&self.initial_size) {
            let size = self.initial_size;
            return Err(Error::setting(format!(
                "`initial_size` is 1 to {MAX_COUNT}, not {size}"
            )));
        }
        if self.refill_timeout.is_zero() {
            return Err(Error::setting("`refill_timeout` is above 0"));
        }
        if !(MIN_LEASE_TTL..=MAX_LEASE_TTL).contains(&self.lease_ttl) {
            let seconds = self.lease_ttl.as_secs_f64();
            return Err(Error::setting(format!(
                "`lease_ttl` is 1 s to 10 minutes, not {seconds} s"
            )));
        }
        Ok(())
    }
}

/// Returns whether the address is one of `https`.
///
/// # Errors
/// [`Error::InvalidSetting`] if it is no address. It may have a password, so it is not printed.
fn check_address(address: &str, index: usize) -> Result<bool, Error> {
    let scheme_of = |uri: &Uri| {
        let authority = uri.authority()?;
        let has_user = authority.as_str().contains('@');
        let is_port = authority.port_u16() != Some(0);
        let has_host = !authority.host().is_empty();
        let is_right = has_host && is_port && !has_user && uri.query().is_none();
        uri.scheme_str().filter(|_| is_right).map(str::to_owned)
    };
    let uri: Option<Uri> = address.parse().ok().filter(|_| !address.contains('#'));
    match uri.as_ref().and_then(scheme_of).as_deref() {
        Some("http") => Ok(false),
        Some("https") => Ok(true),
        Some(_) | None => {
            let place = index + 1;
            let detail = format!("endpoint {place} is no address such as http://host:8080");
            Err(Error::setting(detail))
        }
    }
}
