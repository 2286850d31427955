//! Maps each path to its routes.

use actix_web::middleware::from_fn;
use actix_web::web::{self, ServiceConfig};
use actix_web::{FromRequest, Handler, Resource, Responder};

use super::listener_role::ListenerRole;
use super::{
    admission, documents, explain, health, lifecycle, me, numbers, page, printed, replica,
    sequences, workers,
};
use crate::calls::problem::{Code, Problem};

/// Returns what gives each path its routes on a listener.
pub(crate) fn urls(role: ListenerRole) -> impl FnOnce(&mut ServiceConfig) {
    move |config| {
        let below_v1 = web::scope("/v1")
            .wrap(from_fn(admission::admit))
            .configure(move |config| changes(config, role))
            .configure(move |config| readings(config, role))
            .default_service(web::to(route_not_found));
        config
            .service(below_v1)
            .service(get("/livez", health::livez))
            .service(get("/readyz", health::readyz))
            .service(get("/openapi.json", health::openapi))
            .service(get("/docs/", documents::start))
            .service(get("/docs/errors", documents::errors))
            .service(get("/docs/errors/{code}", documents::error));
        let of_operators = |path| Place::new(path, role, role.serves_operators());
        config
            .service(of_operators("/metrics").get(health::metrics))
            .service(of_operators("/").get(page::page))
            .service(of_operators("/page/{file}").get(page::page));
        config.default_service(web::to(route_not_found));
    }
}

/// Gives their routes to the paths below `/v1` that issue or change something.
fn changes(config: &mut ServiceConfig, role: ListenerRole) {
    let of_callers = |path| Place::new(path, role, role.serves_callers());
    config
        .service(of_callers("/sequences/{name}/next").post(numbers::next))
        .service(of_callers("/sequences/{name}/blocks").post(numbers::blocks))
        .service(of_callers("/sequences/{name}/advance").post(lifecycle::advance))
        .service(of_callers("/sequences/{name}/restore").post(lifecycle::restore))
        .service(of_callers("/sequences/{name}/periods/{key}").delete(lifecycle::remove_period))
        .service(of_callers("/workers").post(workers::lease))
        .service(of_callers("/workers/{pool}/{worker}").delete(workers::give_back))
        .service(of_callers("/workers/{pool}/{worker}/renew").post(workers::renew));
}

/// Gives their routes to the paths below `/v1` that show something.
fn readings(config: &mut ServiceConfig, role: ListenerRole) {
    config
        .service(resource("/sequences/{name}/parse", "POST").route(web::post().to(printed::parse)))
        .service(get("/sequences/{name}/explain", explain::explain))
        .service(get("/sequences", sequences::list))
        .service(sequence(role))
        .service(get("/me", me::me))
        .service(get("/replica", replica::replica))
        .service(get("/replica/sequences", replica::list))
        .service(get("/replica/sequences/{name}", replica::watch))
        .service(pool(role));
}

/// Returns the path of one sequence, which shows the sequence, changes it and retires it.
fn sequence(role: ListenerRole) -> Resource {
    let place = Place::new("/sequences/{name}", role, role.serves_callers());
    let changed = resource(place.path, "GET, HEAD, PUT, DELETE")
        .route(web::put().to(sequences::define))
        .route(web::delete().to(lifecycle::retire));
    place
        .served_as(changed)
        .route(web::get().to(sequences::read))
        .route(web::head().to(sequences::read))
}

/// Returns the path of one pool, which lists its worker ids and releases them.
fn pool(role: ListenerRole) -> Resource {
    let place = Place::new("/workers/{pool}", role, role.serves_callers());
    let changed =
        resource(place.path, "GET, HEAD, DELETE").route(web::delete().to(workers::release_pool));
    place
        .served_as(changed)
        .route(web::get().to(workers::list))
        .route(web::head().to(workers::list))
}

/// A path that some listeners serve, and others not.
struct Place {
    path: &'static str,
    /// What this listener serves.
    role: ListenerRole,
    is_served: bool,
}

impl Place {
    fn new(path: &'static str, role: ListenerRole, is_served: bool) -> Self {
        Self {
            path,
            role,
            is_served,
        }
    }

    /// Returns the path, to be read by `GET` or `HEAD` if this listener serves it.
    fn get<A: FromRequest + 'static>(self, answer: impl Answer<A>) -> Resource {
        self.served_as(get(self.path, answer))
    }

    /// Returns the path, which takes `POST` only if this listener serves it.
    fn post<A: FromRequest + 'static>(self, answer: impl Answer<A>) -> Resource {
        self.served_as(resource(self.path, "POST").route(web::post().to(answer)))
    }

    /// Returns the path, which takes `DELETE` only if this listener serves it.
    fn delete<A: FromRequest + 'static>(self, answer: impl Answer<A>) -> Resource {
        self.served_as(resource(self.path, "DELETE").route(web::delete().to(answer)))
    }

    fn served_as(&self, served: Resource) -> Resource {
        if self.is_served {
            served
        } else {
            elsewhere(self.path, self.role)
        }
    }
}

