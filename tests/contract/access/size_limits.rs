//! Tests that a caller with a role is told which size a call could have, with all bounds that hold
//! for the caller: after one refusal the caller gets its numbers.

use reqwest::Method;
use serde_json::{Value, json};

use super::{ADMIN, Roles, TestCaller, post, refused, send};
use crate::support::{Client, Program, Reply, run};

/// Quotas whose bursts are 1000, 100 and 10 numbers, and shares of 1 %.
const ACCESS: &str = "\
[access.roles.slow]
take = [\"*\"]
block = [\"*\"]
create = [\"*\"]
numbers = \"100/s\"
[access.roles.slower]
take = [\"*\"]
create = [\"*\"]
numbers = \"10/s\"
[access.roles.slowest]
take = [\"*\"]
block = [\"*\"]
create = [\"*\"]
numbers = \"1/s\"
[access.roles.sharing]
take = [\"*\"]
block = [\"*\"]
create = [\"*\"]
";

struct Stage {
    roles: Roles,
    client: Client,
    slow: TestCaller,
    slower: TestCaller,
    slowest: TestCaller,
    sharing: TestCaller,
}

impl Stage {
    async fn start() -> Self {
        let [slow, slower, slowest, sharing] =
            ["slow", "slower", "slowest", "sharing"].map(|role| TestCaller::new(role, role));
        let callers = [&slow, &slower, &slowest, &sharing];
        let sections = callers.map(TestCaller::section).concat();
        let roles = Roles::start(Program::options(), ACCESS, &sections).await;
        Self {
            client: roles.client(),
            roles,
            slow,
            slower,
            slowest,
            sharing,
        }
    }

    async fn define(&self, name: &str, definition: &Value) {
        let path = format!("/v1/sequences/{name}");
        let reply = send(&self.client, ADMIN, (Method::PUT, &path, Some(definition))).await;
        assert_eq!(reply.status, 201, "{reply:?}");
    }

    async fn ask(&self, caller: &TestCaller, call: &str, n: u64) -> Reply {
        let path = format!("/v1/sequences/{call}={n}");
        post(&self.client, &caller.token, &path).await
    }

    /// Asks for too many numbers. Returns the limit in the refusal.
    async fn refused(
        &self,
        caller: &TestCaller,
        (call, n): (&str, u64),
        (status, code): (u16, &str),
    ) -> u64 {
        let reply = self.ask(caller, call, n).await;
        refused(&reply, status, code, call);
        limit_of(&reply).unwrap_or_else(|| panic!("{call}={n}: {reply:?}"))
    }

    /// Asks for as many numbers as a refusal said, and gets them.
    async fn retried(&self, caller: &TestCaller, call: &str, n: u64) {
        let reply = self.ask(caller, call, n).await;
        assert_eq!(reply.status, 200, "{call}={n}: {reply:?}");
        assert_eq!(reply.json()["count"], n, "{call}: {reply:?}");
    }
}

/// Returns the limit in a refusal, which is a string of digits.
fn limit_of(reply: &Reply) -> Option<u64> {
    let limit = reply.json().get("limit")?.clone();
    let digits = limit.as_str().map(str::parse);
    let Some(Ok(limit)) = digits else {
        panic!("{limit} is no string of digits");
    };
    Some(limit)
}

#[test]
fn a_size_above_a_share_or_a_quota_is_refused_with_the_lowest_bound() {
    run(async {
        let stage = Stage::start().await;
        let (slow, sharing) = (&stage.slow, &stage.sharing);
        // A hundredth of it is 1000, and 1/4096 of it is 24.
        stage.define("some", &json!({"max": "100000"})).await;
        stage.define("few", &json!({"max": "20000"})).await;
        let invalid = (400, "invalid_count");
        let confirm = (409, "confirm_needed");
        for (caller, call, n, refusal, expected) in [
            (sharing, "some/next?count", 5_000, confirm, 1_000),
            (sharing, "some/next?count", 1_001, confirm, 1_000),
            // What is left of it by the share.
            (sharing, "some/next?count", 10_001, invalid, 1_000),
            (sharing, "some/blocks?size", 5_000, invalid, 24),
            (sharing, "some/blocks?size", 25, invalid, 24),
            (slow, "some/next?count", 10_001, invalid, 1_000),
            // Nobody has used the name.
            (slow, "other/next?count", 10_001, invalid, 1_000),
            (slow, "other/next?count", 1_001, invalid, 1_000),
            (slow, "other/blocks?size", 1_001, invalid, 1_000),
            (slow, "few/next?count", 10_001, invalid, 200),
            (slow, "few/next?count", 5_000, confirm, 200),
            (slow, "few/blocks?size", 5_000, invalid, 4),
        ] {
            let limit = stage.refused(caller, (call, n), refusal).await;
            assert_eq!(limit, expected, "{call}={n}");
        }
        stage.retried(slow, "few/blocks?size", 4).await;
        stage.retried(sharing, "some/blocks?size", 24).await;
        let left = stage.refused(sharing, ("some/next?count", 5_000), confirm);
        let left = left.await;
        assert_eq!(left, 999);
        stage.retried(sharing, "some/next?count", left).await;
        let left = stage.refused(slow, ("few/next?count", 5_000), confirm);
        let left = left.await;
        assert_eq!(left, 199);
        stage.retried(slow, "few/next?count", left).await;
        drop(stage.roles);
    });
}

#[test]
fn a_quota_that_is_used_up_is_refused_with_what_it_has_now() {
    run(async {
        let stage = Stage::start().await;
        let slow = &stage.slow;
        stage.retried(slow, "orders/next?count", 990).await;
        let exceeded = (429, "quota_exceeded");
        for (call, n) in [
            ("orders/next?count", 1_000),
            ("orders/next?count", 900),
            ("orders/blocks?size", 900),
        ] {
            let limit = stage.refused(slow, (call, n), exceeded).await;
            assert!((10..n).contains(&limit), "{call}={n}: {limit}");
        }
        // More than the quota ever gives is refused with what it has now, too.
        let above = ("orders/next?count", 1_001);
        let limit = stage.refused(slow, above, (400, "invalid_count")).await;
        assert!((10..1_000).contains(&limit), "{limit}");
        stage.retried(slow, "orders/next?count", limit).await;
        drop(stage.roles);
    });
}

/// A caller takes a refusal without a limit as final, and the quota is filled again.
#[test]
fn a_size_above_a_quota_that_is_used_up_is_refused_with_one_number() {
    run(async {
        let stage = Stage::start().await;
        let slowest = &stage.slowest;
        stage.define("few", &json!({"max": "5000"})).await;
        stage.retried(slowest, "orders/next?count", 10).await;
        let invalid = (400, "invalid_count");
        for (call, n, refusal) in [
            ("orders/next?count", 11, invalid),
            ("orders/blocks?size", 11, invalid),
            ("few/next?count", 101, (409, "confirm_needed")),
        ] {
            let limit = stage.refused(slowest, (call, n), refusal).await;
            // A second fills one number.
            assert!((1..=10).contains(&limit), "{call}: {limit}");
        }
        drop(stage.roles);
    });
}

/// The warm path takes from the quota of a caller that it knows, for a call of so few numbers.
#[test]
fn a_warm_call_above_the_quota_is_refused_with_what_it_has_now() {
    run(async {
        let stage = Stage::start().await;
        for n in [1, 98] {
            stage.retried(&stage.slower, "orders/next?count", n).await;
        }
        let (call, exceeded) = (("orders/next?count", 100), (429, "quota_exceeded"));
        let limit = stage.refused(&stage.slower, call, exceeded).await;
        assert!((1..100).contains(&limit), "{limit}");
        stage.retried(&stage.slower, call.0, limit).await;
        drop(stage.roles);
    });
}

#[test]
fn a_caller_without_the_right_is_told_no_size() {
    run(async {
        let stage = Stage::start().await;
        let path = "/v1/sequences/orders/next?count=10001";
        let reply = post(&stage.client, "", path).await;
        refused(&reply, 401, "unauthenticated", path);
        assert_eq!(limit_of(&reply), None);
        let path = "/v1/sequences/orders/next?count=5000&confirm=true";
        let reply = post(&stage.client, &stage.sharing.token, path).await;
        refused(&reply, 403, "forbidden", path);
        assert_eq!(limit_of(&reply), None);
        drop(stage.roles);
    });
}
