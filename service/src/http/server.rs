//! Runs the HTTP server: its workers, and what a request passes on its way to a route.

use std::future::ready;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_http::error::DispatchError;
use actix_http::{HttpService, KeepAlive};
use actix_service::{IntoServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::body::BoxBody;
use actix_web::dev::{
    AppConfig, Server, Service as _, ServiceFactory, ServiceRequest, ServiceResponse,
};
use actix_web::middleware::from_fn;
use actix_web::rt::net::TcpStream;
use actix_web::web::Data;
use actix_web::{App, Error};
use futures_util::future::Either;
use odometer_process::{
    faults::{self, Fault},
    metrics::{ListenerMetrics, Metrics},
};
use odometer_sequence::Directory;

use super::guard::{Guarded, max_unread};
use super::listener_role::ListenerRole;
use super::state::Http;
use super::{envelope, hot, openapi, urls};
use crate::access::credentials::Credentials;
use crate::calls::UnreportedLines;
use crate::calls::caller_memo::CallerMemo;
use crate::config::Config;
use crate::edge::{
    Connection, ConnectionBounds, Opening, Stopping, Watch, WorkerTicks, worker_count,
};

/// How long a caller may take to read the last reply of its connection, or to see that it closes.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection under guard, and the address of its other end.
type GuardedConnection = (Guarded<Connection>, Option<SocketAddr>);

/// One of the program's listeners.
pub struct ListenerSettings {
    pub listener: TcpListener,
    pub role: ListenerRole,
    /// The most connections that are open at once.
    pub connections: usize,
    /// The ticks of all workers that serve callers.
    pub worker_ticks: Arc<WorkerTicks>,
    /// What callers have to show.
    pub credentials: Arc<Credentials>,
}

/// Answers on a listener until the returned server is stopped through its handle.
///
/// The caller handles signals. The future of the server ends when all workers have ended.
///
/// # Errors
/// The listener cannot be used, or the description of the API cannot be written.
pub fn serve(
    settings: ListenerSettings,
    directory: Arc<Directory>,
    metrics: Arc<Metrics>,
    config: &Config,
) -> io::Result<(Server, UnreportedLines)> {
    let ListenerSettings {
        listener,
        role,
        connections,
        worker_ticks,
        credentials,
    } = settings;
    let address = listener.local_addr()?;
    let workers = n_workers(role, config);
    let unread = max_unread(config.limits.body);
    let bounds = ConnectionBounds::new(config, unread, (connections / workers).max(1));
    let openapi = openapi::document().map_err(io::Error::other)?;
    let place = (role, address.ip().is_loopback());
    let secured = is_secured(role, config).then(|| Arc::clone(&credentials));
    let shared = (worker_ticks, credentials);
    let http = Http::new(place, shared, directory, metrics, openapi, config);
    let http = Data::new(http);
    let untold = UnreportedLines(Arc::clone(&http.calls));
    let metrics = listener_metrics(role, &http.metrics);
    let all = bounds.connections.saturating_mul(workers);
    metrics.max.set(all as f64);
    let stopping = config.shutdown.deadline - config.shutdown.ready_wait;
    let builder = Server::build()
        .workers(workers)
        .max_concurrent_connections(bounds.connections)
        // The other half of the time is for returning blocks.
        .shutdown_timeout((stopping / 2).as_secs().max(1))
        .disable_signals();
    let stopping = builder.graceful_shutdown_signal();
    let worker = move || {
        let ending = http.clone();
        let watch = start_watch(&http, &bounds, metrics.clone());
        let application = application(http.clone(), Rc::clone(&watch)).into_factory();
        let application = application.map_err(|error: Error| error.error_response());
        let stopping = stopping.clone();
        let stopped = move || {
            let stopping = stopping.clone();
            async move { stopping.notified().await }
        };
        let waiting = stopped.clone();
        let stopping: Stopping = Rc::new(move || Box::pin(waiting()));
        let told = http.clone();
        let note_failure = move |peer, error| told.repeated_lines.note_handshake(peer, error);
        let opening = Opening::new(watch, secured.clone(), stopping, note_failure);
        let has_roles = http.access.has_roles();
        let http1 = HttpService::build()
            .graceful_shutdown_signal(stopped)
            // The watch has its own limit for idle connections, which costs a request nothing.
            .keep_alive(KeepAlive::Os)
            // Of the head as well. actix would measure it by a time that it keeps for half a
            // second: the first callers after a pause of the process would get 408.
            .client_request_timeout(Duration::ZERO)
            .client_disconnect_timeout(DISCONNECT_TIMEOUT)
            // If a caller hangs up while it waits, its call is dropped at once and gets no number.
            .h1_allow_half_closed(false)
            .local_addr(address)
            .on_connect_ext(move |connection: &Guarded<Connection>, data| {
                data.insert(Rc::clone(connection.progress()));
                if has_roles {
                    data.insert(CallerMemo::default());
                }
                if let Some(certificate) = connection.io().certificate() {
                    data.insert(Rc::clone(certificate));
                }
            })
            .h1(map_config(application, |()| AppConfig::default()));
        fn_service(move |io: TcpStream| guarded(opening.clone(), io))
            .and_then(http1)
            .map_err(move |error| note_end(&error, &ending))
    };
    Ok((builder.listen("http", listener, worker)?.run(), untold))
}

/// Opens a connection, and puts it under guard.
async fn guarded(opening: Opening, io: TcpStream) -> Result<GuardedConnection, DispatchError> {
    let opened = opening.open(io).await.map_err(DispatchError::Io)?;
    Ok((Guarded::new(opened.connection, opened.place), opened.peer))
}

/// Returns the metrics of a listener's connections, of which those of callers are counted.
fn listener_metrics(role: ListenerRole, metrics: &Metrics) -> ListenerMetrics {
    match role.serves_callers() {
        true => metrics.listener.clone(),
        false => ListenerMetrics::uncounted(),
    }
}

/// Returns how many threads serve a listener. Operators share one, which callers cannot keep busy.
fn n_workers(role: ListenerRole, config: &Config) -> usize {
    if !role.serves_callers() {
        return 1;
    }
    worker_count(config.http.workers)
}

/// Starts the tick of a worker, which watches its connections.
fn start_watch(
    http: &Data<Http>,
    bounds: &ConnectionBounds,
    metrics: ListenerMetrics,
) -> Rc<Watch> {
    let ticking = http.clone();
    let tick = (http.role.serves_callers()).then(|| http.worker_ticks.join(Instant::now()));
    Watch::start(bounds, metrics, move || {
        let now = Instant::now();
        ticking.tell(now);
        if let Some(tick) = &tick {
            stand_still_if_told();
            tick.note(now);
        }
        ticking.directory.is_draining()
    })
}

/// Lets the thread of a worker stand still for good, if a test says so.
fn stand_still_if_told() {
    while faults::is(Fault::WorkerStandsStill) {
        std::thread::park();
    }
}

/// Returns whether a listener speaks TLS.
pub fn is_secured(role: ListenerRole, config: &Config) -> bool {
    config.tls.certificate_file.is_some() && (role.serves_callers() || config.tls.operations)
}

/// Notes a connection that ended because its input is not HTTP. By TLS, what came after the
/// handshake may be no records, or more bytes than TLS needs.
fn note_end(error: &DispatchError, http: &Http) {
    let error = if let DispatchError::Parse(error) = error {
        error.to_string()
    } else if let DispatchError::Io(error) = error
        // TLS fails in this way, and no socket does.
        && error.kind() == io::ErrorKind::InvalidData
    {
        error.to_string()
    } else {
        return;
    };
    http.metrics.listener.malformed.increment(1);
    http.repeated_lines.note_malformed(error);
}

/// Returns the application: the warm path first, then what every other call passes, then the URLs.
fn application(
    http: Data<Http>,
    watch: Rc<Watch>,
) -> App<
    impl ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse<BoxBody>,
        Error = Error,
        InitError = (),
    >,
> {
    let serves_callers = http.role.serves_callers();
    let warm_path = serves_callers.then(|| Rc::new(hot::WarmPath::new(&http, Rc::clone(&watch))));
    let urls = urls::urls(http.role);
    App::new()
        .app_data(http)
        .app_data(watch)
        .wrap(from_fn(envelope::envelope))
        .wrap_fn(move |request, routes| {
            match warm_path
                .as_ref()
                .and_then(|warm_path| warm_path.answer(request.request()))
            {
                Some(response) => Either::Left(ready(Ok(request.into_response(response)))),
                None => Either::Right(routes.call(request)),
            }
        })
        .configure(urls)
}
