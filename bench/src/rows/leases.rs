//! Measures ids of one replica while other programs lease worker ids from it.

use std::time::Duration;

use async_trait::async_trait;
use odometer_tests::Backend;
use serde_json::json;

use super::{conditions::STARTS, single::NEXT};
use crate::{
    cores::Side,
    load::{http::Http, leases::Leases, wrk::Wrk},
    pace::{Contender, Pace},
    reading::Reading,
    row::{Bound, Row, Unit},
    stage::Stage,
};

const PER_S: f64 = 300.0;
const ALONE: &str = "the same without leases";
const TIME_ORDERED: &str = "/v1/sequences/events/next";

/// Requests that wrk sends before it reads the first answer. PostgreSQL runs on wrk's core. With
/// one request at a time, that core would bound the rate, and not the core of the server.
const DEPTH: u32 = 4;

/// Measures one number over HTTP with 64 connections, for both kinds, next to 300 leases a second.
pub(crate) async fn leases(stage: &Stage, pace: Pace) -> Vec<Row> {
    // The database does not use the measured core, as if it had a machine of its own.
    let server = stage
        .cores
        .start(Side::Load, odometer_tests::Server::start(Backend::Postgres))
        .await;
    let odometer = stage.odometer_on(&server).await;
    let program = &odometer.program;
    let kind = json!({"kind": "snowflake"});
    program.client().define("events", &kind).await;
    let mut rows = Vec::new();
    for (name, title, path) in [
        (
            "leases-block",
            "one number of a block, 64 connections with 4 requests each, with 300 leases of \
             worker ids and 300 releases a second",
            NEXT,
        ),
        (
            "leases-snowflake",
            "one time-ordered id, 64 connections with 4 requests each, with 300 leases of worker \
             ids and 300 releases a second",
            TIME_ORDERED,
        ),
    ] {
        let ask = |name: &str, leases: Option<Leases>| {
            let mut wrk = Wrk::new(program.address(), path);
            wrk.depth = DEPTH;
            let mut http = Http::new(name, &stage.cores, program.id(), wrk);
            http.beside_load = vec![server.id()];
            Beside { http, leases }
        };
        let leases = Leases {
            address: program.address().to_owned(),
            per_s: PER_S,
        };
        let (mut beside, mut alone) = (ask("Odometer", Some(leases)), ask(ALONE, None));
        let series = pace.alternate(&mut [&mut beside, &mut alone]).await;
        let row = Row::new(name, title, Unit::RequestsPerSecond).series(series);
        rows.push(row.target(ALONE, Bound::AtLeast(0.9)).note(
            "Each lease is of 30 s, and is given back at once with `unused_from_ms`, over 8 \
             connections. PostgreSQL shares the core of the client. With four requests at a time, \
             the client leaves room for PostgreSQL.",
        ));
    }
    rows
}

pub(crate) fn estimate(pace: Pace) -> Duration {
    pace.estimate(4) + STARTS / 2
}

/// A load that asks for numbers, with or without leases of worker ids at the same time.
struct Beside {
    http: Http,
    leases: Option<Leases>,
}

#[async_trait(?Send)]
impl Contender for Beside {
    fn name(&self) -> &str {
        self.http.name()
    }

    async fn measure(&mut self, length: Duration) -> Reading {
        let Some(leases) = &self.leases else {
            return self.http.measure(length).await;
        };
        // `join!` polls this future after wrk was started. From then on, this thread runs on the
        // core of the load.
        let cores = self.http.cores;
        let leasing = cores.start(Side::Load, leases.run(length));
        let (reading, n_leases) = tokio::join!(self.http.measure(length), leasing);
        let n_wanted = PER_S * length.as_secs_f64();
        assert!(
            f64::from(n_leases) >= 0.9 * n_wanted,
            "vacuous: {n_leases} leases of {n_wanted}"
        );
        reading.figure("leases", f64::from(n_leases))
    }
}
