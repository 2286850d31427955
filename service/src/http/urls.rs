//! Maps each path to its routes.

use actix_web::Resource;
use actix_web::middleware::from_fn;
use actix_web::web::{self, ServiceConfig};

use super::problem::{Code, Problem};
use super::{
    admission, explain, health, lifecycle, numbers, page, printed, replica, sequences, workers,
};

/// Gives each path its routes.
pub(crate) fn urls(config: &mut ServiceConfig) {
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

/// Returns a path that refuses every method for which it gets no route.
fn resource(path: &str, allow: &'static str) -> Resource {
    web::resource(path).default_service(web::to(move || async move {
        Err::<String, _>(Problem::method_not_allowed(allow))
    }))
}

/// Returns a path that callers can only read, by `GET` or `HEAD`.
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
    use actix_web::App;
    use actix_web::body::MessageBody;
    use actix_web::http::header::HeaderMap;
    use actix_web::test::{TestRequest, call_service, init_service};
    use actix_web::web::Bytes;

    use super::super::{envelope, problem};
    use super::*;

    /// Returns the status, the headers and the body of a call that needs no directory.
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
