//! What is spoken over HTTP: parses, answers, and decides nothing about numbers.
//!
//! This layer owns the URLs, the media types and the statuses. It asks the directory of `sequence`
//! for numbers and definitions, and knows nothing of databases.

#![warn(clippy::indexing_slicing)]

use std::future::ready;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use actix_http::error::DispatchError;
use actix_http::{HttpService, KeepAlive};
use actix_service::{IntoServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::body::BoxBody;
use actix_web::dev::{AppConfig, Server, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::middleware::from_fn;
use actix_web::rt::net::TcpStream;
use actix_web::web::{self, Bytes, Data, ServiceConfig};
use actix_web::{App, Error, Resource};

use crate::config::Secret;
use crate::metrics::{Exposition, Metrics};
use crate::sequence::Directory;

mod administration;
mod admission;
mod body;
pub(crate) mod edge;
mod envelope;
mod explain;
mod health;
mod hot;
mod keeping;
mod large_replies;
mod lifecycle;
mod near;
mod numbers;
mod openapi;
mod page;
mod parse;
mod printed;
mod problem;
mod repeated_lines;
mod replica;
mod reply;
mod sequences;
mod serving;
mod trace;
mod workers;
mod wrong_tokens;

use administration::Administration;
use admission::{Hosts, InFlight};
use body::Bounds;
use edge::{Guarded, Watch};
use large_replies::LargeReplies;
use problem::{Code, Problem};
use repeated_lines::RepeatedLines;

/// How long a caller may take to read the last reply of its connection, or to see that it closes.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Threads that actix can have.
const MAX_WORKERS: usize = 512;

/// What the HTTP layer is run by.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// How long the head of a request may take to arrive.
    pub head_timeout: Duration,
    /// How long the body of a request may take to arrive.
    pub body_timeout: Duration,
    /// From the first byte of a request to the first byte of its reply.
    pub request_timeout: Duration,
    /// How long a reply may stand still.
    pub write_timeout: Duration,
    /// Connections that may be open at once.
    pub connections: usize,
    /// Bytes of a body that are read.
    pub body_limit: usize,
    /// Calls being answered at once off the warm path; more get 503 `overloaded`.
    pub in_flight: usize,
    /// Threads that answer; `None` for one for each core.
    pub workers: Option<usize>,
    /// How long accepted requests may take once the server is told to stop.
    pub shutdown_timeout: Duration,
    /// Whether the listener can be reached from this machine only.
    pub loopback: bool,
    /// Further names by which a listener on loopback may be called.
    pub hosts: Vec<String>,
    /// What an administrator has to show; without one, nothing on loopback.
    pub admin_token: Option<Secret>,
    /// After how long a change holds at every replica that reaches the database.
    pub definition_refresh: Duration,
}

/// What the routes share.
struct Http {
    directory: Arc<Directory>,
    metrics: Arc<Metrics>,
    exposition: Exposition,
    body: Bounds,
    administration: Administration,
    hosts: Hosts,
    repeated_lines: RepeatedLines,
    definition_refresh: Duration,
    in_flight: Arc<InFlight>,
    large_replies: LargeReplies,
    openapi: Bytes,
    /// When it began to listen.
    started: SystemTime,
}

/// What the log has not been told yet of calls that were refused.
pub struct Untold(Data<Http>);

impl Untold {
    /// Writes it, once nothing is answered any more.
    pub fn tell(&self) {
        self.0.administration.tell_all();
        self.0.repeated_lines.tell_all();
    }
}

/// Answers on `listener` until the returned server is told to stop through its handle.
///
/// Signals are left to the caller. The future of the server ends when all workers have.
///
/// # Errors
/// The listener cannot be used, or the description of the API cannot be written.
pub fn serve(
    listener: TcpListener,
    directory: Arc<Directory>,
    metrics: Arc<Metrics>,
    exposition: Exposition,
    settings: HttpSettings,
) -> io::Result<(Server, Untold)> {
    let address = listener.local_addr()?;
    let workers = settings
        .workers
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(2, NonZeroUsize::get));
    let workers = workers.clamp(1, MAX_WORKERS);
    let bounds = edge::Bounds {
        head: settings.head_timeout,
        request: settings.request_timeout,
        reply: settings.write_timeout,
        body: settings.body_limit,
        connections: (settings.connections / workers).max(1),
    };
    let http = shared(directory, metrics, exposition, &settings)?;
    let untold = Untold(http.clone());
    let all = bounds.connections.saturating_mul(workers);
    http.metrics.connections.max.set(all as f64);
    let builder = Server::build()
        .workers(workers)
        .max_concurrent_connections(bounds.connections)
        .shutdown_timeout(settings.shutdown_timeout.as_secs().max(1))
        .disable_signals();
    let stopping = builder.graceful_shutdown_signal();
    let worker = move || {
        let metrics = http.metrics.connections.clone();
        let (ticking, ending) = (http.clone(), http.clone());
        let watch = Watch::start(&bounds, metrics, move || {
            ticking.administration.tell();
            ticking.repeated_lines.tell();
            ticking.directory.is_draining()
        });
        let application = application(http.clone(), Rc::clone(&watch)).into_factory();
        let application = application.map_err(|error: Error| error.error_response());
        let stopping = stopping.clone();
        let http1 = HttpService::build()
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            // The watch has its own, which costs a request nothing.
            .keep_alive(KeepAlive::Os)
            .client_request_timeout(settings.head_timeout)
            .client_disconnect_timeout(DISCONNECT_TIMEOUT)
            // A caller who hangs up while waiting is dropped there and then, and gets no number.
            .h1_allow_half_closed(false)
            .local_addr(address)
            .on_connect_ext(|io: &Guarded<TcpStream>, data| {
                data.insert(Rc::clone(io.progress()));
            })
            .h1(map_config(application, |()| AppConfig::default()));
        fn_service(move |io: TcpStream| ready(Ok(guarded(io, &watch))))
            .and_then(http1)
            .map_err(move |error| note_end(&error, &ending))
    };
    Ok((builder.listen("http", listener, worker)?.run(), untold))
}

