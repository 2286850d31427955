//! Answers calls about definitions of sequences: reads, lists, creates and changes them.

use std::sync::Arc;

use actix_web::http::header;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use odometer_core::definition::{Definition, DefinitionChange};
use odometer_core::runway::Runway;
use odometer_sequence::{
    description::{BlockState, Description, JournalBlock, LeaseState},
    error::SequenceError,
};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use super::payload::{
    self,
    parameters::{
        DryRunQuery, IfMatch, IfNoneMatch, PageQuery, PrefixQuery, SequencePath, ShownPeriodQuery,
    },
    values,
};
use super::serving::ServingStore;
use super::state::{Call, Http};
use super::text::{entity_tag, moment, rfc_3339};
use super::{body, evidence, parse, visible_names};
use crate::access::right::Right;
use crate::calls::problem::{Code, Problem};
use crate::calls::{quotas, suggestions};

/// A sequence, as one replica sees it.
#[derive(Serialize, ToSchema)]
pub(crate) struct Sequence {
    sequence: values::SequenceName,
    #[serde(serialize_with = "definition")]
    #[schema(value_type = payload::definition::Definition)]
    definition: Arc<Definition>,
    state: SequenceState,
    /// At most 100 blocks of the journal, those of all replicas: of the periods that sort last,
    /// the highest numbers first. With keys, those that sort first may be missing.
    blocks: Vec<JournalBlockReply>,
}

/// How a sequence stands on the replica that was asked.
#[derive(Serialize, ToSchema)]
pub(crate) struct SequenceState {
    /// Whether the sequence is retired: it issues nothing until it is restored. Null while the
    /// store does not answer.
    #[schema(example = false)]
    retired: Option<bool>,
    /// The period that is counted in; null if the sequence counts without periods.
    period: Option<values::Period>,
    /// The first number that is not reserved; null while the store does not answer.
    #[schema(example = "5001")]
    high_water_mark: Option<values::NumberString>,
    /// The block that numbers are issued from; null if this replica holds none.
    block: Option<HeldBlock>,
    /// The block that numbers are issued from next; null if this replica holds none.
    next_block: Option<HeldBlock>,
    /// The worker id in the ids that this replica makes, for kind `snowflake`; null if it holds
    /// none.
    #[schema(value_type = Option<values::WorkerId>)]
    worker: Option<u32>,
    /// The lease of that worker id; null if this replica holds none.
    lease: Option<LeaseReply>,
    /// Numbers a second, averaged over five minutes.
    #[schema(example = 12.5)]
    rate: f64,
    /// How long the numbers in memory last at that rate, or at the rate of the last second if that
    /// is higher; null at rate 0. For kind `snowflake`, how long the lease lasts.
    #[schema(example = 1800.0)]
    reserve_seconds: Option<f64>,
    /// When the last block came; null if none did.
    last_refill: Option<values::Timestamp>,
    /// How the size of the last block was chosen; null if none came.
    #[schema(example = "1 at first use")]
    why: Option<String>,
    /// How long the numbers last that are not reserved yet; null while the store does not answer.
    #[schema(value_type = Option<payload::definition::Runway>)]
    runway: Option<Runway>,
    /// What serves the sequence; null if its store is not in this replica's configuration.
    store: Option<ServingStore>,
}

/// A worker id that this replica holds, and the time that is reserved with it.
#[derive(Serialize, ToSchema)]
#[schema(as = SnowflakeLease)]
pub(crate) struct LeaseReply {
    #[schema(value_type = values::WorkerId)]
    worker: u32,
    /// The first time that ids may have.
    from: Option<values::Timestamp>,
    /// Ids have times before this one.
    until: Option<values::Timestamp>,
    /// When the lease was last renewed.
    renewed_at: Option<values::Timestamp>,
    /// For how long ids can be issued without the store.
    #[schema(example = 900.0)]
    seconds_left: f64,
    /// By how much the database's clock is ahead of this replica's, in milliseconds.
    #[schema(example = 3)]
    clock_skew_ms: i64,
}

/// A block in memory.
#[derive(Serialize, ToSchema)]
pub(crate) struct HeldBlock {
    /// The first number.
    first: values::NumberString,
    /// The last number.
    #[schema(example = "2000")]
    last: values::NumberString,
    /// Numbers that are not issued yet.
    #[schema(example = 400)]
    remaining: u64,
    /// Numbers that were reserved at once.
    #[schema(example = 1000)]
    size: u64,
}

