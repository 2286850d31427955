//! Runs programs that lease worker ids over HTTP and release them at once.

use std::time::{Duration, Instant};

use odometer_tests::raw::Connection;
use serde_json::json;

/// The connections that share the leases.
const N_CONNECTIONS: u32 = 8;

/// Leases and releases at a steady pace.
pub(crate) struct Leases {
    /// The server, as `host:port`.
    pub(crate) address: String,
    /// The number of leases a second. There are as many releases.
    pub(crate) per_s: f64,
}

impl Leases {
    /// Leases and releases for `length`. Returns how many pairs of both calls were done.
    ///
    /// # Panics
    /// If a lease or a release is refused.
    pub(crate) async fn run(&self, length: Duration) -> u32 {
        let until = Instant::now() + length;
        let pause = Duration::from_secs_f64(f64::from(N_CONNECTIONS) / self.per_s);
        let leasing = (0..N_CONNECTIONS).map(|at| {
            let address = self.address.clone();
            let first = pause * at / N_CONNECTIONS;
            tokio::spawn(async move { lease_and_release(&address, at, first, pause, until).await })
        });
        let mut n_done = 0;
        for leasing in leasing.collect::<Vec<_>>() {
            n_done += leasing.await.expect("no lease is refused");
        }
        n_done
    }
}

/// Leases and releases once in each `pause`, after a first wait of `first`. If a call is late,
/// later calls are still made.
async fn lease_and_release(
    address: &str,
    at: u32,
    first: Duration,
    pause: Duration,
    until: Instant,
) -> u32 {
    let mut connection = Connection::open(address).await;
    let body = json!({
        "pool": "billing",
        "bits": 10,
        "ttl_ms": 30_000,
        "holder": format!("billing-{at}"),
    });
    let body = body.to_string();
    let mut due = Instant::now() + first;
    let mut n_done = 0;
    while due < until {
        tokio::time::sleep_until(due.into()).await;
        let leased = connection
            .exchange(&request("POST", "/v1/workers", "", &body))
            .await;
        assert_eq!(leased.status, 201, "{leased:?}");
        let lease = leased.json();
        let token = lease["token"].as_str().expect("a token");
        let target = format!("/v1/workers/billing/{}", lease["worker"]);
        let headers = format!("Odometer-Lease: {token}\r\n");
        let unused = json!({"unused_from_ms": lease["from_ms"]}).to_string();
        let released = connection
            .exchange(&request("DELETE", &target, &headers, &unused))
            .await;
        assert_eq!(released.status, 204, "{released:?}");
        n_done += 1;
        due += pause;
    }
    n_done
}

fn request(method: &str, target: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         {headers}Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
