//! Tests each call of each caller for each name against the rules, which are read here in a simpler
//! way.

use reqwest::Method;
use serde_json::{Value, json};

use super::{ADMIN, Roles, TestCaller, send};
use crate::support::{Client, Options, Program, run};

/// The rights of each role: role, right, globs.
const RULES: [(&str, &str, &[&str]); 17] = [
    ("guest", "look", &["public-*"]),
    ("guest", "take", &["public-1"]),
    ("reader", "look", &["*"]),
    ("billing", "take", &["orders", "invoice-*"]),
    ("billing", "block", &["invoice-1"]),
    ("billing", "create", &["*"]),
    ("billing", "lease", &["orders", "public-*"]),
    ("importer", "block", &["*"]),
    ("importer", "create", &["*"]),
    ("importer", "look", &["orders"]),
    ("definer", "define", &["invoice-*"]),
    ("definer", "look", &["invoice-1", "orders"]),
    ("taker", "take", &["*"]),
    ("taker", "create", &["*"]),
    ("worker", "lease", &["*"]),
    ("owner", "define", &["*"]),
    ("nobody", "take", &[]),
];

const NAMES: [&str; 7] = [
    "orders",
    "orders2",
    "invoice-1",
    "invoice-22",
    "public-1",
    "public-2",
    "Orders",
];

/// A call: its right, its method, its path with `{}` for the name, and its body.
type Call = (&'static str, Method, &'static str, Option<Value>);

fn calls() -> Vec<Call> {
    let definition = json!({"description": "x"});
    vec![
        ("take", Method::POST, "/v1/sequences/{}/next", None),
        ("take", Method::POST, "/v1/sequences/{}/next?count=3", None),
        (
            "block",
            Method::POST,
            "/v1/sequences/{}/blocks?size=2",
            None,
        ),
        ("look", Method::GET, "/v1/sequences/{}", None),
        ("look", Method::HEAD, "/v1/sequences/{}", None),
        ("look", Method::GET, "/v1/sequences/{}/explain?id=1", None),
        (
            "look",
            Method::POST,
            "/v1/sequences/{}/parse",
            Some(json!({"id": "1"})),
        ),
        ("look", Method::GET, "/v1/workers/{}", None),
        ("define", Method::PUT, "/v1/sequences/{}", Some(definition)),
        (
            "define",
            Method::POST,
            "/v1/sequences/{}/advance",
            Some(json!({"floor": "1"})),
        ),
        ("define", Method::DELETE, "/v1/sequences/{}", None),
        ("define", Method::POST, "/v1/sequences/{}/restore", None),
        ("define", Method::DELETE, "/v1/sequences/{}/periods/x", None),
        ("define", Method::DELETE, "/v1/workers/{}", None),
        (
            "define",
            Method::DELETE,
            "/v1/workers/{}/0?force=true",
            None,
        ),
        (
            "lease",
            Method::POST,
            "/v1/workers",
            Some(json!({"pool": "{}", "bits": 10, "ttl_ms": 60_000, "holder": "h"})),
        ),
        ("lease", Method::POST, "/v1/workers/{}/0/renew", None),
        ("lease", Method::DELETE, "/v1/workers/{}/0", None),
    ]
}

/// Calls that need a right on all names.
const OF_ALL_NAMES: [(&str, &str); 4] = [
    ("look", "/v1/replica"),
    ("look", "/v1/replica/sequences"),
    ("look", "/v1/replica/sequences/orders"),
    ("look", "/metrics"),
];

/// Returns whether a glob with at most one `*`, at its end, fits a name.
fn fits(glob: &str, name: &str) -> bool {
    match glob.split_once('*') {
        Some((beginning, "")) => name.starts_with(beginning),
        Some(_) => panic!("too much for this test: {glob}"),
        None => glob == name,
    }
}

fn globs(role: &str, right: &str) -> Vec<&'static str> {
    let rules = RULES
        .iter()
        .filter(|rule| (rule.0, rule.1) == (role, right));
    rules.flat_map(|rule| rule.2.iter().copied()).collect()
}

