//! Connects to one Redis server. A breaker keeps callers from waiting while the server is away.
//!
//! The first failure of any kind opens the breaker and gives the connection up. From then on
//! callers are answered at once. Meanwhile a task resolves the server's name again, connects, and
//! does what a step does. It repeats this until the probe succeeds. A caller that comes within
//! [`RETURN_TIMEOUT`] after the failure waits for the rest of that time. So if only the connection
//! broke and the server lives, no call fails.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use metrics::Gauge;
use odometer_database::{complaint::Complaint, start_error::StartError, tasks::Tasks};
use odometer_process::host::is_this_machine;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, FromRedisValue, IntoConnectionInfo,
    RedisError, ScriptInvocation, ServerErrorKind, TlsCertificates, aio::MultiplexedConnection,
    io::tcp::TcpSettings,
};
use tokio::{sync::watch, time::timeout};
use url::Url;

use super::scripts;

/// The target of this file's log events.
const TARGET: &str = "odometer::store::redis::server";

/// How long a script may take. If a step gets no reply, its numbers are abandoned.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(1);
/// How long making a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// How long after a failure callers wait for the server's return.
const RETURN_TIMEOUT: Duration = Duration::from_millis(100);
/// The shortest time between two probes.
const PROBE_MIN: Duration = Duration::from_millis(20);
/// The longest time between two probes.
const PROBE_MAX: Duration = Duration::from_millis(250);
const SILENT: &str = "it does not answer in time";
/// How long the key of a probe stays in Redis, in milliseconds.
const PROBE_KEPT_MS: u64 = 60_000;

/// The address of a server, without its user and password.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// `host:port/database`.
    pub(crate) label: String,
    /// The reason why others could read the password, if there is one.
    pub(crate) warning: Option<&'static str>,
    client: Client,
}

/// The parameter of a URL that names a file of certificate authorities, as in PostgreSQL's URLs.
const AUTHORITIES: &str = "sslrootcert";

const CLEAR: &str = "the password goes to another host in clear text, and anybody on the network \
    between can read it: use rediss://, with sslrootcert=FILE if its authority is your own";

impl Address {
    /// Returns the URL without user and password.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.label)
    }

    /// Reads the URL of a server.
    ///
    /// # Errors
    /// The URL cannot be read, or a file that it names cannot be used. The message repeats nothing
    /// of the URL but that file.
    pub(crate) fn parse(url: &str) -> Result<Self, StartError> {
        let unreadable = |_error: RedisError| {
            StartError::Configuration(
                "a URL of a Redis server cannot be read: it looks like redis://host:port/0"
                    .to_owned(),
            )
        };
        let (url, authorities) = without_authorities(url)?;
        let info = url.into_connection_info().map_err(unreadable)?;
        let has_password = info.redis_settings().password().is_some();
        let is_in_clear = matches!(
            info.addr(),
            ConnectionAddr::Tcp(host, _) if has_password && !is_this_machine(host)
        );
        let warning = is_in_clear.then_some(CLEAR);
        let database = info.redis_settings().db();
        let label = format!("{}/{database}", info.addr());
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = match authorities {
            None => Client::open(info),
            root_cert => {
                let client_tls = None;
                let certificates = TlsCertificates {
                    client_tls,
                    root_cert,
                };
                Client::build_with_tls(info, certificates)
            }
        };
        Ok(Self {
            label,
            warning,
            client: client.map_err(unreadable)?,
        })
    }

    /// Connects, and does what a step does.
    async fn reach(&self, probe_key: &str) -> Result<MultiplexedConnection, String> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(COMMAND_TIMEOUT));
        let connecting = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        // The client's connection timeout does not bound the look-up of the host name.
        let connected = timeout(CONNECT_TIMEOUT + COMMAND_TIMEOUT, connecting).await;
        let connected = connected.map_err(|_| SILENT)?;
        let mut connection = connected.map_err(|error| describe(&error))?;
        let mut probe = scripts::PROBE.key(probe_key);
        probe.arg(PROBE_KEPT_MS);
        let probing = probe.invoke_async::<scripts::RawAnswer>(&mut connection);
        let answered = timeout(COMMAND_TIMEOUT, probing).await;
        let answer = answered.map_err(|_| SILENT)?;
        answer.map_err(|error| describe(&error))?;
        Ok(connection)
    }

    /// Checks that the server would take a step now.
    ///
    /// # Errors
    /// The reason why it would not, in words of our own.
    pub(crate) async fn check(&self) -> Result<(), String> {
        self.reach("odometer:probe:check").await.map(drop)
    }
}