/// What all workers share.
fn shared(
    directory: Arc<Directory>,
    metrics: Arc<Metrics>,
    exposition: Exposition,
    settings: &HttpSettings,
) -> io::Result<Data<Http>> {
    let in_flight = InFlight::new(
        settings.in_flight,
        metrics.http_in_flight.clone(),
        metrics.http_refused.clone(),
    );
    let refused = metrics.tokens_refused.clone();
    let administration =
        Administration::new(settings.loopback, settings.admin_token.clone(), refused);
    let large_replies = LargeReplies::new(metrics.http_refused.clone());
    Ok(Data::new(Http {
        directory,
        metrics,
        exposition,
        body: Bounds {
            limit: settings.body_limit,
            timeout: settings.body_timeout,
        },
        administration,
        hosts: Hosts::new(settings.loopback, &settings.hosts),
        repeated_lines: RepeatedLines::default(),
        definition_refresh: settings.definition_refresh,
        in_flight: Arc::new(in_flight),
        large_replies,
        openapi: openapi::document().map_err(io::Error::other)?,
        started: SystemTime::now(),
    }))
}

/// A connection under guard, and who is at its other end.
fn guarded(io: TcpStream, watch: &Rc<Watch>) -> (Guarded<TcpStream>, Option<SocketAddr>) {
    // Where either fails the connection is gone, as its first read says.
    let _ = io.set_nodelay(true);
    let peer = io.peer_addr().ok();
    (watch.guard(io), peer)
}

/// Notes a connection that did not end in order because of what its caller sent.
fn note_end(error: &DispatchError, http: &Http) {
    let DispatchError::Parse(error) = error else {
        return;
    };
    http.metrics.connections.malformed.increment(1);
    http.repeated_lines.note_malformed(error.to_string());
}

/// The warm path first, then what every other call passes, then the URLs.
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
    let warm = hot::Warm::new(&http, Rc::clone(&watch));
    App::new()
        .app_data(http)
        .app_data(watch)
        .wrap(from_fn(envelope::envelope))
        .wrap(warm)
        .configure(urls)
}

