//! Opens the listeners of the program, serves them, and stops them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::{Server, ServerHandle};
use actix_web::rt;
use futures_util::future::OptionFuture;
use odometer_process::metrics::Metrics;
use odometer_sequence::Directory;
use rustix::net::sockopt;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

use crate::access::credentials::Credentials;
use crate::calls::UnreportedLines;
use crate::commands::failure::CommandFailure;
use crate::config::Config;
use crate::edge::WorkerTicks;
use crate::http::{self, ListenerRole, ListenerSettings};
use crate::resp::{self, RespSettings};

/// Bytes of replies that the kernel keeps for each connection.
const SEND_BUFFER: u32 = 64 * 1024;

/// When the kernel asks an idle client of Redis whether it is there, and how often it asks again.
/// Redis has the same times. Without them, a client whose machine is gone would keep its
/// connection.
const ASKED_AFTER: Duration = Duration::from_secs(300);
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(100);
const ASKED_AT_MOST: u32 = 3;

/// The most connections of the operations listener: of probes, scrapes, and people at the page.
pub(crate) const OPERATIONS_CONNECTIONS: usize = 256;

/// What all listeners answer from.
type Served<'a> = (&'a Arc<Directory>, &'a Arc<Metrics>, &'a Arc<Credentials>);

/// Listeners that are open and not served yet.
pub(crate) struct BoundListeners {
    callers: TcpListener,
    /// The listener for clients of Redis, if there is one.
    resp: Option<TcpListener>,
    /// The operations listener, if there is one.
    operations: Option<TcpListener>,
}

/// Listeners that are served.
pub(crate) struct RunningListeners {
    callers: RunningListener,
    resp: Option<RunningListener>,
    operations: Option<RunningListener>,
}

/// A listener that is served.
pub(crate) struct RunningListener {
    handle: ServerHandle,
    ended: JoinHandle<io::Result<()>>,
    untold: UnreportedLines,
}

impl RunningListener {
    fn start((server, untold): (Server, UnreportedLines)) -> Self {
        Self {
            handle: server.handle(),
            ended: rt::spawn(server),
            untold,
        }
    }

    /// Waits until the server has ended without being stopped, which it does not do.
    async fn failure(&mut self) -> CommandFailure {
        let ended = (&mut self.ended).await;
        CommandFailure::other(format!("a server ended by itself: {ended:?}"))
    }

    /// Stops the server. With `is_graceful`, the calls that it has begun are answered first.
    pub(crate) async fn stop(self, is_graceful: bool) {
        self.handle.stop(is_graceful).await;
        self.untold.tell();
    }
}

impl BoundListeners {
    /// Opens all listeners of a configuration. Needs a tokio runtime.
    ///
    /// # Errors
    /// An address cannot be listened on.
    pub(crate) fn bind(config: &Config) -> Result<Self, CommandFailure> {
        let backlog = config.http.backlog;
        let bound = |key, address| bind_or_say(key, address, backlog);
        let optional = |key, address: Option<SocketAddr>| {
            let bound = address.map(|address| bound(key, address));
            bound.transpose()
        };
        let resp = optional("resp.listen", config.resp.listen)?;
        if let Some(resp) = &resp {
            keep_alive(resp).map_err(not_served)?;
        }
        Ok(Self {
            callers: bound("listen", config.listen)?,
            operations: optional("operations.listen", config.operations.listen)?,
            resp,
        })
    }

    /// Returns the address of the listener for callers of HTTP.
    ///
    /// # Errors
    /// The system does not tell it.
    pub(crate) fn address(&self) -> Result<SocketAddr, CommandFailure> {
        self.callers.local_addr().map_err(not_served)
    }

    /// Serves all listeners, and logs their addresses. Each for callers may have this many
    /// `connections`.
    ///
    /// # Errors
    /// A listener cannot be served.
    pub(crate) fn serve(
        self,
        config: &Config,
        connections: usize,
        (directory, metrics, credentials): Served<'_>,
    ) -> Result<RunningListeners, CommandFailure> {
        let address = self.address()?;
        let worker_ticks = WorkerTicks::new();
        let shared = || (Arc::clone(directory), Arc::clone(metrics));
        let serve = |listener, role, connections| {
            let settings = ListenerSettings {
                listener,
                role,
                connections,
                worker_ticks: Arc::clone(&worker_ticks),
                credentials: Arc::clone(credentials),
            };
            let (directory, metrics) = shared();
            let served = http::serve(settings, directory, metrics, config);
            let served = served.map(RunningListener::start);
            served.map_err(not_served)
        };
        let role = match self.operations {
            Some(_) => ListenerRole::Callers,
            None => ListenerRole::Everything,
        };
        if let Some(operations) = &self.operations {
            announce_operations(config, operations.local_addr().map_err(not_served)?);
        }
        let operations = (self.operations)
            .map(|listener| serve(listener, ListenerRole::Operations, OPERATIONS_CONNECTIONS))
            .transpose()?;
        let serve_resp = |listener: TcpListener| -> io::Result<RunningListener> {
            let address = listener.local_addr()?;
            let settings = RespSettings {
                listener,
                connections,
                worker_ticks: Arc::clone(&worker_ticks),
                credentials: Arc::clone(credentials),
            };
            let (directory, metrics) = shared();
            let served = resp::serve(settings, directory, metrics, config)?;
            announce_resp(config, address);
            Ok(RunningListener::start(served))
        };
        let resp = self.resp.map(serve_resp).transpose().map_err(not_served)?;
        let callers = serve(self.callers, role, connections)?;
        announce(config, role, address);
        Ok(RunningListeners {
            callers,
            resp,
            operations,
        })
    }
}

