//! Measures numbers that the client library for Rust gives from memory: a slice for each thread,
//! and a sequence that threads share, next to a bare `fetch_add` and next to CosId.

use std::{
    hint::black_box,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    thread,
    time::Duration,
};

use async_trait::async_trait;
use odometer_client::{Client, Sequence, Slice};
use serde_json::{Value, json};

use super::{
    cosid::{self, Chain},
    in_process::{self, BARE, InProcess},
};
use crate::{
    pace::{Contender, Pace},
    reading::Reading,
    row::{Bound, Row, Unit},
    stage::Stage,
};

/// How many numbers the first refill asks for. A slice of 1,024 numbers needs a block of 65,536.
const FIRST_BLOCK: u64 = 1 << 30;
/// A segment of CosId that is as large, so that it lasts.
const SEGMENT: u64 = FIRST_BLOCK;
const THREADS: [(u32, &str); 2] = [(1, "one thread"), (2, "two threads")];
/// What two threads with slices must reach, in times of a shared `fetch_add`.
const AGAINST_BARE: f64 = 9.0;

pub(crate) fn estimate(pace: Pace) -> Duration {
    if cosid::class_path().is_none() {
        return pace.estimate(6) / 3;
    }
    pace.estimate(8) / 3 + 2 * 2 * cosid::WARM_UP
}

/// Measures with one and with two threads.
pub(crate) async fn client(_: &Stage, pace: Pace) -> Vec<Row> {
    let client = Client::builder()
        .endpoints([service()])
        .initial_size(FIRST_BLOCK)
        .deadline(Duration::from_secs(10))
        .build();
    let client = client.expect("these settings can be used");
    let mut rows = Vec::new();
    for (n_threads, threads) in THREADS {
        let orders = client.sequence(&format!("orders-{n_threads}"));
        let orders = orders.expect("it is a name");
        orders.warm_blocking(1).expect("the service gives numbers");
        let title = format!("in process, {threads}, a slice of the client library for each");
        let row = Row::new(
            &format!("client-{n_threads}"),
            &title,
            Unit::NumbersPerSecond,
        );
        rows.push(beside(row, pace, n_threads, &orders).await);
    }
    rows
}

async fn beside(row: Row, pace: Pace, n_threads: u32, orders: &Sequence) -> Row {
    let mut slices = Slices {
        orders: orders.clone(),
        n_threads,
    };
    let mut bare = in_process::bare(n_threads);
    let shared = orders.clone();
    let mut shared = InProcess::new("one sequence", n_threads, shared, |orders: &Sequence| {
        black_box(orders.take().unwrap_or_else(|_| waited(orders)));
    });
    let mut chain = Chain::start(SEGMENT, n_threads);
    let mut contenders: Vec<&mut dyn Contender> = vec![&mut slices, &mut *bare, &mut *shared];
    let is_beside_chain = chain.is_some();
    if let Some(chain) = &mut chain {
        contenders.push(chain);
    }
    let row = row.series(pace.alternate(&mut contenders).await);
    let row = if n_threads > 1 {
        row.target(BARE, Bound::AtLeast(AGAINST_BARE))
    } else {
        row
    };
    row.note(if is_beside_chain {
        "Each thread of CosId takes from the same chain."
    } else {
        cosid::NOT_MEASURED
    })
}

/// Threads that each take from a slice of their own.
struct Slices {
    orders: Sequence,
    n_threads: u32,
}

#[async_trait(?Send)]
impl Contender for Slices {
    fn name(&self) -> &str {
        "Odometer"
    }

    /// Measures for a third of `length`, like the other contenders in this process.
    async fn measure(&mut self, length: Duration) -> Reading {
        let orders = &self.orders;
        let make = || {
            let mut slice = orders.local();
            move || {
                black_box(taken(&mut slice, orders));
            }
        };
        in_process::measured(self.n_threads, length / 3, 1.0, make)
    }
}

#[inline]
fn taken(slice: &mut Slice, orders: &Sequence) -> i64 {
    slice.take().unwrap_or_else(|_| waited(orders))
}

#[cold]
fn waited(orders: &Sequence) -> i64 {
    let next = orders.next_blocking();
    next.expect("the service gives numbers")
}

/// Starts a service that gives whatever it is asked for, and returns its address. So a store and
/// the speed limit of a sequence have no part in the figures.
fn service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let next = Arc::new(AtomicI64::new(1));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let next = Arc::clone(&next);
            thread::spawn(move || serve(stream, &next));
        }
    });
    format!("http://{address}")
}

/// Answers the calls of one connection, until it ends.
fn serve(mut stream: TcpStream, next: &AtomicI64) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut request = String::new();
        reader.read_line(&mut request).ok().filter(|n| *n > 0)?;
        let mut header = String::from("more");
        while !header.trim().is_empty() {
            header.clear();
            reader.read_line(&mut header).ok()?;
        }
        let body = answer(&request, next).to_string();
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
    }
}

/// Returns the definition, or as many numbers as the request asks for.
fn answer(request: &str, next: &AtomicI64) -> Value {
    if request.starts_with("GET") {
        return json!({"definition": {
            "kind": "block", "order": "relaxed", "period": "none", "format": "{value}"
        }});
    }
    let (_, query) = request.split_once('?').unwrap_or_default();
    let digits: String = query
        .chars()
        .skip_while(|it| !it.is_ascii_digit())
        .collect();
    let digits = digits.split(|it: char| !it.is_ascii_digit()).next();
    let count: i64 = digits.and_then(|it| it.parse().ok()).unwrap_or(1);
    let first = next.fetch_add(count, Ordering::Relaxed);
    let last = first + count - 1;
    json!({
        "first": first.to_string(), "last": last.to_string(), "count": count, "step": 1,
        "period": null
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_of_the_measurement_gives_what_is_asked_for() {
        let client = Client::builder().endpoints([service()]).build().unwrap();
        let orders = client.sequence("orders").unwrap();
        orders.warm_blocking(70_000).unwrap();
        let mut slice = orders.local();
        let numbers: Vec<i64> = (0..2_000).map(|_| taken(&mut slice, &orders)).collect();
        assert!(numbers.is_sorted_by(|one, next| one < next));
        assert_eq!(orders.left(), 70_000 - 2 * 1_024);
    }
}
