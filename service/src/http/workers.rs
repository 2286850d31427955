//! Worker ids for programs with a snowflake library of their own: leased, renewed, given back.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use odometer_core::name::SequenceName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::problem::Problem;
use super::{Http, body, parse};
use crate::sequence::workers::{LeaseRow, Shown, WorkerHeld};

/// What is asked for.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes JSON that is read by hand")]
pub(super) struct WorkerLease {
    /// Where the id is from; programs whose ids may meet name the same one.
    #[schema(example = "billing", min_length = 1, max_length = 128)]
    pool: String,
    /// Width of the pool's worker ids; the first lease of the pool says it for good.
    #[schema(example = 10, minimum = 1, maximum = 22)]
    bits: u32,
    /// How long the lease lasts, and how far ahead it reserves time.
    #[schema(example = 30_000, minimum = 1000, maximum = 86_400_000)]
    ttl_ms: u64,
    /// Who asks, in printable ASCII; the same over restarts gets its former id back.
    #[schema(example = "billing-7", min_length = 1, max_length = 128)]
    holder: String,
}

/// For how long a lease is renewed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes JSON that is read by hand")]
pub(super) struct WorkerRenewal {
    /// As long as before where it is left out.
    #[schema(
        required = false,
        example = 30_000,
        minimum = 1000,
        maximum = 86_400_000
    )]
    ttl_ms: u64,
}

/// What of a lease was not used.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes JSON that is read by hand")]
pub(super) struct WorkerEnd {
    /// Nothing was stamped at or after it (Unix ms), so that the next holder may begin there.
    #[schema(required = false, example = 1_795_000_012_345_i64)]
    unused_from_ms: i64,
}

/// A worker id that is held. Stamp only times that lie wholly in [`from_ms`, `until_ms`).
#[derive(Serialize, ToSchema)]
pub(super) struct LeasedWorker {
    #[schema(example = "billing")]
    pool: String,
    #[schema(example = 17)]
    worker: u32,
    /// To be shown as `Odometer-Lease`. Secret.
    #[schema(example = "0f9d6b1c5a3e47d28b60c4a917fe2d35")]
    token: String,
    /// Unix ms; 0 for an id that was never leased.
    #[schema(example = 1_795_000_000_000_i64)]
    from_ms: i64,
    /// Unix ms.
    #[schema(example = 1_795_000_030_000_i64)]
    until_ms: i64,
    /// After so long at the latest it should be renewed.
    #[schema(example = 10_000)]
    renew_after_ms: u64,
}

/// The worker ids of a pool that were ever leased.
#[derive(Serialize, ToSchema)]
pub(super) struct Workers {
    #[schema(example = "billing")]
    pool: String,
    /// Width of its worker ids; null where none was ever leased.
    bits: Option<u32>,
    /// In ascending order.
    workers: Vec<Worker>,
    /// The following page's `after`; null on the last page.
    next: Option<u32>,
}

/// One of them.
#[derive(Serialize, ToSchema)]
pub(super) struct Worker {
    #[schema(example = 17)]
    worker: u32,
    /// Who has it, or had it last.
    #[schema(example = "billing-7")]
    holder: String,
    /// The last holder stamps nothing before it (Unix ms).
    from_ms: i64,
    /// Nothing was stamped at or after it (Unix ms): there the next holder begins.
    until_ms: i64,
    /// When the lease ends, by the database's clock (Unix ms).
    expires_ms: i64,
    /// Whether it is held, by the database's clock.
    held: bool,
}

/// Leases a worker id that nobody else holds, with time that nobody else stamps.
#[utoipa::path(
    post,
    path = "/v1/workers",
    tag = "workers",
    params(("Idempotency-Key" = Option<String>, Header,
        description = "Refused until it is honoured; a lease whose reply was lost ends by itself.")),
    request_body = WorkerLease,
    responses((status = 201, description = "Leased.", body = LeasedWorker))
)]
pub(super) async fn lease(
    request: HttpRequest,
    payload: Payload,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    parse::no_idempotency_key(request.headers())?;
    parse::no_query(request.uri().query())?;
    let body = body::json(&request, payload, http.body).await?;
    let wanted = parse::workers::lease(&body)?;
    let held = http.directory.lease_worker(wanted).await?;
    Ok(HttpResponse::Created().json(LeasedWorker::from(held)))
}