/// The URL map.
fn urls(config: &mut ServiceConfig) {
    config
        .service(
            web::scope("/v1")
                .wrap(from_fn(admission::admit))
                .service(
                    resource("/sequences/{name}/next", "POST").route(web::post().to(numbers::next)),
                )
                .service(
                    resource("/sequences/{name}/blocks", "POST")
                        .route(web::post().to(numbers::blocks)),
                )
                .service(
                    resource("/sequences/{name}", "GET, HEAD, PUT, DELETE")
                        .route(web::get().to(sequences::read))
                        .route(web::head().to(sequences::read))
                        .route(web::put().to(sequences::define))
                        .route(web::delete().to(lifecycle::retire)),
                )
                .service(
                    resource("/sequences/{name}/advance", "POST")
                        .route(web::post().to(lifecycle::advance)),
                )
                .service(
                    resource("/sequences/{name}/restore", "POST")
                        .route(web::post().to(lifecycle::restore)),
                )
                .service(
                    resource("/sequences/{name}/periods/{key}", "DELETE")
                        .route(web::delete().to(lifecycle::remove_period)),
                )
                .service(
                    resource("/sequences/{name}/parse", "POST")
                        .route(web::post().to(printed::parse)),
                )
                .service(readable("/sequences/{name}/explain", || {
                    web::to(explain::explain)
                }))
                .service(readable("/sequences", || web::to(sequences::list)))
                .service(readable("/replica", || web::to(replica::replica)))
                .service(readable("/replica/sequences", || web::to(replica::list)))
                .service(readable("/replica/sequences/{name}", || {
                    web::to(replica::watch)
                }))
                .service(resource("/workers", "POST").route(web::post().to(workers::lease)))
                .service(readable("/workers/{pool}", || web::to(workers::list)))
                .service(
                    resource("/workers/{pool}/{worker}", "DELETE")
                        .route(web::delete().to(workers::give_back)),
                )
                .service(
                    resource("/workers/{pool}/{worker}/renew", "POST")
                        .route(web::post().to(workers::renew)),
                )
                .default_service(web::to(route_not_found)),
        )
        .service(readable("/livez", || web::to(health::livez)))
        .service(readable("/readyz", || web::to(health::readyz)))
        .service(readable("/metrics", || web::to(health::metrics)))
        .service(readable("/openapi.json", || web::to(health::openapi)))
        .service(readable("/", || web::to(page::page)))
        .service(readable("/page/{file}", || web::to(page::page)))
        .default_service(web::to(route_not_found));
}

/// A path that refuses every method it is not given a route for.
fn resource(path: &str, allow: &'static str) -> Resource {
    web::resource(path).default_service(web::to(move || async move {
        Err::<String, _>(Problem::method_not_allowed(allow))
    }))
}

/// A path that is only read, whole or its head.
fn readable(path: &str, route: impl Fn() -> actix_web::Route) -> Resource {
    resource(path, "GET, HEAD")
        .route(route().guard(actix_web::guard::Get()))
        .route(route().guard(actix_web::guard::Head()))
}

async fn route_not_found() -> Result<String, Problem> {
    Err(Problem::new(
        Code::RouteNotFound,
        "There is nothing at this path; `/openapi.json` lists what there is. A name holds no `/`.",
    ))
}

#[cfg(test)]
mod tests {
    use actix_web::body::MessageBody;
    use actix_web::http::header::HeaderMap;
    use actix_web::test::{TestRequest, call_service, init_service};

    use super::*;

    /// The status, the headers and the body that a call gets where nothing needs a directory.
    async fn answer(request: TestRequest) -> (u16, HeaderMap, Bytes) {
        let app = App::new().wrap(from_fn(envelope::envelope)).configure(urls);
        let app = init_service(app).await;
        let response = call_service(&app, request.to_request()).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().try_into_bytes().unwrap_or_default();
        (status, headers, body)
    }

    fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
        headers.get(name).and_then(|value| value.to_str().ok())
    }

    #[actix_web::test]
    async fn an_unknown_path_is_a_problem() {
        for path in [
            "/v2/sequences",
            "/livez/",
            "/page/",
            "/page/x.js",
            "/favicon.ico",
        ] {
            let (status, headers, body) = answer(TestRequest::get().uri(path)).await;
            assert_eq!(status, 404, "{path}");
            assert_eq!(header(&headers, "content-type"), Some(problem::MEDIA_TYPE));
            let body = String::from_utf8_lossy(&body).into_owned();
            assert!(body.contains("\"code\":\"route_not_found\""), "{body}");
        }
    }

    #[actix_web::test]
    async fn a_wrong_method_is_told_the_right_ones() {
        let (status, headers, _) = answer(TestRequest::post().uri("/livez")).await;
        assert_eq!(
            (status, header(&headers, "allow")),
            (405, Some("GET, HEAD"))
        );
    }

    #[actix_web::test]
    async fn no_reply_is_stored_and_each_has_a_request_id() {
        let named = TestRequest::get()
            .uri("/livez")
            .insert_header(("x-request-id", "a-1"));
        let (status, headers, _) = answer(named).await;
        assert_eq!(
            (status, header(&headers, "x-request-id")),
            (200, Some("a-1"))
        );
        assert_eq!(header(&headers, "cache-control"), Some("no-store"));
        let (status, headers, _) = answer(TestRequest::get().uri("/nowhere")).await;
        assert_eq!(
            (status, header(&headers, "x-request-id").map(str::len)),
            (404, Some(36))
        );
        assert_eq!(header(&headers, "cache-control"), Some("no-store"));
    }

    #[actix_web::test]
    async fn what_can_be_read_answers_head_too() {
        let (status, _, _) = answer(
            TestRequest::default()
                .method(actix_web::http::Method::HEAD)
                .uri("/livez"),
        )
        .await;
        assert_eq!(status, 200);
    }
}
