//! What is spoken over HTTP: parses, answers, and decides nothing about numbers.
//!
//! This layer owns the URLs, the media types and the statuses. It asks the directory of `sequence`
//! for numbers and definitions, and knows nothing of databases.

#![warn(clippy::indexing_slicing)]

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use actix_web::body::BoxBody;
use actix_web::dev::{Server, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::middleware::from_fn;
use actix_web::web::{self, Bytes, Data, ServiceConfig};
use actix_web::{App, Error, HttpServer, Resource};

use crate::config::Secret;
use crate::metrics::{Exposition, Metrics};
use crate::sequence::Directory;

mod admission;
mod body;
mod envelope;
mod explain;
mod health;
mod hot;
mod lifecycle;
mod near;
mod numbers;
mod openapi;
mod page;
mod parse;
mod printed;
mod problem;
mod replica;
mod reply;
mod sequences;
mod serving;
mod trace;
mod workers;

use admission::{Administration, InFlight};
use body::Bounds;
use problem::{Code, Problem};

/// How long an idle connection is kept: longer than the pools of common clients and proxies keep
/// theirs, so that it is the client who closes, and no call meets a closing connection.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// What the HTTP layer is run by.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// How long the head of a request may take to arrive.
    pub head_timeout: Duration,
    /// How long the body of a request may take to arrive.
    pub body_timeout: Duration,
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
    /// What an administrator has to show on any other listener.
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
    definition_refresh: Duration,
    in_flight: InFlight,
    openapi: Bytes,
    /// When it began to listen.
    started: SystemTime,
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
) -> io::Result<Server> {
    let in_flight = InFlight::new(settings.in_flight, metrics.http_in_flight.clone());
    let http = Data::new(Http {
        directory,
        metrics,
        exposition,
        body: Bounds {
            limit: settings.body_limit,
            timeout: settings.body_timeout,
        },
        administration: Administration::new(settings.loopback, settings.admin_token),
        definition_refresh: settings.definition_refresh,
        in_flight,
        openapi: openapi::document().map_err(io::Error::other)?,
        started: SystemTime::now(),
    });
    let mut server = HttpServer::new(move || application(http.clone()))
        .tcp_nodelay(true)
        .keep_alive(KEEP_ALIVE)
        .client_request_timeout(settings.head_timeout)
        // A caller who hangs up while waiting is dropped there and then, and gets no number.
        .h1_allow_half_closed(false)
        .shutdown_timeout(settings.shutdown_timeout.as_secs().max(1))
        .disable_signals();
    if let Some(workers) = settings.workers {
        server = server.workers(workers.max(1));
    }
    Ok(server.listen(listener)?.run())
}

/// The warm path first, then what every other call passes, then the URLs.
fn application(
    http: Data<Http>,
) -> App<
    impl ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse<BoxBody>,
        Error = Error,
        InitError = (),
    >,
> {
    let warm = hot::Warm::new(&http);
    App::new()
        .app_data(http)
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
