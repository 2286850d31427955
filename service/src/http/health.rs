//! Answers what operators ask: whether the process runs, whether it is ready, its metrics, and what
//! can be called.

use std::time::Instant;

use actix_web::body::MessageBody;
use actix_web::http::header;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use super::evidence;
use super::state::Http;
use crate::access::right::Right;
use crate::calls::problem::{Code, Problem};
use crate::calls::readiness::why_not_ready;

/// The media type of a scrape: Prometheus text format 0.0.4.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

const TEXT: &str = "text/plain; charset=utf-8";

/// Says that the process runs.
#[utoipa::path(
    get,
    path = "/livez",
    operation_id = "checkLiveness",
    tag = "operation",
    responses((status = 200, description = "The process runs, and so does each of its threads that \
        serve callers.", body = String, content_type = "text/plain", example = "alive\n"))
)]
pub(crate) async fn livez(http: Data<Http>) -> Result<HttpResponse, Problem> {
    if http.worker_ticks.is_any_late(Instant::now()) {
        let detail = "A thread that serves callers has stood still for 30 s; restart this replica.";
        return Err(Problem::new(Code::Overloaded, detail));
    }
    Ok(reply(TEXT, "alive\n"))
}

/// Says whether calls should be sent to this replica.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "checkReadiness",
    tag = "operation",
    responses((status = 200, description = "Numbers can be issued, also while the database is \
        away, as long as some reserve lasts.", body = String, content_type = "text/plain",
        example = "ready\n"))
)]
pub(crate) async fn readyz(http: Data<Http>) -> Result<HttpResponse, Problem> {
    match why_not_ready(http.directory.readiness()) {
        None => Ok(reply(TEXT, "ready\n")),
        Some((code, sentence)) => Err(Problem::new(code, sentence)),
    }
}

/// Returns the metrics, as Prometheus reads them.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "getMetrics",
    tag = "operation",
    responses((status = 200, description = "Prometheus text format 0.0.4.", body = String,
        content_type = "text/plain"))
)]
pub(crate) async fn metrics(
    request: HttpRequest,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    // Who reaches the operations listener may scrape it.
    if http.role.serves_callers() {
        http.access
            .admit_to_all(&evidence::of(&request), Right::Look)
            .await?;
    }
    http.directory.publish_metrics();
    Ok(reply(PROMETHEUS, http.metrics.render()))
}

/// Returns this description of the API, OpenAPI 3.1.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "getOpenApi",
    tag = "operation",
    responses((status = 200, description = "OpenAPI 3.1.", body = Object))
)]
pub(crate) async fn openapi(http: Data<Http>) -> HttpResponse {
    reply("application/json", http.openapi.clone())
}

fn reply(media_type: &'static str, body: impl MessageBody + 'static) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, media_type))
        .body(body)
}