/// Returns the status of a refusal for a caller, or `None` if the call is allowed.
fn refusal(caller: &TestCaller, right: &str, name: Option<&str>) -> Option<u16> {
    let globs = globs(caller.role, right);
    let may = |glob: &&str| match name {
        Some(name) => fits(glob, name),
        None => *glob == "*",
    };
    let is_allowed = caller.role == "administrator" || globs.iter().any(may);
    match (is_allowed, caller.role) {
        (true, _) => None,
        (false, "guest") => Some(401),
        (false, _) => Some(403),
    }
}

fn callers() -> Vec<TestCaller> {
    let roles = [
        "reader", "billing", "importer", "definer", "taker", "worker", "owner", "nobody",
    ];
    let mut callers: Vec<TestCaller> = roles
        .iter()
        .map(|role| TestCaller::new(role, role))
        .collect();
    callers.push(TestCaller {
        name: "anonymous",
        role: "guest",
        token: String::new(),
    });
    callers.push(TestCaller {
        name: "administrator",
        role: "administrator",
        token: ADMIN.to_owned(),
    });
    callers
}

async fn start(options: Options, callers: &[TestCaller]) -> Roles {
    let mut access = "anonymous = \"guest\"\n".to_owned();
    let mut roles: Vec<&str> = RULES.iter().map(|rule| rule.0).collect();
    roles.dedup();
    for role in roles {
        access.push_str(&format!("[access.roles.{role}]\n"));
        for (_, right, globs) in RULES.iter().filter(|rule| rule.0 == role) {
            access.push_str(&format!("{right} = {globs:?}\n"));
        }
    }
    let known = callers
        .iter()
        .filter(|caller| caller.token.starts_with("odo_"));
    let sections: String = known.map(TestCaller::section).collect();
    let roles = Roles::start(options, &access, &sections).await;
    let client = roles.client();
    for name in NAMES {
        let path = format!("/v1/sequences/{name}");
        let made = send(&client, ADMIN, (Method::PUT, &path, Some(&json!({})))).await;
        assert_eq!(made.status, 201, "{name}: {made:?}");
    }
    roles
}

/// Makes all calls. Returns how many there were, and those that did not end as the rules say.
async fn surprises(client: &Client, callers: &[TestCaller]) -> (usize, Vec<String>) {
    let (mut n_calls, mut surprises) = (0, Vec::new());
    let mut note = |what: String, status: u16, code: Option<String>, expected: Option<u16>| {
        n_calls += 1;
        let is_refused = matches!(code.as_deref(), Some("forbidden" | "unauthenticated"));
        let is_as_said = match expected {
            None => !is_refused && !matches!(status, 401 | 403),
            Some(expected) => status == expected,
        };
        if !is_as_said {
            surprises.push(format!("{what}: {status} {code:?}, not {expected:?}"));
        }
    };
    for caller in callers {
        for (right, method, path, body) in calls() {
            for name in NAMES {
                let path = path.replace("{}", name);
                let body = body
                    .as_ref()
                    .map(|body| body.to_string().replace("{}", name));
                let body: Option<Value> = body.map(|body| body.parse().expect("JSON"));
                let call = (method.clone(), path.as_str(), body.as_ref());
                let reply = send(client, &caller.token, call).await;
                let what = format!("{} {method} {path}", caller.name);
                let expected = refusal(caller, right, Some(name));
                note(what, reply.status, reply.code(), expected);
            }
        }
        for (right, path) in OF_ALL_NAMES {
            let reply = send(client, &caller.token, (Method::GET, path, None)).await;
            let what = format!("{} GET {path}", caller.name);
            note(
                what,
                reply.status,
                reply.code(),
                refusal(caller, right, None),
            );
        }
    }
    (n_calls, surprises)
}

