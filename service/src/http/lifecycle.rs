//! The life of a sequence: advanced, retired, restored.

use std::time::SystemTime;

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::Problem;
use super::sequences::{entity_tag, rfc_3339};
use super::{Http, body, near, openapi, parse};

/// What a floor has become.
#[derive(Serialize, ToSchema)]
pub(super) struct Advanced {
    /// The name of the sequence.
    #[schema(example = "orders")]
    sequence: String,
    /// The number of the sequence below which nothing is issued any more.
    #[schema(example = "5001")]
    floor: String,
    /// Whether the floor has risen; it never falls.
    advanced: bool,
    /// The first number that nobody has reserved.
    #[schema(example = "5001")]
    high_water_mark: String,
    /// By then it holds at every replica that reaches the database (RFC 3339); here it does now.
    #[schema(example = "2026-11-20T13:22:15.519Z")]
    everywhere_by: String,
}

/// A sequence that goes on.
#[derive(Serialize, ToSchema)]
pub(super) struct Restored {
    /// The name of the sequence.
    #[schema(example = "orders")]
    sequence: String,
    /// False where it was not retired.
    restored: bool,
    /// The first number that nobody has reserved.
    #[schema(example = "5001")]
    high_water_mark: String,
    /// By then it holds at every replica that reaches the database (RFC 3339); here it does now.
    #[schema(example = "2026-11-20T13:22:15.519Z")]
    everywhere_by: String,
}

/// Lets nothing below a floor be issued any more.
#[utoipa::path(
    post,
    path = "/v1/sequences/{name}/advance",
    tag = "sequences",
    params(
        ("name" = String, Path, description = "The sequence.",
            min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"),
        ("If-Match" = Option<String>, Header, description = "Changes this version only."),
        ("Idempotency-Key" = Option<String>, Header,
            description = "Refused until it is honoured; advancing again is safe."),
    ),
    request_body = openapi::Floor,
    responses((status = 200, description = "Advanced, or as high already.", body = Advanced,
        headers(("ETag" = String, description = "The version of the definition.")))),
    security((), ("administrator" = []))
)]
pub(super) async fn advance(
    request: HttpRequest,
    payload: Payload,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    let author = http.administration.admit(&request)?;
    let name = parse::name(request.uri().path())?;
    parse::no_idempotency_key(request.headers())?;
    parse::no_query(request.uri().query())?;
    let condition = parse::matching(request.headers())?;
    let body = body::json(&request, payload, http.body).await?;
    let asked = parse::advance(&body)?;
    let directory = &http.directory;
    let stands = directory
        .advance(
            &name,
            asked.period.as_ref(),
            (asked.floor, asked.confirm),
            condition,
            author,
        )
        .await;
    let stands = near::or_refused(&http, stands).await?;
    Ok(HttpResponse::Ok()
        .insert_header((header::ETAG, entity_tag(stands.version)))
        .json(Advanced {
            sequence: name.to_string(),
            floor: stands.floor.to_string(),
            advanced: stands.changed,
            high_water_mark: stands.high_water_mark.to_string(),
            everywhere_by: everywhere_by(&http),
        }))
}

/// Retires a sequence: nothing is issued any more, until it is restored.
#[utoipa::path(
    delete,
    path = "/v1/sequences/{name}",
    tag = "sequences",
    params(
        ("name" = String, Path, description = "The sequence.",
            min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"),
        ("If-Match" = Option<String>, Header, description = "Changes this version only."),
    ),
    responses((status = 204, description = "Retired, now or before. Here it holds at once, at the \
        other replicas within `definition_refresh`.")),
    security((), ("administrator" = []))
)]
pub(super) async fn retire(
    request: HttpRequest,
    payload: Payload,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    let author = http.administration.admit(&request)?;
    let name = parse::name(request.uri().path())?;
    parse::no_query(request.uri().query())?;
    let condition = parse::matching(request.headers())?;
    body::nothing(&request, payload, http.body).await?;
    let stands = http.directory.retire(&name, condition, author).await;
    near::or_refused(&http, stands).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Lets a retired sequence go on, above everything that was ever reserved of it.
#[utoipa::path(
    post,
    path = "/v1/sequences/{name}/restore",
    tag = "sequences",
    params(
        ("name" = String, Path, description = "The sequence.",
            min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"),
        ("If-Match" = Option<String>, Header, description = "Changes this version only."),
        ("Idempotency-Key" = Option<String>, Header,
            description = "Refused until it is honoured; restoring again is safe."),
    ),
    request_body(content = inline(openapi::Nothing), content_type = "application/json",
        description = "Nothing, or an object without fields."),
    responses((status = 200, description = "Restored, or not retired at all.", body = Restored,
        headers(("ETag" = String, description = "The version of the definition.")))),
    security((), ("administrator" = []))
)]
pub(super) async fn restore(
    request: HttpRequest,
    payload: Payload,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    let author = http.administration.admit(&request)?;
    let name = parse::name(request.uri().path())?;
    parse::no_idempotency_key(request.headers())?;
    parse::no_query(request.uri().query())?;
    let condition = parse::matching(request.headers())?;
    body::nothing(&request, payload, http.body).await?;
    let stands = http.directory.restore(&name, condition, author).await;
    let stands = near::or_refused(&http, stands).await?;
    Ok(HttpResponse::Ok()
        .insert_header((header::ETAG, entity_tag(stands.version)))
        .json(Restored {
            sequence: name.to_string(),
            restored: stands.changed,
            high_water_mark: stands.high_water_mark.to_string(),
            everywhere_by: everywhere_by(&http),
        }))
}

/// Removes a period of a sequence that counts by callers' keys: nothing is issued of it any more.
#[utoipa::path(
    delete,
    path = "/v1/sequences/{name}/periods/{key}",
    tag = "sequences",
    params(
        ("name" = String, Path, description = "The sequence.",
            min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"),
        ("key" = String, Path, description = "The caller's key."),
        ("If-Match" = Option<String>, Header, description = "Changes this version only."),
    ),
    responses((status = 204, description = "Removed, now or before.",
        headers(("ETag" = String, description = "The version of the definition.")))),
    security((), ("administrator" = []))
)]
pub(super) async fn remove_period(
    request: HttpRequest,
    payload: Payload,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    let author = http.administration.admit(&request)?;
    let name = parse::name(request.uri().path())?;
    let key = parse::key(request.uri().path())?;
    parse::no_query(request.uri().query())?;
    let condition = parse::matching(request.headers())?;
    body::nothing(&request, payload, http.body).await?;
    let directory = &http.directory;
    let stands = directory.remove_period(&name, key, condition, author).await;
    let stands = near::or_refused(&http, stands).await?;
    Ok(HttpResponse::NoContent()
        .insert_header((header::ETAG, entity_tag(stands.version)))
        .finish())
}

/// When what is so in the store by now holds everywhere.
fn everywhere_by(http: &Http) -> String {
    let by = SystemTime::now().checked_add(http.definition_refresh);
    by.and_then(rfc_3339).unwrap_or_default()
}
