//! Holds the metrics of the calls of one route.

use std::sync::OnceLock;

use ::metrics::{Counter, Histogram};

/// Lists the statuses that the contract knows, the commonest first.
pub(crate) const STATUSES: [u16; 17] = [
    200, 201, 204, 304, 400, 401, 403, 404, 405, 409, 410, 412, 413, 415, 431, 500, 503,
];

/// Lists the text of each of `STATUSES`, and at the end the text for any other status.
pub(crate) const STATUS_LABELS: [&str; STATUSES.len() + 1] = [
    "200", "201", "204", "304", "400", "401", "403", "404", "405", "409", "410", "412", "413",
    "415", "431", "500", "503", "other",
];

/// The routes by which requests are counted. Everything unknown is `Other`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// `POST /v1/sequences/{name}/next`.
    Next,
    /// `POST /v1/sequences/{name}/blocks`.
    Blocks,
    /// `GET`, `PUT` and `DELETE /v1/sequences/{name}`.
    Sequence,
    /// `POST /v1/sequences/{name}/advance`.
    Advance,
    /// `POST /v1/sequences/{name}/restore`.
    Restore,
    /// `DELETE /v1/sequences/{name}/periods/{key}`.
    Period,
    /// `POST /v1/sequences/{name}/parse`.
    Parse,
    /// `GET /v1/sequences/{name}/explain`.
    Explain,
    /// `GET /v1/sequences`.
    Sequences,
    /// `GET /v1/replica` and what is below it.
    Replica,
    /// `POST /v1/workers`.
    Lease,
    /// `GET /v1/workers/{pool}`.
    Workers,
    /// `DELETE /v1/workers/{pool}/{worker}`.
    Worker,
    /// `POST /v1/workers/{pool}/{worker}/renew`.
    Renew,
    /// `GET /livez`.
    Livez,
    /// `GET /readyz`.
    Readyz,
    /// `GET /metrics`.
    Metrics,
    /// `GET /openapi.json`.
    OpenApi,
    /// `GET /`, and the files of the page.
    Page,
    /// Any other path.
    Other,
}

impl Route {
    pub(crate) const ALL: [Self; 20] = [
        Self::Next,
        Self::Blocks,
        Self::Sequence,
        Self::Advance,
        Self::Restore,
        Self::Period,
        Self::Parse,
        Self::Explain,
        Self::Sequences,
        Self::Replica,
        Self::Lease,
        Self::Workers,
        Self::Worker,
        Self::Renew,
        Self::Livez,
        Self::Readyz,
        Self::Metrics,
        Self::OpenApi,
        Self::Page,
        Self::Other,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Blocks => "blocks",
            Self::Sequence => "sequence",
            Self::Advance => "advance",
            Self::Restore => "restore",
            Self::Period => "period",
            Self::Parse => "parse",
            Self::Explain => "explain",
            Self::Sequences => "sequences",
            Self::Replica => "replica",
            Self::Lease => "lease",
            Self::Workers => "workers",
            Self::Worker => "worker",
            Self::Renew => "renew",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
            Self::Metrics => "metrics",
            Self::OpenApi => "openapi",
            Self::Page => "page",
            Self::Other => "other",
        }
    }
}

pub(crate) struct RouteMetrics {
    pub(crate) requests: [OnceLock<Counter>; STATUS_LABELS.len()],
    pub(crate) duration: Histogram,
}