#[test]
fn each_caller_may_do_with_each_name_what_its_role_says() {
    run(async {
        let callers = callers();
        let roles = start(Program::options(), &callers).await;
        let (n_calls, surprises) = surprises(&roles.client(), &callers).await;
        assert!(n_calls > 1000, "vacuous: {n_calls}");
        assert_eq!(surprises, Vec::<String>::new());
        let log = roles.program.stop().await;
        for caller in callers.iter().filter(|caller| !caller.token.is_empty()) {
            assert!(!log.contains(&caller.token), "a token in the log");
        }
    });
}

#[test]
fn a_right_that_is_not_asked_for_is_found_out() {
    run(async {
        let callers = callers();
        let options = Program::options().without_guards("rights-unasked");
        let roles = start(options, &callers).await;
        let (_, surprises) = surprises(&roles.client(), &callers).await;
        assert!(!surprises.is_empty(), "nothing was found");
        for surprise in surprises {
            assert!(surprise.contains("/next"), "{surprise}");
        }
    });
}

#[test]
fn a_list_shows_what_its_reader_may_look_at() {
    run(async {
        let callers = callers();
        let roles = start(Program::options(), &callers).await;
        let client = roles.client();
        for caller in &callers {
            let globs = globs(caller.role, "look");
            let mut all: Vec<&str> = NAMES.to_vec();
            all.sort_unstable();
            let is_all = caller.role == "administrator";
            all.retain(|name| is_all || globs.iter().any(|glob| fits(glob, name)));
            for limit in [1, 2, 100] {
                let mut seen: Vec<String> = Vec::new();
                let mut after = String::new();
                let ended = loop {
                    let path = format!("/v1/sequences?limit={limit}&after={after}");
                    let page = send(&client, &caller.token, (Method::GET, &path, None)).await;
                    if page.status != 200 {
                        break page.status;
                    }
                    let page = page.json();
                    let names = page["sequences"].as_array().expect("a list").iter();
                    seen.extend(
                        names.map(|one| one["sequence"].as_str().expect("a name").to_owned()),
                    );
                    match page["next"].as_str() {
                        Some(next) => next.clone_into(&mut after),
                        None => break 200,
                    }
                };
                assert_eq!(seen, all, "{} by {limit}", caller.name);
                let may_list = is_all || !globs.is_empty();
                assert_eq!(ended == 200, may_list, "{}: {ended}", caller.name);
            }
        }
    });
}

#[test]
fn every_call_of_the_description_needs_the_right_that_it_names() {
    run(async {
        let callers = callers();
        let roles = start(Program::options(), &callers).await;
        let client = roles.client();
        let nobody = callers.iter().find(|caller| caller.name == "nobody");
        let token = nobody
            .map(|caller| caller.token.clone())
            .expect("it is there");
        let description = send(&client, &token, (Method::GET, "/openapi.json", None)).await;
        let description = description.json();
        let (mut n_calls, mut open) = (0, Vec::new());
        for (path, item) in description["paths"].as_object().expect("it has paths") {
            for (method, call) in item.as_object().expect("it has calls") {
                let method: Method = method.to_uppercase().parse().expect("a method");
                let sent = path.replace("{worker}", "0");
                let mut sent = sent.replace("{name}", "orders").replace("{pool}", "orders");
                if sent.ends_with("/blocks") {
                    sent.push_str("?size=1");
                }
                let body = json!({"pool": "orders", "bits": 1, "ttl_ms": 1000, "holder": "h"});
                let body = (path == "/v1/workers").then_some(&body);
                let sent = sent.replace("{key}", "x");
                let reply = send(&client, &token, (method, &sent, body)).await;
                let Some(right) = call["x-odometer-right"].as_str() else {
                    assert_ne!(reply.status, 403, "{sent}: {reply:?}");
                    open.push(path.as_str());
                    continue;
                };
                assert_eq!(reply.status, 403, "{sent}: {reply:?}");
                let detail = reply.json()["detail"].to_string();
                assert!(detail.contains(&format!("`{right}`")), "{sent}: {detail}");
                n_calls += 1;
            }
        }
        assert!(n_calls >= 19, "vacuous: {n_calls}");
        assert_eq!(open, ["/livez", "/openapi.json", "/readyz", "/v1/me"]);
    });
}
