//! Tests that the callers of a role take no more than its quota.

use std::time::Instant;

use super::{Roles, TestCaller, get, post, refused};
use crate::support::{Options, Program, run};

/// A quota whose burst is 1000 numbers.
const ACCESS: &str = "\
[access.roles.slow]
take = [\"*\"]
block = [\"*\"]
create = [\"*\"]
numbers = \"100/s\"
[access.roles.free]
take = [\"*\"]
create = [\"*\"]
";
const RATE: u64 = 100;
const BURST: u64 = 1000;

struct Cast {
    slow: TestCaller,
    slow_too: TestCaller,
    free: TestCaller,
}

async fn start(options: Options) -> (Roles, Cast) {
    let cast = Cast {
        slow: TestCaller::new("slow", "slow"),
        slow_too: TestCaller::new("slow-too", "slow"),
        free: TestCaller::new("free", "free"),
    };
    let all = [&cast.slow, &cast.slow_too, &cast.free];
    let sections: String = all.iter().map(|caller| caller.section()).collect();
    (Roles::start(options, ACCESS, &sections).await, cast)
}

/// Takes numbers by calls for `count` until `n_calls` are made. Returns how many numbers came, and
/// how many numbers the quota had at most in that time.
async fn taken(roles: &Roles, token: &str, (count, n_calls): (u64, u64)) -> (u64, u64) {
    let client = roles.client();
    let (mut sum, began) = (0, Instant::now());
    for _ in 0..n_calls {
        let path = match count {
            1 => "/v1/sequences/orders/next".to_owned(),
            count => format!("/v1/sequences/orders/next?count={count}&ids=false"),
        };
        let reply = post(&client, token, &path).await;
        match reply.status {
            200 => sum += count,
            _ => refused(&reply, 429, "quota_exceeded", &path),
        }
    }
    let passed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    // Each worker may let one call more pass that asked at the same time.
    let most = BURST + (RATE * passed_ms).div_ceil(1000) + 2 * count;
    (sum, most)
}

#[test]
fn the_callers_of_a_role_share_its_quota_and_others_have_their_own() {
    run(async {
        let (roles, cast) = start(Program::options()).await;
        let client = roles.client();
        let path = |count: u64| format!("/v1/sequences/orders/next?count={count}");
        let reply = post(&client, &cast.slow.token, &path(BURST + 1)).await;
        refused(&reply, 400, "invalid_count", "more than the burst");
        let reply = post(&client, &cast.slow.token, &path(BURST)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        for call in [path(900), "/v1/sequences/orders/blocks?size=900".to_owned()] {
            let reply = post(&client, &cast.slow_too.token, &call).await;
            refused(&reply, 429, "quota_exceeded", &call);
            let wait = reply
                .header("retry-after")
                .and_then(|wait| wait.parse::<u64>().ok());
            assert!(
                wait.is_some_and(|wait| (5..=9).contains(&wait)),
                "{reply:?}"
            );
            assert!(
                reply.json()["detail"].to_string().contains("`slow`"),
                "{reply:?}"
            );
        }
        let reply = post(&client, &cast.free.token, &path(5000)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let metrics = get(&client, super::ADMIN, "/metrics").await.body;
        let counted = "odometer_quota_refused_total{role=\"slow\",quota=\"numbers\"} 2";
        assert!(metrics.lines().any(|line| line == counted), "{metrics}");
        let me = get(&client, &cast.slow.token, "/v1/me").await.json();
        assert_eq!(me["numbers_per_second"], RATE);
    });
}

#[test]
fn no_more_numbers_come_than_the_quota_allows() {
    run(async {
        for call in [(1, 3000), (7, 500)] {
            let (roles, cast) = start(Program::options()).await;
            let (sum, most) = taken(&roles, &cast.slow.token, call).await;
            assert!(sum <= most, "{call:?}: {sum} above {most}");
            assert!(sum >= BURST - call.0, "{call:?}: only {sum}");
        }
    });
}

#[test]
fn a_quota_that_is_not_asked_for_is_found_out() {
    run(async {
        let options = Program::options().without_guards("quota-uncounted");
        let (roles, cast) = start(options).await;
        let (sum, most) = taken(&roles, &cast.slow.token, (7, 2000)).await;
        assert!(sum > most, "{sum} within {most}");
    });
}