/// Returns a path that says, for every method for which it gets no route, where it is served.
fn elsewhere(path: &str, role: ListenerRole) -> Resource {
    web::resource(path).default_service(web::to(move || async move {
        Err::<String, _>(Problem::new(Code::RouteNotFound, role.elsewhere()))
    }))
}

/// Returns a path that refuses every method for which it gets no route.
fn resource(path: &str, allow: &'static str) -> Resource {
    web::resource(path).default_service(web::to(move || async move {
        Err::<String, _>(Problem::method_not_allowed(allow))
    }))
}

/// Returns a path that callers can only read, by `GET` or `HEAD`.
fn get<A: FromRequest + 'static>(path: &str, answer: impl Answer<A>) -> Resource {
    resource(path, "GET, HEAD")
        .route(web::get().to(answer.clone()))
        .route(web::head().to(answer))
}

/// A function that answers a call. `A` is the tuple of what it is given.
trait Answer<A>: Handler<A, Output: Responder + 'static> {}

impl<A, F: Handler<A, Output: Responder + 'static>> Answer<A> for F {}

async fn route_not_found() -> Result<String, Problem> {
    Err(Problem::new(
        Code::RouteNotFound,
        "There is nothing at this path; `/openapi.json` lists what there is. A name holds no `/`.",
    ))
}

#[cfg(test)]
mod tests {
    use actix_web::App;
    use actix_web::ResponseError as _;
    use actix_web::body::MessageBody;
    use actix_web::http::Method;
    use actix_web::http::header::HeaderMap;
    use actix_web::test::{TestRequest, call_service, init_service};
    use actix_web::web::Bytes;
    use serde_json::Value;

    use super::super::{envelope, problem};
    use super::*;

    /// Returns the status, the headers and the body of a call that needs no directory.
    async fn answer(request: TestRequest) -> (u16, HeaderMap, Bytes) {
        answer_of(ListenerRole::Everything, request).await
    }

    async fn answer_of(role: ListenerRole, request: TestRequest) -> (u16, HeaderMap, Bytes) {
        let app = App::new().wrap(from_fn(envelope::envelope));
        let app = app.configure(urls(role));
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
            "/docs/other",
            "/docs/errors/",
            "/docs/errors/none",
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
    async fn the_type_of_each_problem_leads_to_a_page() {
        for code in Code::ALL {
            let response = Problem::new(*code, "").error_response();
            let body = response.into_body().try_into_bytes().unwrap_or_default();
            let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
            let path = problem
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let (status, headers, page) = answer(TestRequest::get().uri(path)).await;
            assert_eq!(status, 200, "{path}");
            let media_type = header(&headers, "content-type");
            assert_eq!(media_type, Some("text/html; charset=utf-8"));
            let policy = header(&headers, "content-security-policy").unwrap_or_default();
            assert!(policy.starts_with("default-src 'none'"), "{policy}");
            let page = String::from_utf8_lossy(&page).into_owned();
            assert!(page.contains(&format!("<h1>{}</h1>", code.as_str())));
        }
        for path in ["/docs/", "/docs/errors"] {
            let (status, _, _) = answer(TestRequest::get().uri(path)).await;
            assert_eq!(status, 200, "{path}");
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
            .uri("/nowhere")
            .insert_header(("x-request-id", "a-1"));
        let (status, headers, _) = answer(named).await;
        assert_eq!(
            (status, header(&headers, "x-request-id")),
            (404, Some("a-1"))
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
    async fn a_listener_for_callers_says_where_metrics_and_page_are() {
        for path in ["/metrics", "/", "/page/main.js"] {
            let request = TestRequest::get().uri(path);
            let (status, _, body) = answer_of(ListenerRole::Callers, request).await;
            assert_eq!(status, 404, "{path}");
            let body = String::from_utf8_lossy(&body).into_owned();
            assert!(body.contains("\"code\":\"route_not_found\""), "{body}");
            assert!(
                body.contains("the address of `operations.listen`"),
                "{body}"
            );
        }
    }

    #[actix_web::test]
    async fn what_can_be_read_answers_head_too() {
        let (status, _, _) =
            answer(TestRequest::default().method(Method::HEAD).uri("/docs/")).await;
        assert_eq!(status, 200);
    }
}