impl RunningListeners {
    /// Waits until a server has ended without being stopped, which it does not do.
    pub(crate) async fn failure(&mut self) -> CommandFailure {
        let resp = self.resp.as_mut().map(RunningListener::failure);
        let operations = self.operations.as_mut().map(RunningListener::failure);
        tokio::select! {
            failure = self.callers.failure() => failure,
            Some(failure) = OptionFuture::from(resp) => failure,
            Some(failure) = OptionFuture::from(operations) => failure,
        }
    }

    /// Stops all servers for callers. The calls that they have begun are answered first. Returns
    /// the operations listener, which goes on.
    pub(crate) async fn stop_serving_callers(self) -> Option<RunningListener> {
        let resp = OptionFuture::from(self.resp.map(|resp| resp.stop(true)));
        tokio::join!(self.callers.stop(true), resp);
        self.operations
    }
}

/// Opens a listener with its own backlog. Needs a tokio runtime.
fn bind(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // With this option, a port can be listened on again at once, even if old connections linger on
    // it.
    socket.set_reuseaddr(true)?;
    // Connections inherit this size from the listener. It limits what the kernel keeps for a caller
    // who does not read.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(backlog)?.into_std()
}

/// Lets the kernel find out whether idle clients of a listener are there. Connections inherit this.
fn keep_alive(listener: &TcpListener) -> io::Result<()> {
    sockopt::set_socket_keepalive(listener, true)?;
    sockopt::set_tcp_keepidle(listener, ASKED_AFTER)?;
    sockopt::set_tcp_keepintvl(listener, ASKED_AGAIN_AFTER)?;
    sockopt::set_tcp_keepcnt(listener, ASKED_AT_MOST)?;
    Ok(())
}

/// Opens the listener that a key of the configuration names.
///
/// # Errors
/// The address cannot be listened on. The sentence says how to choose another one.
fn bind_or_say(
    key: &str,
    address: SocketAddr,
    backlog: u32,
) -> Result<TcpListener, CommandFailure> {
    bind(address, backlog).map_err(|error| {
        let variable = key.to_uppercase().replace('.', "__");
        CommandFailure::other(format!(
            "{key}: {address} cannot be listened on ({error}); choose another address with \
             ODOMETER_{variable}{}",
            if key == "listen" { " or --listen" } else { "" }
        ))
    })
}

/// Says that a listener cannot be served.
pub(crate) fn not_served(error: io::Error) -> CommandFailure {
    CommandFailure::other(format!("a listener cannot be served: {error}"))
}

/// Returns the scheme of the URLs of a listener.
fn scheme(role: ListenerRole, config: &Config) -> &'static str {
    match http::is_secured(role, config) {
        true => "https",
        false => "http",
    }
}

fn announce_operations(config: &Config, address: SocketAddr) {
    let scheme = scheme(ListenerRole::Operations, config);
    tracing::info!(
        target: odometer_process::log::ALWAYS,
        "Showing probes, metrics and the page on {scheme}://{address}"
    );
}

fn announce_resp(config: &Config, address: SocketAddr) {
    let scheme = if resp::is_secured(config) {
        "rediss"
    } else {
        "redis"
    };
    tracing::info!(
        target: odometer_process::log::ALWAYS,
        "Listening for clients of Redis on {scheme}://{address}"
    );
}

fn announce(config: &Config, role: ListenerRole, address: SocketAddr) {
    let has_no_definer = config.admin_token.is_none() && config.access.is_none();
    if !address.ip().is_loopback() && has_no_definer {
        tracing::info!(
            "Sequences cannot be changed over HTTP: the listener is not loopback and \
             ODOMETER_ADMIN_TOKEN is not set"
        );
    }
    for warning in config.security_warnings() {
        tracing::warn!("{warning}");
    }
    let scheme = scheme(role, config);
    // Lines with this target are logged at any level. An operator who chose port 0 has to learn the
    // address.
    tracing::info!(
        target: odometer_process::log::ALWAYS,
        version = env!("CARGO_PKG_VERSION"),
        "Listening on {scheme}://{address}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_refused_and_port_0_picks_one() {
        let Ok(first) = bind(SocketAddr::from(([127, 0, 0, 1], 0)), 16) else {
            unreachable!("loopback has free ports")
        };
        let address = first.local_addr();
        assert!(address.as_ref().is_ok_and(|address| address.port() != 0));
        if let Ok(address) = address {
            assert!(bind(address, 16).is_err());
        }
    }

    #[tokio::test]
    async fn connections_inherit_that_idle_clients_are_asked() -> io::Result<()> {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)), 16)?;
        keep_alive(&listener)?;
        let _client = std::net::TcpStream::connect(listener.local_addr()?)?;
        listener.set_nonblocking(false)?;
        let (connection, _) = listener.accept()?;
        assert!(sockopt::socket_keepalive(&connection)?);
        assert_eq!(sockopt::tcp_keepidle(&connection)?, ASKED_AFTER);
        assert_eq!(sockopt::tcp_keepintvl(&connection)?, ASKED_AGAIN_AFTER);
        assert_eq!(sockopt::tcp_keepcnt(&connection)?, ASKED_AT_MOST);
        Ok(())
    }
}