/// Returns the URL without the parameter for the file of authorities, and the content of that file.
fn without_authorities(url: &str) -> Result<(String, Option<Vec<u8>>), StartError> {
    let unchanged = || Ok((url.to_owned(), None));
    let Ok(mut parsed) = Url::parse(url) else {
        return unchanged();
    };
    let parameters: Vec<(String, String)> = parsed.query_pairs().into_owned().collect();
    let named = parameters.iter().find(|(key, _)| key == AUTHORITIES);
    let Some((_, file)) = named else {
        return unchanged();
    };
    let refused =
        |why: &str| StartError::Configuration(format!("{AUTHORITIES} of a Redis server: {why}"));
    if parsed.scheme() != "rediss" {
        return Err(refused("only a URL that begins with rediss:// can have it"));
    }
    let held = std::fs::read(file).map_err(|error| {
        refused(&format!(
            "the file {file} cannot be read ({})",
            error.kind()
        ))
    })?;
    let begin = b"-----BEGIN CERTIFICATE";
    if !held.windows(begin.len()).any(|part| part == begin) {
        return Err(refused(&format!(
            "the file {file} holds no certificate as PEM"
        )));
    }
    let others = parameters.iter().filter(|(key, _)| key != AUTHORITIES);
    let others: Vec<String> = others
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    parsed.set_query((!others.is_empty()).then(|| others.join("&")).as_deref());
    Ok((parsed.into(), Some(held)))
}

/// The reason why a script has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptFailure {
    /// Nothing was changed: the server is away and nothing was sent, or it refused the script.
    NotRun,
    /// The script may have run, or may run later.
    Uncertain,
}

pub(crate) struct RedisServer {
    pub(crate) address: Address,
    probe_key: String,
    link: watch::Sender<RedisLink>,
    /// 1 while the server takes steps, else 0.
    shown: Gauge,
    tasks: Tasks,
}

struct RedisLink {
    connection: Option<MultiplexedConnection>,
    /// How many connections there were, with the present one.
    generation: u64,
    /// The time of the last loss of a connection.
    lost_at: Instant,
}

impl RedisServer {
    /// Starts to connect to the server, which may be away.
    pub(crate) fn start(address: Address, holder: &str, tasks: &Tasks, shown: Gauge) -> Arc<Self> {
        if let Some(warning) = address.warning {
            tracing::warn!(target: TARGET, server = address.label, "{warning}");
        }
        shown.set(0.0);
        let server = Arc::new(Self {
            address,
            probe_key: format!("odometer:probe:{holder}"),
            link: watch::Sender::new(RedisLink {
                connection: None,
                generation: 0,
                lost_at: Instant::now(),
            }),
            shown,
            tasks: tasks.clone(),
        });
        server.probe();
        server
    }

    pub(crate) fn is_up(&self) -> bool {
        self.link.borrow().connection.is_some()
    }

    /// Returns the connection in use, and its number, counted from 1. If the last connection was
    /// lost within [`RETURN_TIMEOUT`], this waits for the next one.
    async fn connection(&self) -> Option<(MultiplexedConnection, u64)> {
        let mut link = self.link.subscribe();
        let left = RETURN_TIMEOUT.saturating_sub(link.borrow().lost_at.elapsed());
        let connected = link.wait_for(|link| link.connection.is_some());
        let link = timeout(left, connected).await.ok()?.ok()?;
        Some((link.connection.clone()?, link.generation))
    }

    /// Returns the number of the connection in use, if there is one.
    pub(crate) async fn generation(&self) -> Option<u64> {
        self.connection().await.map(|(_, generation)| generation)
    }

