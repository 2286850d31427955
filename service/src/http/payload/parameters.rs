//! Describes what calls take in their path, their query and their headers.

#![expect(dead_code, reason = "describes what is read by hand")]

use odometer_core::period::Period;
use utoipa::IntoParams;

use super::values::{self, AnyVersion, EntityTag, LeaseToken, PrintedId, SequenceName, WorkerId};

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct SequencePath {
    /// The sequence.
    name: SequenceName,
}

/// Of calls that create a sequence at its first use.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct AnySequencePath {
    /// The sequence. A name that was never seen is created, if the configuration allows it.
    name: SequenceName,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct PeriodPath {
    /// The caller's key.
    key: values::Period,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct PoolPath {
    /// The pool.
    pool: SequenceName,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct WorkerPath {
    /// The worker id that was leased.
    worker: WorkerId,
}

/// Which numbers a caller takes.
#[derive(Clone, PartialEq, Eq, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct NextQuery {
    /// How many numbers. If you give it, the reply is a batch, also for `count=1`. Without it, one
    /// number.
    #[param(minimum = 1, maximum = 10_000, example = 3)]
    pub(crate) count: Option<u64>,
    /// The period to count in, for sequences that have periods. Sequences with `period` `keyed` need
    /// it. Without it, the current period.
    #[param(value_type = Option<values::Period>)]
    pub(crate) period: Option<Period>,
    /// `true` gives one unbroken range. Without it, `false`.
    #[param(value_type = Option<bool>)]
    pub(crate) contiguous: bool,
    /// `false` leaves the printed ids out of a batch. Without it, `true`.
    #[param(value_type = Option<bool>)]
    pub(crate) ids: bool,
    /// `true` says that you mean a call for a larger share of what is left than your role takes at
    /// once. It needs the right `define`. If the service has no roles, it is ignored. Without it,
    /// `false`.
    #[param(value_type = Option<bool>)]
    pub(crate) confirm: bool,
}

impl NextQuery {
    /// What a caller takes who gives no query.
    pub(crate) const ONE_NUMBER: Self = Self {
        count: None,
        period: None,
        contiguous: false,
        ids: true,
        confirm: false,
    };
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct BlocksQuery {
    /// How many numbers: at most 1/4096 of what is left.
    #[param(minimum = 1, maximum = 9_007_199_254_740_991_u64, example = 1000)]
    pub(crate) size: u64,
    /// The period to count in, for sequences that have periods. Sequences with `period` `keyed` need
    /// it. Without it, the current period.
    #[param(value_type = Option<values::Period>)]
    pub(crate) period: Option<Period>,
    /// `true` says that you mean a call for a larger share of what is left than your role takes at
    /// once. It needs the right `define`. If the service has no roles, it is ignored. Without it,
    /// `false`.
    #[param(value_type = Option<bool>)]
    pub(crate) confirm: bool,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ShownPeriodQuery {
    /// The period to show. Without it, the current one.
    period: Option<values::Period>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExplainQuery {
    /// The printed id, as a reply has it.
    #[param(value_type = PrintedId)]
    pub(crate) id: String,
    /// The period of the number, for sequences that have periods.
    #[param(value_type = Option<values::Period>)]
    pub(crate) period: Option<Period>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PrefixQuery {
    /// Only names that begin like this.
    #[param(pattern = "^([A-Za-z0-9][A-Za-z0-9._:-]{0,127})?$", example = "ord")]
    prefix: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PartQuery {
    /// Only names that contain this.
    #[param(
        pattern = "^([A-Za-z0-9._:-]{0,127}|[A-Za-z0-9][A-Za-z0-9._:-]{127})$",
        example = "ord"
    )]
    contains: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SortQuery {
    /// The order of the page. Without it, `name`. By time, the page has the shortest times of all
    /// names that were looked at, at most 10,000 after `after`.
    sort: Option<values::LiveSort>,
}

/// Which page of names a caller asks for.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Only names that sort after this one: the `next` of the previous page.
    #[param(
        pattern = "^([A-Za-z0-9][A-Za-z0-9._:-]{0,127})?$",
        example = "billing"
    )]
    after: Option<String>,
    /// How many at most. Without it, 100.
    #[param(minimum = 1, maximum = 1000, example = 100)]
    limit: Option<u64>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WorkersQuery {
    /// Only worker ids above this one: the `next` of the previous page.
    #[param(value_type = Option<u64>, minimum = 0, maximum = 4_294_967_295_u64, example = 17)]
    pub(crate) after: Option<u32>,
    /// How many at most. Without it, 10,000.
    #[param(value_type = Option<u64>, minimum = 1, maximum = 10_000, example = 100)]
    pub(crate) limit: u64,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DryRunQuery {
    /// `true` checks everything and changes nothing. The status is then 200. Without it, `false`.
    dry_run: Option<bool>,
}

/// Without `Option`, for which utoipa would describe a header that can be null.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(crate) struct IfMatch {
    /// Changes this version only. If the sequence has another version, the call is refused with
    /// 412.
    #[param(rename = "If-Match", required = false)]
    if_match: EntityTag,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(crate) struct IfNoneMatch {
    /// `*` creates only. If the sequence exists, the call is refused with 412. Do not send
    /// `If-Match` with it.
    #[param(rename = "If-None-Match", required = false)]
    if_none_match: AnyVersion,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(crate) struct LeaseHeader {
    /// The `token` of the lease.
    #[param(rename = "Odometer-Lease")]
    odometer_lease: LeaseToken,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(crate) struct ShownLeaseHeader {
    /// The `token` of the lease. You need it unless you give `force=true`.
    #[param(rename = "Odometer-Lease", required = false)]
    odometer_lease: LeaseToken,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ForceQuery {
    /// `true` voids the token of the lease, and needs none. Only an administrator may do so.
    /// Without it, `false`.
    force: Option<bool>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(crate) struct Traceparent {
    /// The trace that the call is part of (W3C Trace Context). A value that cannot be read is
    /// ignored.
    #[param(
        required = false,
        example = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    )]
    traceparent: String,
}
