//! Many numbers a call, with and without their list, beside one constant body a call.

use odometer_tests::Backend;

use super::single::{CONSTANT, NEXT};
use crate::{
    cores::Side,
    load::{http::Http, wrk::Wrk},
    pace::{Contender, Pace},
    row::{Bound, Row, Series, Unit},
    stage::Stage,
};

/// How many numbers a call asks for, whether it wants their list, and how many times the constant
/// body's calls its numbers are to be.
const ASKED: [(u32, bool, Option<f64>); 10] = [
    (1, true, None),
    (1, false, None),
    (10, true, None),
    (10, false, None),
    (100, true, Some(70.0)),
    (100, false, Some(85.0)),
    (1000, true, None),
    (1000, false, None),
    (10_000, true, None),
    (10_000, false, None),
];

pub(crate) const N_CONTENDERS: u32 = 11;

/// Numbers a second by `count`, 64 connections.
///
/// All draw on one name, whose blocks are as large as its fastest form needs: a name for each would
/// rest while the others have their turns, and begin each turn with blocks that are too small.
pub(crate) async fn batches(stage: &Stage, pace: Pace) -> Vec<Row> {
    let odometer = stage.odometer(Backend::Sqlite).await;
    let constant = stage.constant(Side::Server, 1).await;
    let (program, cores) = (&odometer.program, &stage.cores);
    let mut contenders: Vec<Http> = ASKED
        .iter()
        .map(|&(count, with_ids, _)| {
            let path = format!("{NEXT}?count={count}{}", only_ranges(with_ids));
            let wrk = Wrk::new(program.address(), &path);
            let mut http = Http::new("Odometer", cores, program.id(), wrk);
            http.n_numbers = count;
            http
        })
        .collect();
    let wrk = Wrk::new(&constant.address(), NEXT);
    contenders.push(Http::new(CONSTANT, cores, constant.id(), wrk));
    let mut turns: Vec<&mut dyn Contender> = contenders
        .iter_mut()
        .map(|contender| contender as &mut dyn Contender)
        .collect();
    let mut series = pace.alternate(&mut turns).await;
    let constant = series.pop().expect("the constant body was the last");
    let measured = ASKED.iter().zip(series);
    measured
        .map(|(&(count, with_ids, wanted), odometer)| {
            row(count, with_ids, wanted, odometer, &constant)
        })
        .collect()
}

fn row(
    count: u32,
    with_ids: bool,
    wanted: Option<f64>,
    odometer: Series,
    constant: &Series,
) -> Row {
    let name = format!("count-{count}{}", if with_ids { "" } else { "-ranges" });
    let title = format!("numbers, `count={count}{}`", only_ranges(with_ids));
    let row = Row::new(&name, &title, Unit::NumbersPerSecond);
    let row = row.series(vec![odometer, constant.clone()]).note(
        "the figure of the constant body is requests a second, each of which brings one number",
    );
    match wanted {
        Some(ratio) => row.target(CONSTANT, Bound::AtLeast(ratio)),
        None => row,
    }
}

fn only_ranges(with_ids: bool) -> &'static str {
    if with_ids { "" } else { "&ids=false" }
}