    /// Runs a script once, and never repeats it.
    pub(crate) async fn run<T: FromRedisValue>(
        self: &Arc<Self>,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, ScriptFailure> {
        let Some((mut connection, generation)) = self.connection().await else {
            return Err(ScriptFailure::NotRun);
        };
        match timeout(COMMAND_TIMEOUT, script.invoke_async::<T>(&mut connection)).await {
            Ok(Ok(answer)) => Ok(answer),
            // The error concerns one key: the other counters of this server still work.
            Ok(Err(error)) if is_about_a_key(&error) => Err(ScriptFailure::NotRun),
            Ok(Err(error)) => {
                self.trip(generation, &describe(&error));
                Err(if matches!(error.kind(), ErrorKind::Server(_)) {
                    ScriptFailure::NotRun
                } else {
                    ScriptFailure::Uncertain
                })
            }
            Err(_) => {
                self.trip(generation, SILENT);
                Err(ScriptFailure::Uncertain)
            }
        }
    }

    /// Gives the connection up, and opens the breaker.
    fn trip(self: &Arc<Self>, generation: u64, why: &str) {
        let is_lost = self.link.send_if_modified(|link| {
            if link.generation != generation || link.connection.is_none() {
                return false;
            }
            link.connection = None;
            link.lost_at = Instant::now();
            true
        });
        if !is_lost {
            return;
        }
        self.shown.set(0.0);
        tracing::warn!(target: TARGET, server = self.address.label, "Redis is away: {why}");
        self.probe();
    }

    /// Connects again and again, in a task, until the server would take a step.
    fn probe(self: &Arc<Self>) {
        let server = Arc::downgrade(self);
        self.tasks.spawn(async move {
            let mut bound = PROBE_MIN;
            let mut complaint = Complaint::default();
            loop {
                let Some(server) = server.upgrade() else {
                    return;
                };
                match server.address.reach(&server.probe_key).await {
                    Ok(connection) => {
                        server.link.send_modify(|link| {
                            link.connection = Some(connection);
                            link.generation = link.generation.saturating_add(1);
                        });
                        server.shown.set(1.0);
                        tracing::info!(target: TARGET, server = server.address.label, "Redis answers");
                        return;
                    }
                    Err(why) if complaint.is_due(&why, Instant::now()) => {
                        tracing::warn!(target: TARGET, server = server.address.label, "waiting for Redis: {why}");
                    }
                    Err(_) => {}
                }
                drop(server);
                tokio::time::sleep(bound.mul_f64(rand::random_range(0.5..1.0))).await;
                bound = (bound * 2).min(PROBE_MAX);
            }
        });
    }
}

/// Says whether a script met data under its key that only an operator can have put there.
fn is_about_a_key(error: &RedisError) -> bool {
    matches!(error.code(), Some("WRONGTYPE" | "ERR"))
}

/// Says what is wrong with the server's certificate, if that is why no connection was made.
fn certificate_trouble(error: &RedisError) -> Option<String> {
    let said = error.to_string();
    // The certificate verifier gives the reason in a word, and quotes nothing of the URL.
    let (_, why) = said.split_once("invalid peer certificate: ")?;
    Some(format!(
        "its certificate cannot be verified ({why}): name the file of the authority that signed it as \
         {AUTHORITIES}=FILE of the URL, and the host that it is for"
    ))
}

/// Describes an error in our words, because a server's message may quote a user or a key.
fn describe(error: &RedisError) -> String {
    let server = |kind| error.kind() == ErrorKind::Server(kind);
    let what = if server(ServerErrorKind::ReadOnly) {
        "it is a read-only replica"
    } else if server(ServerErrorKind::BusyLoading) {
        "it is loading its data"
    } else if server(ServerErrorKind::MasterDown) {
        "it has lost its master"
    } else if server(ServerErrorKind::NoPerm) {
        "this user may not run scripts, or not INFO in them"
    } else if error.kind() == ErrorKind::AuthenticationFailed {
        "it refuses this user or password"
    } else if error.is_timeout() {
        SILENT
    } else if let Some(why) = certificate_trouble(error) {
        return why;
    } else if error.is_connection_refusal() {
        "nothing listens at its host and port"
    } else if error.is_connection_dropped() || error.is_io_error() {
        "the connection broke"
    } else if let Some(code) = error.code() {
        return format!("it answers with the error {code}");
    } else {
        "it does not answer as Redis 7 does"
    };
    what.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_that_leaves_this_machine_in_clear_text_is_warned_of() {
        for (url, is_warned_of) in [
            ("redis://:tiger@redis.example:6379", true),
            ("redis://user:tiger@192.0.2.7", true),
            ("redis://:tiger@127.0.0.1", false),
            ("redis://:tiger@localhost:6379/2", false),
            ("redis://redis.example", false),
            ("rediss://:tiger@redis.example", false),
        ] {
            let warning = Address::parse(url).map(|address| address.warning);
            assert_eq!(
                warning.ok().map(|warning| warning.is_some()),
                Some(is_warned_of),
                "{url}"
            );
        }
    }

    #[test]
    fn a_file_of_authorities_that_cannot_be_used_is_named() {
        for (url, said) in [
            (
                "rediss://:tiger@h?sslrootcert=/nowhere/ca.pem",
                "/nowhere/ca.pem cannot be read",
            ),
            (
                "rediss://:tiger@h?sslrootcert=/proc/version",
                "/proc/version holds no certificate",
            ),
            (
                "redis://:tiger@h?sslrootcert=/proc/version",
                "begins with rediss://",
            ),
        ] {
            let error = Address::parse(url).map(|_address| ()).err();
            let sentence = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(
                sentence.contains(said) && !sentence.contains("tiger"),
                "{sentence}"
            );
        }
    }
}