/// A block in the journal.
#[derive(Serialize, ToSchema)]
#[schema(as = JournalBlock)]
pub(crate) struct JournalBlockReply {
    /// The period of the numbers; null if the sequence counts without periods.
    period: Option<values::Period>,
    /// The first number.
    first: values::NumberString,
    /// The last number.
    #[schema(example = "2000")]
    last: values::NumberString,
    /// The distance between two numbers.
    #[schema(minimum = 1, example = 1)]
    step: i64,
    /// The start of the program that reserved the block.
    #[schema(example = "host-4711-f27ed21c")]
    holder: String,
    /// When the block was reserved.
    reserved_at: values::Timestamp,
    #[schema(value_type = values::BlockFate)]
    fate: String,
    /// The first number of the block that was not issued when it got its fate.
    next_unissued: values::NumberString,
}

/// A page of definitions.
#[derive(Serialize, ToSchema)]
#[schema(as = SequencePage)]
pub(crate) struct SequencePageReply {
    /// The sequences, in the byte order of their names.
    sequences: Vec<SequenceSummaryReply>,
    /// The `after` of the next page; null on the last page.
    next: Option<values::SequenceName>,
}

/// One sequence of a page.
#[derive(Serialize, ToSchema)]
#[schema(as = SequenceSummary)]
pub(crate) struct SequenceSummaryReply {
    sequence: values::SequenceName,
    #[schema(value_type = values::SequenceStatus)]
    state: String,
    #[serde(serialize_with = "definition")]
    #[schema(value_type = payload::definition::Definition)]
    definition: Arc<Definition>,
}

/// What a definition has become. With `dry_run=true`, what it would become.
#[derive(Serialize, ToSchema)]
#[schema(as = DefinedSequence)]
pub(crate) struct DefinedReply {
    #[serde(serialize_with = "definition")]
    #[schema(value_type = payload::definition::Definition)]
    definition: Arc<Definition>,
    /// What is allowed but may surprise.
    #[schema(example = json!([]))]
    warnings: Vec<String>,
    /// The ids that this replica would give next, at most three. Present with `dry_run=true` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        value_type = Vec<payload::values::PrintedId>,
        required = false,
        max_items = 3,
        example = json!(["1001", "1002", "1003"])
    )]
    samples: Option<Vec<String>>,
    /// How long the numbers last that are not reserved yet. Present with `dry_run=true` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = payload::definition::Runway, required = false)]
    runway: Option<Runway>,
}

/// Lists definitions in the byte order of their names. Names that the caller may not look at are
/// left out.
#[utoipa::path(
    get,
    path = "/v1/sequences",
    operation_id = "listSequences",
    tag = "sequences",
    params(PrefixQuery, PageQuery),
    responses((status = 200, description = "A page of definitions.", body = SequencePageReply))
)]
pub(crate) async fn list(request: HttpRequest, http: Data<Http>) -> Result<HttpResponse, Problem> {
    let caller = http
        .access
        .identify(&evidence::of(&request), Right::Look)
        .await?;
    let asked = parse::listing(request.uri().query())?;
    let page = visible_names::page(&http.directory, &caller, &asked).await?;
    let sequences = page.sequences.into_iter();
    let sequences = sequences.map(|listed| SequenceSummaryReply {
        sequence: listed.name.into(),
        state: listed.state,
        definition: listed.definition,
    });
    Ok(HttpResponse::Ok().json(SequencePageReply {
        sequences: sequences.collect(),
        next: page.next.map(Into::into),
    }))
}

/// Shows the definition and the state of a sequence.
#[utoipa::path(
    get,
    path = "/v1/sequences/{name}",
    operation_id = "getSequence",
    tag = "sequences",
    params(SequencePath, ShownPeriodQuery),
    responses((status = 200, description = "The sequence.", body = Sequence,
        headers(("ETag" = values::EntityTag, description = "The version of the definition."))))
)]
pub(crate) async fn read(request: HttpRequest, http: Data<Http>) -> Result<HttpResponse, Problem> {
    let name = parse::name(request.uri().path())?;
    let caller = http
        .access
        .admit(&evidence::of(&request), Right::Look, &name)
        .await?;
    let period = parse::period(request.uri().query())?;
    let described = http.directory.describe(&name, period.as_ref());
    let description = suggestions::with_suggestions(&http, &caller, described).await?;
    Ok(HttpResponse::Ok()
        .insert_header((header::ETAG, entity_tag(description.version)))
        .json(Sequence::from(description)))
}

