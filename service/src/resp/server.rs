//! Runs the listener for clients of Redis: its workers, and what a connection passes on its way.

use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use actix_service::fn_service;
use actix_web::dev::Server;
use actix_web::rt;
use actix_web::rt::net::TcpStream;
use odometer_process::metrics::{ListenerMetrics, Metrics};
use odometer_sequence::Directory;

use super::arguments::MAX_COMMAND;
use super::connection;
use super::state::{Resp, RespWorker};
use crate::access::credentials::Credentials;
use crate::calls::UnreportedLines;
use crate::config::Config;
use crate::edge::{ConnectionBounds, Opening, Stopping, Watch, WorkerTicks, worker_count};

/// The listener for clients of Redis.
pub struct RespSettings {
    pub listener: TcpListener,
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
/// The listener cannot be used.
pub fn serve(
    settings: RespSettings,
    directory: Arc<Directory>,
    metrics: Arc<Metrics>,
    config: &Config,
) -> io::Result<(Server, UnreportedLines)> {
    let RespSettings {
        listener,
        connections,
        worker_ticks,
        credentials,
    } = settings;
    let is_loopback = listener.local_addr()?.ip().is_loopback();
    let workers = worker_count(config.http.workers);
    let bounds = ConnectionBounds::new(config, MAX_COMMAND, (connections / workers).max(1));
    let of_listener = metrics.resp_listener();
    let all = bounds.connections.saturating_mul(workers);
    of_listener.max.set(all as f64);
    let secured = is_secured(config).then(|| Arc::clone(&credentials));
    let resp = Resp::new(is_loopback, credentials, directory, metrics, config);
    let resp = Arc::new(resp);
    let untold = UnreportedLines(Arc::clone(&resp.calls));
    let stopping = config.shutdown.deadline - config.shutdown.ready_wait;
    let builder = Server::build()
        .workers(workers)
        .max_concurrent_connections(bounds.connections)
        // The other half of the time is for returning blocks.
        .shutdown_timeout((stopping / 2).as_secs().max(1))
        .disable_signals();
    let stopping = builder.graceful_shutdown_signal();
    let worker = move || {
        let watch = start_watch(&resp, &bounds, of_listener.clone(), &worker_ticks);
        let waiting = stopping.clone();
        let stopped: Stopping = Rc::new(move || {
            let waiting = waiting.clone();
            Box::pin(async move { waiting.notified().await })
        });
        let (ending, ended) = (Rc::downgrade(&watch), stopped());
        rt::spawn(async move {
            ended.await;
            if let Some(watch) = ending.upgrade() {
                watch.stop();
            }
        });
        let told = Arc::clone(&resp);
        let note_failure = move |peer, error| told.calls.repeated_lines.note_handshake(peer, error);
        let opening = Opening::new(Rc::clone(&watch), secured.clone(), stopped, note_failure);
        let of_worker = Rc::new(RespWorker {
            resp: Arc::clone(&resp),
            watch,
        });
        fn_service(move |io: TcpStream| {
            connection::serve(Rc::clone(&of_worker), opening.clone(), io)
        })
    };
    Ok((builder.listen("resp", listener, worker)?.run(), untold))
}

/// Returns whether the listener speaks TLS.
pub fn is_secured(config: &Config) -> bool {
    config.tls.certificate_file.is_some()
}

/// Starts the tick of a worker, which watches its connections.
fn start_watch(
    resp: &Arc<Resp>,
    bounds: &ConnectionBounds,
    metrics: ListenerMetrics,
    worker_ticks: &WorkerTicks,
) -> Rc<Watch> {
    let ticking = Arc::clone(resp);
    let tick = worker_ticks.join(Instant::now());
    Watch::start(bounds, metrics, move || {
        let now = Instant::now();
        ticking.calls.tell(now);
        tick.note(now);
        ticking.calls.directory.is_draining()
    })
}
