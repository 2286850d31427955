//! Says who a caller is to the service, and what this caller may do.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use utoipa::ToSchema;

use super::caller::Caller;
use super::parse;
use super::payload::values;
use super::problem::Problem;
use super::state::Http;
use crate::access::quota::NumbersQuota;
use crate::access::right::Right;
use crate::access::role::Role;

/// Who you are to the service, and what you may do.
#[derive(Serialize, ToSchema)]
#[schema(as = Caller)]
pub(crate) struct CallerReply {
    /// Your name in the file of callers. `anonymous` without a token, `administrator` with the
    /// administrator's token. Without roles it is `loopback` or `everybody`.
    #[schema(value_type = values::SequenceName)]
    caller: String,
    /// Your role; null for an administrator, and without roles.
    #[schema(value_type = Option<values::SequenceName>)]
    role: Option<String>,
    /// The globs of the names on which you have each right.
    rights: RightsReply,
    /// How many numbers a second all callers of your role may take from this replica together; null
    /// if there is no bound.
    #[schema(minimum = 1, example = 5000)]
    numbers_per_second: Option<u64>,
}

/// Globs over names, by right. A right without globs is on no name.
#[derive(Serialize, ToSchema)]
#[schema(as = Rights)]
pub(crate) struct RightsReply {
    /// Take numbers.
    take: Vec<values::Glob>,
    /// Reserve blocks.
    block: Vec<values::Glob>,
    /// Use a name or a key for the first time.
    create: Vec<values::Glob>,
    /// Define, advance, retire and restore sequences, remove keys, and release worker ids.
    define: Vec<values::Glob>,
    /// Lease worker ids.
    lease: Vec<values::Glob>,
    /// Read.
    look: Vec<values::Glob>,
}

/// Says who you are to the service, and what you may do.
#[utoipa::path(
    get,
    path = "/v1/me",
    operation_id = "getCaller",
    tag = "operation",
    responses((status = 200, description = "You.", body = CallerReply))
)]
pub(crate) async fn me(request: HttpRequest, http: Data<Http>) -> Result<HttpResponse, Problem> {
    parse::no_query(request.uri().query())?;
    let caller = http.access.identify_itself(&request).await?;
    let globs = |right| globs_of(&caller, right);
    let role = caller.role().filter(|_| http.access.has_roles());
    Ok(HttpResponse::Ok().json(CallerReply {
        caller: caller.name().to_owned(),
        role: role.map(|role| role.name().to_string()),
        numbers_per_second: role.and_then(Role::numbers).map(NumbersQuota::rate),
        rights: RightsReply {
            take: globs(Right::Take),
            block: globs(Right::Block),
            create: globs(Right::Create),
            define: globs(Right::Define),
            lease: globs(Right::Lease),
            look: globs(Right::Look),
        },
    }))
}

fn globs_of(caller: &Caller, right: Right) -> Vec<values::Glob> {
    match caller.role() {
        None => vec!["*".into()],
        Some(role) => role.globs(right).iter().map(values::Glob::from).collect(),
    }
}