/// Creates a sequence or changes its definition.
#[utoipa::path(
    put,
    path = "/v1/sequences/{name}",
    operation_id = "defineSequence",
    tag = "sequences",
    params(SequencePath, DryRunQuery, IfNoneMatch, IfMatch),
    request_body = payload::definition::DefinitionChange,
    responses(
        (status = 200, description = "Changed, or already as you asked. With `dry_run=true`, what \
            would come of it; nothing was changed.", body = DefinedReply,
            headers(("ETag" = values::EntityTag, description = "The version of the definition."))),
        (status = 201, description = "Created.", body = DefinedReply,
            headers(("ETag" = values::EntityTag, description = "The version of the definition."))),
    )
)]
pub(crate) async fn define((request, payload, http): Call) -> Result<HttpResponse, Problem> {
    let name = parse::name(request.uri().path())?;
    let caller = http
        .access
        .admit(&evidence::of(&request), Right::Define, &name)
        .await?;
    let dry_run = parse::dry_run(request.uri().query())?;
    let condition = parse::condition(request.headers())?;
    let body = body::json(&request, payload, http.body).await?;
    let change = DefinitionChange::from_json(&body)?;
    if !caller.is_administrator() && is_for_administrators(&change) {
        let detail = "Only an administrator may give `limit`, `declared_rate`, `block.min` and \
            `store`; leave them out.";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let directory = &http.directory;
    if dry_run {
        let rehearsed = directory.rehearse(&name, change, condition).await;
        let rehearsed = rehearsed.map_err(not_defined)?;
        return Ok(HttpResponse::Ok().json(DefinedReply {
            definition: rehearsed.definition,
            warnings: rehearsed.warnings,
            samples: Some(rehearsed.samples),
            runway: Some(rehearsed.runway),
        }));
    }
    let _creation = quotas::creation_of_name(&http, &caller, &name).await?;
    let author = caller.author(&evidence::of(&request));
    let defined = directory.define(&name, change, condition, author).await;
    let defined = defined.map_err(not_defined)?;
    let mut response = if defined.created {
        HttpResponse::Created()
    } else {
        HttpResponse::Ok()
    };
    Ok(response
        .insert_header((header::ETAG, entity_tag(defined.version)))
        .json(DefinedReply {
            definition: defined.definition,
            warnings: defined.warnings,
            samples: None,
            runway: None,
        }))
}

/// Returns whether a change gives a field that decides how fast numbers may be used up, or where
/// they are counted.
fn is_for_administrators(change: &DefinitionChange) -> bool {
    let has_least_block = change.block.is_some_and(|block| block.min.is_some());
    let sets_speed = change.limit.is_some() || change.declared_rate.is_some() || has_least_block;
    sets_speed || change.store.is_some()
}

/// Turns the error of a failed change into a refusal.
///
/// A sequence that does not exist has no version. Only `If-Match` asks for a sequence that exists.
fn not_defined(error: SequenceError) -> Problem {
    if let SequenceError::NotFound { name } = error {
        let detail = format!("There is no sequence `{name}` that `If-Match` could hold for.");
        return Problem::new(Code::VersionMismatch, detail);
    }
    Problem::from(error)
}

/// Writes a definition that is shared.
fn definition<S: Serializer>(shared: &Definition, serializer: S) -> Result<S::Ok, S::Error> {
    shared.serialize(serializer)
}

impl From<Description> for Sequence {
    fn from(description: Description) -> Self {
        let state = description.state;
        Self {
            sequence: description.name.into(),
            definition: description.definition,
            state: SequenceState {
                retired: description.is_retired,
                period: state.period.shown().map(Into::into),
                high_water_mark: state.high_water_mark.map(Into::into),
                block: state.block.map(HeldBlock::from),
                next_block: state.next_block.map(HeldBlock::from),
                worker: state.lease.as_ref().map(|held| held.lease.key.worker),
                lease: state.lease.map(LeaseReply::from),
                rate: state.rate,
                reserve_seconds: state.reserve_seconds,
                last_refill: state.last_refill.and_then(rfc_3339),
                why: state.why,
                runway: state.runway,
                store: description.serving.map(ServingStore::from),
            },
            blocks: description.blocks.into_iter().map(journal_block).collect(),
        }
    }
}

impl From<LeaseState> for LeaseReply {
    fn from(held: LeaseState) -> Self {
        Self {
            worker: held.lease.key.worker,
            from: moment(held.lease.from_ms),
            until: moment(held.lease.until_ms),
            renewed_at: rfc_3339(held.renewed_at),
            seconds_left: held.seconds_left,
            clock_skew_ms: held.lease.skew_ms,
        }
    }
}

impl From<BlockState> for HeldBlock {
    fn from(block: BlockState) -> Self {
        Self {
            first: block.first.into(),
            last: block.last.into(),
            remaining: block.remaining,
            size: block.size,
        }
    }
}

fn journal_block(block: JournalBlock) -> JournalBlockReply {
    JournalBlockReply {
        period: block.period.shown().map(Into::into),
        first: block.first.into(),
        last: block.last.into(),
        step: block.step,
        holder: block.holder,
        reserved_at: rfc_3339(block.reserved_at).unwrap_or_default(),
        fate: block.fate,
        next_unissued: block.next_unissued.into(),
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use odometer_core::{name::SequenceName, period::Period, runway::EXACT};
    use odometer_sequence::description::{
        CounterStatus, DatabaseHealth, Serving, ServingRedis, StoreKind,
    };
    use serde_json::{Value, json};

    use super::*;

    fn described(state: CounterStatus) -> Value {
        let description = Description {
            name: SequenceName::parse("orders").unwrap(),
            version: 3,
            definition: Arc::new(Definition::default()),
            is_retired: Some(false),
            state,
            serving: Some(Serving {
                store: "fast".to_owned(),
                kind: StoreKind::Redis,
                databases: vec![DatabaseHealth {
                    database: "postgres://h/d".to_owned(),
                    is_up: false,
                    went_back: false,
                    last_recovery: None,
                }],
                redis: Some(ServingRedis {
                    server: "redis://r".to_owned(),
                    is_up: true,
                    window: Some(7),
                    ceiling: Some(i64::MAX - 1),
                    lasts_seconds: None,
                }),
            }),
            blocks: vec![JournalBlock {
                period: Period::none(),
                first: i64::MAX - 9,
                last: i64::MAX - 1,
                step: 2,
                holder: "h".to_owned(),
                reserved_at: UNIX_EPOCH + Duration::from_nanos(1_500_000),
                fate: "held".to_owned(),
                next_unissued: i64::MAX - 5,
            }],
        };
        serde_json::to_value(Sequence::from(description)).unwrap()
    }

    #[test]
    fn what_identifies_is_a_string_and_what_counts_a_number() {
        let block = BlockState {
            first: 1001,
            last: 2000,
            remaining: 400,
            size: 1000,
        };
        let shown = described(CounterStatus {
            high_water_mark: Some(i64::MAX - 1),
            block: Some(block),
            rate: 2.5,
            last_refill: Some(UNIX_EPOCH),
            runway: Some(Runway::of(&Definition::default(), EXACT - 6, 0.0, 0)),
            ..CounterStatus::default()
        });
        assert_eq!(shown["sequence"], "orders");
        assert_eq!(shown["definition"]["max"], "9007199254740991");
        let expected = json!({
            "retired": false,
            "period": null,
            "high_water_mark": "9223372036854775806",
            "block": {"first": "1001", "last": "2000", "remaining": 400, "size": 1000},
            "next_block": null,
            "worker": null,
            "lease": null,
            "rate": 2.5,
            "reserve_seconds": null,
            "last_refill": "1970-01-01T00:00:00.000Z",
            "why": null,
            "runway": {
                "limit": "max", "numbers_left": 7, "days_left": null,
                "limits": [
                    {"limit": "max", "numbers_left": 7, "days_left": null},
                    {"limit": "exact", "numbers_left": 7, "days_left": null},
                ],
            },
            "store": {
                "name": "fast",
                "kind": "redis",
                "databases": [{"database": "postgres://h/d", "up": false}],
                "redis": {
                    "server": "redis://r",
                    "up": true,
                    "window": 7,
                    "ceiling": "9223372036854775806",
                    "lasts_seconds": null,
                },
            },
        });
        assert_eq!(shown["state"], expected);
        let expected = json!([{
            "period": null,
            "first": "9223372036854775798",
            "last": "9223372036854775806",
            "step": 2,
            "holder": "h",
            "reserved_at": "1970-01-01T00:00:00.001Z",
            "fate": "held",
            "next_unissued": "9223372036854775802",
        }]);
        assert_eq!(shown["blocks"], expected);
    }

    #[test]
    fn a_condition_on_what_is_not_there_does_not_hold() {
        let name = SequenceName::parse("orders").unwrap();
        let problem = not_defined(SequenceError::NotFound { name });
        assert_eq!(problem.code(), Code::VersionMismatch);
        let problem = not_defined(SequenceError::Draining);
        assert_eq!(problem.code(), Code::Draining);
    }
}
