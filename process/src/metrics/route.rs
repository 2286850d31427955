//! Holds the metrics of the calls of one route.

use std::sync::OnceLock;

use ::metrics::{Counter, Histogram, Label, Recorder};

use super::declare::make;
use crate::words::words;

/// Lists the statuses that the contract knows, the commonest first.
const STATUSES: [u16; 18] = [
    200, 201, 204, 304, 400, 401, 403, 404, 405, 409, 410, 412, 413, 415, 429, 431, 500, 503,
];

words! {
    /// The routes by which requests are counted. Everything unknown is `Other`.
    pub enum Route {
        /// `POST /v1/sequences/{name}/next`.
        Next = "next",
        /// `POST /v1/sequences/{name}/blocks`.
        Blocks = "blocks",
        /// `GET`, `PUT` and `DELETE /v1/sequences/{name}`.
        Sequence = "sequence",
        /// `POST /v1/sequences/{name}/advance`.
        Advance = "advance",
        /// `POST /v1/sequences/{name}/restore`.
        Restore = "restore",
        /// `DELETE /v1/sequences/{name}/periods/{key}`.
        Period = "period",
        /// `POST /v1/sequences/{name}/parse`.
        Parse = "parse",
        /// `GET /v1/sequences/{name}/explain`.
        Explain = "explain",
        /// `GET /v1/sequences`.
        Sequences = "sequences",
        /// `GET /v1/replica` and what is below it.
        Replica = "replica",
        /// `GET /v1/me`.
        Me = "me",
        /// `POST /v1/workers`.
        Lease = "lease",
        /// `GET /v1/workers/{pool}`.
        Workers = "workers",
        /// `DELETE /v1/workers/{pool}/{worker}`.
        Worker = "worker",
        /// `POST /v1/workers/{pool}/{worker}/renew`.
        Renew = "renew",
        /// `GET /livez`.
        Livez = "livez",
        /// `GET /readyz`.
        Readyz = "readyz",
        /// `GET /metrics`.
        Metrics = "metrics",
        /// `GET /openapi.json`.
        OpenApi = "openapi",
        /// `GET /`, and the files of the page.
        Page = "page",
        /// Any other path.
        Other = "other",
    }
    impl
}

pub(crate) struct RouteMetrics {
    /// The counter of each of `STATUSES`, and at the end the counter of any other status.
    requests: [OnceLock<Counter>; STATUSES.len() + 1],
    pub(crate) duration: Histogram,
}

impl RouteMetrics {
    pub(crate) fn make(recorder: &dyn Recorder, route: Route) -> Self {
        let made = Self {
            requests: [const { OnceLock::new() }; STATUSES.len() + 1],
            duration: make(
                recorder,
                "odometer_http_request_duration_seconds",
                &["Time to answer a request; calls served from memory are sampled."],
                &[Label::new("route", route.word())],
            ),
        };
        // A first scrape shows each route. The other statuses come with their first request.
        made.requests(recorder, route, 200);
        made
    }

    /// Returns the counter of the requests of this route that were answered with one status.
    pub(crate) fn requests(&self, recorder: &dyn Recorder, route: Route, status: u16) -> &Counter {
        let [counters @ .., other] = &self.requests;
        let mut known = STATUSES.iter().zip(counters);
        let known = known.find(|(known, _)| **known == status);
        let counter = known.map_or(other, |(_, counter)| counter);
        counter.get_or_init(|| {
            let status = match known {
                Some((status, _)) => status.to_string(),
                None => "other".to_owned(),
            };
            let labels = [
                Label::new("route", route.word()),
                Label::new("status", status),
            ];
            let name = "odometer_http_requests_total";
            make(recorder, name, &["Requests answered."], &labels)
        })
    }
}