/// Renews a lease: `from_ms` stays, `until_ms` rises and never falls.
#[utoipa::path(
    post,
    path = "/v1/workers/{pool}/{worker}/renew",
    tag = "workers",
    params(
        ("pool" = String, Path, description = "The pool.",
            min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"),
        ("worker" = u32, Path, description = "The worker id."),
        ("Odometer-Lease" = String, Header, description = "The token that the lease came with."),
    ),
    request_body(content = Option<WorkerRenewal>, content_type = "application/json",
        description = "Nothing, or for how long."),
    responses((status = 200, description = "Renewed; the token stays the same.",
        body = LeasedWorker))
)]
pub(super) async fn renew(
    request: HttpRequest,
    payload: Payload,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    let (pool, worker) = path(&request)?;
    let token = parse::workers::token(request.headers())?;
    parse::no_query(request.uri().query())?;
    let body = body::json_or_nothing(&request, payload, http.body).await?;
    let ttl = parse::workers::renewal(&body)?;
    let shown = Shown {
        pool,
        worker,
        token,
    };
    let held = http.directory.renew_worker(&shown, ttl).await?;
    Ok(HttpResponse::Ok().json(LeasedWorker::from(held)))
}

/// Gives a worker id back. Without `unused_from_ms` it rests until `until_ms`.
#[utoipa::path(
    delete,
    path = "/v1/workers/{pool}/{worker}",
    tag = "workers",
    params(
        ("pool" = String, Path, description = "The pool.",
            min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"),
        ("worker" = u32, Path, description = "The worker id."),
        ("Odometer-Lease" = String, Header, description = "The token that the lease came with."),
    ),
    request_body(content = Option<WorkerEnd>, content_type = "application/json",
        description = "Nothing, or from when on no time was used."),
    responses((status = 204, description = "Given back, now or before."))
)]
pub(super) async fn give_back(
    request: HttpRequest,
    payload: Payload,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    let (pool, worker) = path(&request)?;
    let token = parse::workers::token(request.headers())?;
    parse::no_query(request.uri().query())?;
    let body = body::json_or_nothing(&request, payload, http.body).await?;
    let unused_from_ms = parse::workers::end(&body)?;
    let shown = Shown {
        pool,
        worker,
        token,
    };
    let directory = &http.directory;
    directory.give_back_worker(&shown, unused_from_ms).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Lists the worker ids of a pool that were ever leased, without tokens.
#[utoipa::path(
    get,
    path = "/v1/workers/{pool}",
    tag = "workers",
    params(
        ("pool" = String, Path, description = "The pool.",
            min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"),
        ("after" = Option<u32>, Query, description = "Only worker ids above this one."),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 10_000,
            description = "How many at most; 10000 where it is left out."),
    ),
    responses((status = 200, description = "The ids, the lowest first.", body = Workers))
)]
pub(super) async fn list(request: HttpRequest, http: Data<Http>) -> Result<HttpResponse, Problem> {
    let pool = parse::name(request.uri().path())?;
    let asked = parse::workers::listed(request.uri().query())?;
    let directory = &http.directory;
    let mut rows = directory
        .workers(&pool, asked.after, asked.limit.saturating_add(1))
        .await?;
    let shown = usize::try_from(asked.limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > shown;
    rows.truncate(shown);
    Ok(HttpResponse::Ok().json(Workers {
        pool: pool.to_string(),
        bits: rows.first().map(|row| row.bits),
        next: rows.last().map(|row| row.worker).filter(|_| has_more),
        workers: rows.into_iter().map(Worker::from).collect(),
    }))
}

fn path(request: &HttpRequest) -> Result<(SequenceName, u32), Problem> {
    let path = request.uri().path();
    Ok((parse::name(path)?, parse::workers::worker(path)?))
}

impl From<WorkerHeld> for LeasedWorker {
    fn from(held: WorkerHeld) -> Self {
        let renew_after = held.ttl / 3;
        Self {
            pool: held.pool.to_string(),
            worker: held.worker,
            token: held.token,
            from_ms: held.from_ms,
            until_ms: held.until_ms,
            renew_after_ms: u64::try_from(renew_after.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl From<LeaseRow> for Worker {
    fn from(row: LeaseRow) -> Self {
        Self {
            worker: row.worker,
            holder: row.holder,
            from_ms: row.from_ms,
            until_ms: row.until_ms,
            expires_ms: row.expires_ms,
            held: row.is_held,
        }
    }
}
