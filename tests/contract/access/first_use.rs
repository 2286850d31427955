//! Tests the right to use a name or a key for the first time, and shared names.

use reqwest::Method;
use serde_json::json;

use super::{ADMIN, Roles, TestCaller, post, refused, send};
use crate::support::{Options, Program, run};

const ACCESS: &str = "\
[access.roles.maker]
take = [\"*\"]
block = [\"*\"]
create = [\"new-*\", \"keyed\"]
[access.roles.user]
take = [\"*\"]
block = [\"*\"]
[access.roles.of-target]
take = [\"misc\"]
create = [\"*\"]
[access.roles.of-name]
take = [\"a-small\"]
create = [\"*\"]
[[template]]
match = \"*-small\"
share = \"misc\"
";

struct Cast {
    maker: TestCaller,
    user: TestCaller,
    of_target: TestCaller,
    of_name: TestCaller,
}

async fn start() -> (Roles, Cast) {
    start_with(Program::options()).await
}

async fn start_with(options: Options) -> (Roles, Cast) {
    let cast = Cast {
        maker: TestCaller::new("maker", "maker"),
        user: TestCaller::new("user", "user"),
        of_target: TestCaller::new("of-target", "of-target"),
        of_name: TestCaller::new("of-name", "of-name"),
    };
    let all = [&cast.maker, &cast.user, &cast.of_target, &cast.of_name];
    let sections: String = all.iter().map(|caller| caller.section()).collect();
    (Roles::start(options, ACCESS, &sections).await, cast)
}

#[test]
fn a_name_is_used_for_the_first_time_by_those_who_may() {
    run(async {
        let (roles, cast) = start().await;
        let client = roles.client();
        for call in ["next", "blocks?size=2"] {
            let word = call.split('?').next().unwrap_or_default();
            let (own, other) = (
                format!("/v1/sequences/new-{word}/{call}"),
                format!("/v1/sequences/other-{word}/{call}"),
            );
            for caller in [&cast.maker, &cast.user] {
                let reply = post(&client, &caller.token, &other).await;
                refused(&reply, 403, "forbidden", &other);
                let detail = reply.json()["detail"].to_string();
                assert!(detail.contains("`create`"), "{detail}");
            }
            let reply = post(&client, &cast.user.token, &own).await;
            refused(&reply, 403, "forbidden", &own);
            let reply = post(&client, &cast.maker.token, &own).await;
            assert_eq!(reply.status, 200, "{own}: {reply:?}");
            let reply = post(&client, &cast.user.token, &own).await;
            assert_eq!(reply.status, 200, "it was used before: {reply:?}");
        }
        // What was refused has made nothing.
        let list = send(&client, ADMIN, (Method::GET, "/v1/sequences", None)).await;
        let list = list.json()["sequences"].to_string();
        assert!(
            list.contains("new-next") && !list.contains("other-"),
            "{list}"
        );
        // A retired name was used, too.
        let path = "/v1/sequences/new-next";
        let retired = send(&client, ADMIN, (Method::DELETE, path, None)).await;
        assert_eq!(retired.status, 204, "{retired:?}");
        let reply = post(&client, &cast.user.token, "/v1/sequences/new-next/next").await;
        refused(&reply, 410, "sequence_retired", "a retired name");
    });
}

#[test]
fn a_key_is_used_for_the_first_time_by_those_who_may() {
    run(async {
        let (roles, cast) = start().await;
        let client = roles.client();
        let keyed = json!({"period": "keyed"});
        let call = (Method::PUT, "/v1/sequences/keyed", Some(&keyed));
        let made = send(&client, ADMIN, call).await;
        assert_eq!(made.status, 201, "{made:?}");
        let path = "/v1/sequences/keyed/next?period=fr";
        let reply = post(&client, &cast.user.token, path).await;
        refused(&reply, 403, "forbidden", path);
        let reply = post(&client, &cast.maker.token, path).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let reply = post(&client, &cast.user.token, path).await;
        assert_eq!(reply.status, 200, "it was used before: {reply:?}");
        let other = "/v1/sequences/keyed/next?period=de";
        let reply = post(&client, &cast.user.token, other).await;
        refused(&reply, 403, "forbidden", other);
        let removed = "/v1/sequences/keyed/periods/fr";
        let removed = send(&client, ADMIN, (Method::DELETE, removed, None)).await;
        assert_eq!(removed.status, 204, "{removed:?}");
        let reply = post(&client, &cast.user.token, path).await;
        refused(&reply, 410, "period_removed", "a removed key");
    });
}

#[test]
fn a_shared_name_counts_as_the_sequence_that_gives_the_number() {
    run(async {
        let (roles, cast) = start().await;
        let client = roles.client();
        let shared = "/v1/sequences/a-small/next";
        let reply = post(&client, &cast.of_name.token, shared).await;
        refused(&reply, 403, "forbidden", "the right is on the name alone");
        for expected in ["1", "2"] {
            let reply = post(&client, &cast.of_target.token, shared).await;
            assert_eq!(reply.json()["value"], expected, "{reply:?}");
        }
        // A sequence of its own is no longer shared.
        let call = (Method::PUT, "/v1/sequences/a-small", Some(&json!({})));
        let made = send(&client, ADMIN, call).await;
        assert_eq!(made.status, 201, "{made:?}");
        let reply = post(&client, &cast.of_target.token, shared).await;
        refused(&reply, 403, "forbidden", "it has a sequence of its own");
        let reply = post(&client, &cast.of_name.token, shared).await;
        assert_eq!(reply.json()["sequence"], "a-small", "{reply:?}");
    });
}

#[test]
fn a_name_that_no_call_creates_is_not_found_and_suggests_what_the_caller_may_look_at() {
    run(async {
        let options = Program::options().env("ODOMETER_UNKNOWN", "reject");
        let (roles, cast) = start_with(options).await;
        let client = roles.client();
        let call = (Method::PUT, "/v1/sequences/invoice-22", Some(&json!({})));
        let made = send(&client, ADMIN, call).await;
        assert_eq!(made.status, 201, "{made:?}");
        let path = "/v1/sequences/invoice-2/next";
        for (token, is_suggested) in [(ADMIN, true), (&cast.user.token, false)] {
            let reply = post(&client, token, path).await;
            refused(&reply, 404, "sequence_not_found", path);
            let is_told = reply.body.contains("invoice-22");
            assert_eq!(is_told, is_suggested, "{reply:?}");
        }
    });
}

#[test]
fn what_a_shared_name_s_numbers_are_is_shown_to_those_who_may_look_at_their_sequence() {
    run(async {
        let access = "[access.roles.of-name]\nlook = [\"a-small\"]\n\
            [access.roles.of-target]\nlook = [\"misc\"]\n\
            [[template]]\nmatch = \"*-small\"\nshare = \"misc\"\n";
        let of_name = TestCaller::new("of-name", "of-name");
        let of_target = TestCaller::new("of-target", "of-target");
        let sections = format!("{}{}", of_name.section(), of_target.section());
        let roles = Roles::start(Program::options(), access, &sections).await;
        let client = roles.client();
        let taken = post(&client, ADMIN, "/v1/sequences/a-small/next").await;
        assert_eq!(taken.json()["sequence"], "misc", "{taken:?}");
        let printed = json!({"id": "1"});
        for (method, what, body) in [
            (Method::GET, "explain?id=1", None),
            (Method::POST, "parse", Some(&printed)),
        ] {
            let path = format!("/v1/sequences/a-small/{what}");
            let reply = send(&client, &of_name.token, (method.clone(), &path, body)).await;
            refused(&reply, 403, "forbidden", &path);
            let reply = send(&client, &of_target.token, (method, &path, body)).await;
            assert_eq!(reply.status, 200, "{path}: {reply:?}");
        }
    });
}
