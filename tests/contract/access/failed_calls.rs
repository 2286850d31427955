//! Tests which failed calls have used up the quota of their role.

use serde_json::json;

use super::hang_ups::{ACCESS, BURST, begin};
use super::{ADMIN, Roles, TestCaller, post, refused};
use crate::support::{Backend, Options, Program, Reply, for_each_backend};

/// Calls twice for all that the quota gives, while the store does not answer.
async fn call_twice(backend: Backend, options: Options) -> [Reply; 2] {
    let caller = TestCaller::new("slow", "slow");
    // Both calls end before the quota has grown again.
    let options = options.env("ODOMETER_REFILL__DEADLINE", "3s");
    let roles = Roles::start_on(backend, options, ACCESS, &caller.section()).await;
    begin(&roles, "held", &json!({"order": "strict"})).await;
    let client = roles.client();
    let path = all_of_the_quota("held");
    let frozen = roles.database.freeze().await;
    let first = post(&client, &caller.token, &path).await;
    let second = post(&client, &caller.token, &path).await;
    frozen.thaw().await;
    [first, second]
}

fn all_of_the_quota(name: &str) -> String {
    format!("/v1/sequences/{name}/next?count={BURST}&ids=false")
}

for_each_backend!(
    a_call_that_the_store_does_not_answer_has_used_up_its_quota,
    a_quota_that_is_given_back_after_any_failure_is_found_out,
    a_refused_call_leaves_the_quota_as_it_was,
);

async fn a_call_that_the_store_does_not_answer_has_used_up_its_quota(backend: Backend) {
    let [first, second] = call_twice(backend, Program::options()).await;
    assert_unanswered(&first);
    refused(&second, 429, "quota_exceeded", "the second call");
}

/// Negative control: the second call finds the quota whole.
async fn a_quota_that_is_given_back_after_any_failure_is_found_out(backend: Backend) {
    let options = Program::options().without_guards("quota-given-back");
    let [first, second] = call_twice(backend, options).await;
    assert_unanswered(&first);
    assert_unanswered(&second);
}

fn assert_unanswered(reply: &Reply) {
    let code = reply.json()["code"].to_string();
    let is_late = code.contains("refill_timeout") || code.contains("store_unavailable");
    assert!(is_late && reply.status == 503, "vacuous: {reply:?}");
}

async fn a_refused_call_leaves_the_quota_as_it_was(backend: Backend) {
    let caller = TestCaller::new("slow", "slow");
    let roles = Roles::start_on(backend, Program::options(), ACCESS, &caller.section()).await;
    let client = roles.client();
    let slow = json!({"order": "strict", "limit": {"rate": 1, "burst": BURST}});
    for (name, definition, status, code) in [
        ("short", json!({"max": "100"}), 409, "sequence_exhausted"),
        ("slow", slow, 429, "rate_limited"),
    ] {
        begin(&roles, name, &definition).await;
        let some = format!("/v1/sequences/{name}/next?count=50");
        let reply = post(&client, ADMIN, &some).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        for _ in 0..3 {
            let reply = post(&client, &caller.token, &all_of_the_quota(name)).await;
            refused(&reply, status, code, name);
        }
    }
}
