//! Measures many numbers in one call, with and without the list of ids. The references are a server
//! with a constant body, and Redis for a hundred numbers.

use odometer_tests::Backend;

use super::single::{CONSTANT, NEXT, REDIS_NOTE};
use crate::{
    cores::Side,
    load::{
        http::Http,
        redis::{self, Step},
        wrk::Wrk,
    },
    pace::{Contender, Pace},
    row::{Bound, Row, Series, Unit},
    stage::Stage,
};

/// The numbers that a call asks for, and whether the reply has the list of ids.
const ASKED: [(u32, bool); 10] = [
    (1, true),
    (1, false),
    (10, true),
    (10, false),
    (HUNDRED, true),
    (HUNDRED, false),
    (1000, true),
    (1000, false),
    (10_000, true),
    (10_000, false),
];
/// The numbers that one request takes from Redis.
const HUNDRED: u32 = 100;
const REDIS: &str = "Redis INCRBY 100";

/// The most that a number of a hundred may cost, divided by its cost in Redis: with the list, and
/// without.
const REDIS_BOUNDS: (Bound, Bound) = (Bound::AtMost(1.0), Bound::AtMost(0.83));

/// Returns how many contenders `batches` has: each form of a call, the constant body, and Redis.
pub(crate) fn n_contenders(pace: Pace) -> u32 {
    u32::try_from(asked(pace).count()).unwrap_or(u32::MAX) + 2
}

fn asked(pace: Pace) -> impl Iterator<Item = (u32, bool)> {
    let is_measured = move |count: u32| pace == Pace::Whole || count == HUNDRED;
    ASKED
        .into_iter()
        .filter(move |(count, _)| is_measured(*count))
}

/// Measures numbers a second by `count`, with 64 connections.
///
/// All forms take from one name, whose blocks are as large as the fastest form needs. A name for
/// each form would have no calls while the other forms are measured. Each measurement would then
/// begin with blocks that are too small.
pub(crate) async fn batches(stage: &Stage, pace: Pace) -> Vec<Row> {
    let odometer = stage.odometer(Backend::Sqlite).await;
    let constant = stage.constant(Side::Server, 1).await;
    let redis = redis::start(&stage.cores).await;
    let (program, cores) = (&odometer.program, &stage.cores);
    let mut contenders: Vec<Http> = asked(pace)
        .map(|(count, with_ids)| {
            let path = format!("{NEXT}?count={count}{}", only_ranges(with_ids));
            let wrk = Wrk::new(program.address(), &path);
            let mut http = Http::new("Odometer", cores, program.id(), wrk);
            http.n_numbers = count;
            http
        })
        .collect();
    let wrk = Wrk::new(&constant.address(), NEXT);
    contenders.push(Http::new(CONSTANT, cores, constant.id(), wrk));
    let mut incrby = redis::contender(REDIS, cores, &redis, Step::Hundred, 1);
    let mut turns: Vec<&mut dyn Contender> = contenders
        .iter_mut()
        .map(|contender| contender as &mut dyn Contender)
        .collect();
    turns.push(&mut incrby);
    let mut series = pace.alternate(&mut turns).await;
    let redis = series.pop().expect("Redis was the last");
    let constant = series.pop().expect("the constant body was before it");
    let measured = asked(pace).zip(series);
    measured
        .flat_map(|((count, with_ids), odometer)| match count {
            HUNDRED => beside_redis(with_ids, odometer, &constant, &redis),
            _ => vec![row(count, with_ids, vec![odometer, constant.clone()])],
        })
        .collect()
}

/// Returns the rows for a hundred numbers: the cost of a number, and the numbers a second.
fn beside_redis(with_ids: bool, odometer: Series, constant: &Series, redis: &Series) -> Vec<Row> {
    let mut hundreds = redis.clone();
    for reading in &mut hundreds.readings {
        reading.value *= f64::from(HUNDRED);
    }
    let rate = row(
        HUNDRED,
        with_ids,
        vec![odometer, constant.clone(), hundreds],
    );
    let bound = if with_ids {
        REDIS_BOUNDS.0
    } else {
        REDIS_BOUNDS.1
    };
    let title = format!(
        "processor time of a number, `count=100{}`",
        only_ranges(with_ids)
    );
    let cost = rate.cost(&title, HUNDRED, &[REDIS]).target(REDIS, bound);
    [cost, rate].map(|row| row.note(REDIS_NOTE)).into()
}

fn row(count: u32, with_ids: bool, series: Vec<Series>) -> Row {
    let name = format!("count-{count}{}", if with_ids { "" } else { "-ranges" });
    let title = format!("numbers, `count={count}{}`", only_ranges(with_ids));
    Row::new(&name, &title, Unit::NumbersPerSecond).series(series).note(
        "The figure of the constant body is requests a second, each of which brings one number.",
    )
}

fn only_ranges(with_ids: bool) -> &'static str {
    if with_ids { "" } else { "&ids=false" }
}
