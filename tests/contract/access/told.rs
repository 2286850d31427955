//! Tests what callers, operators and the log are told about access.

use reqwest::Method;
use serde_json::{Value, json};

use super::certificates::{BILLING, Certified, WEB, section};
use super::{ADMIN, Roles, TestCaller, get, post, refused, send};
use crate::support::{Backend, Program, TestDatabase, directory, run};

const ACCESS: &str = "\
anonymous = \"guest\"
[access.roles.guest]
look = [\"public-*\"]
[access.roles.billing]
take = [\"orders\", \"invoice-*\"]
define = [\"invoice-*\"]
";

async fn start() -> (Roles, TestCaller) {
    let caller = TestCaller::new("billing-prod", "billing");
    let roles = Roles::start(Program::options(), ACCESS, &caller.section()).await;
    (roles, caller)
}

#[test]
fn a_caller_learns_who_it_is_and_what_it_may_do() {
    run(async {
        let (roles, caller) = start().await;
        let client = roles.client();
        let me = get(&client, &caller.token, "/v1/me").await;
        let none: [&str; 0] = [];
        assert_eq!(
            me.json(),
            json!({"caller": "billing-prod", "role": "billing", "rights": {
                "take": ["orders", "invoice-*"], "block": none, "create": none,
                "define": ["invoice-*"], "lease": none, "look": none,
            }, "numbers_per_second": null, "names": null, "workers": null, "share": "1%"}),
            "{me:?}"
        );
        let me = get(&client, "", "/v1/me").await.json();
        assert_eq!(
            (&me["caller"], &me["role"]),
            (&json!("anonymous"), &json!("guest"))
        );
        let me = get(&client, ADMIN, "/v1/me").await.json();
        assert_eq!(
            (&me["caller"], &me["role"]),
            (&json!("administrator"), &Value::Null)
        );
        assert_eq!(me["rights"]["define"], json!(["*"]));
        refused(
            &get(&client, "x", "/v1/me").await,
            401,
            "unauthenticated",
            "a wrong token",
        );
    });
}

#[test]
fn without_roles_a_caller_learns_whether_it_may_define() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let open = options.clone().start_ready().await;
        let me = open.client().get("/v1/me").await.expect("a reply").json();
        assert_eq!(
            (&me["caller"], &me["role"]),
            (&json!("loopback"), &Value::Null)
        );
        assert_eq!(me["rights"]["define"], json!(["*"]));
        drop(open);
        let closed = options
            .env("ODOMETER_ADMIN_TOKEN", ADMIN)
            .start_ready()
            .await;
        let me = get(&closed.client(), "", "/v1/me").await.json();
        assert_eq!(
            (&me["caller"], &me["role"]),
            (&json!("everybody"), &Value::Null)
        );
        assert_eq!(
            (&me["rights"]["define"], &me["rights"]["take"]),
            (&json!([]), &json!(["*"]))
        );
        let me = get(&closed.client(), ADMIN, "/v1/me").await.json();
        assert_eq!(me["caller"], "administrator");
    });
}

#[test]
fn a_refusal_names_the_role_the_right_and_the_name_and_is_counted() {
    run(async {
        let (roles, caller) = start().await;
        let client = roles.client();
        let path = "/v1/sequences/other/next";
        let reply = post(&client, &caller.token, path).await;
        refused(&reply, 403, "forbidden", path);
        let detail = reply.json()["detail"].to_string();
        for part in ["`billing`", "`take`", "`other`", "[access.roles.billing]"] {
            assert!(detail.contains(part), "{detail}");
        }
        let metrics = get(&client, ADMIN, "/metrics").await.body;
        let counted = "odometer_access_refused_total{role=\"billing\",right=\"take\"} 1";
        assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    });
}

#[test]
fn who_changed_it_is_in_the_log_and_limit_and_store_are_the_administrator_s() {
    run(async {
        let (roles, caller) = start().await;
        let client = roles.client();
        let path = "/v1/sequences/invoice-1";
        let description = json!({"description": "x"});
        let made = send(
            &client,
            &caller.token,
            (Method::PUT, path, Some(&description)),
        )
        .await;
        assert_eq!(made.status, 201, "{made:?}");
        for fields in [
            json!({"limit": {"rate": 9, "burst": 900}}),
            json!({"declared_rate": 5}),
            json!({"block": {"min": 2}}),
            json!({"store": "default"}),
        ] {
            let call = (Method::PUT, path, Some(&fields));
            let reply = send(&client, &caller.token, call.clone()).await;
            refused(&reply, 403, "forbidden", &fields.to_string());
            let reply = send(&client, ADMIN, call).await;
            assert_eq!(reply.status, 200, "{fields}: {reply:?}");
        }
        let log = roles.program.stop().await;
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let audit: Vec<Value> = lines
            .filter(|line: &Value| line["target"] == "odometer::audit")
            .collect();
        let mut who: Vec<[&Value; 3]> = audit
            .iter()
            .map(|line| [&line["who"], &line["how"], &line["role"]])
            .collect();
        who.dedup();
        let (by_token, no_role) = (&json!("token"), &Value::Null);
        let expected = [
            [&json!("billing-prod"), by_token, &json!("billing")],
            [&json!("administrator"), by_token, no_role],
        ];
        assert_eq!(who, expected, "{audit:?}");
    });
}

#[test]
fn the_audit_says_by_what_a_caller_is_known() {
    const ORDERS: &str = "/v1/sequences/orders";
    const RESTORE: &str = "/v1/sequences/orders/restore";
    run(async {
        let access = "anonymous = \"definer\"\n[access.roles.definer]\ndefine = [\"*\"]\n\
            [access.roles.taker]\ntake = [\"*\"]\ncreate = [\"*\"]\n";
        let other = TestCaller::new("by-token", "definer");
        let sections = [
            section("billing", "definer", BILLING),
            section("web", "taker", WEB),
            other.section(),
        ];
        let service = Certified::start(Program::options(), access, &sections.concat()).await;
        let billing = service.authority.sign(&[BILLING]);
        let web = service.authority.sign(&[WEB]);
        assert_eq!(service.take(Some(&web), "").await.status, 200);
        for (shown, token, call, status) in [
            (Some(&web), "", ("DELETE", ORDERS), 403),
            (Some(&billing), "", ("DELETE", ORDERS), 204),
            // A token beats the certificate.
            (Some(&billing), &*other.token, ("POST", RESTORE), 200),
            (None, "", ("DELETE", ORDERS), 204),
        ] {
            let reply = service.call(shown, token, call).await;
            let reply = reply.expect("a reply");
            assert_eq!(reply.status, status, "{call:?}: {reply:?}");
        }
        let log = service.roles.program.stop().await;
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let audit = lines.filter(|line: &Value| line["target"] == "odometer::audit");
        let mut told: Vec<[String; 4]> = audit
            .map(|line| {
                let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
                ["what", "who", "how", "role"].map(text)
            })
            .collect();
        told.sort();
        let expected = [
            ["define", "web", "certificate", "taker"],
            ["first-use", "web", "certificate", "taker"],
            ["restore", "by-token", "token", "definer"],
            ["retire", "anonymous", "nothing", "definer"],
            ["retire", "billing", "certificate", "definer"],
        ];
        assert_eq!(told, expected, "{log}");
    });
}

#[test]
fn a_token_is_made_and_its_section_is_of_use() {
    let finished = Program::options().run(&["token", "billing-prod", "--role", "billing"]);
    assert_eq!(finished.code, Some(0), "{finished}");
    let mut lines = finished
        .output
        .lines()
        .filter(|line| !line.starts_with('#'));
    let token = lines.next().expect("a token").to_owned();
    let section: String = lines.map(|line| format!("{line}\n")).collect();
    run(async move {
        let roles = Roles::start(Program::options(), ACCESS, &section).await;
        let me = get(&roles.client(), &token, "/v1/me").await.json();
        assert_eq!(me["caller"], "billing-prod");
    });
    for wrong in [["a b", "--role", "billing"], ["a", "--role", ""]] {
        let finished = Program::options().run(&[&["token"][..], &wrong[..]].concat());
        assert_eq!(finished.code, Some(2), "{finished}");
    }
}

#[test]
fn what_a_caller_may_do_is_said_without_a_database() {
    let caller = TestCaller::new("billing-prod", "billing");
    let folder = directory("access");
    let callers = folder.path().join("callers.toml");
    std::fs::write(&callers, caller.section()).expect("our directory");
    let config = folder.path().join("odometer.toml");
    let text = format!(
        "[access]\ncallers_file = \"{}\"\n{ACCESS}",
        callers.display()
    );
    std::fs::write(&config, text).expect("our directory");
    let options = Program::options()
        .env("ODOMETER_CONFIG", config.display())
        .env(
            "ODOMETER_DATABASE_URL",
            "postgres://nobody@127.0.0.1:9/none",
        );
    let check = |arguments: &[&str]| {
        let all = [&["check", "--as"][..], arguments].concat();
        options.run(&all)
    };
    let finished = check(&["billing-prod"]);
    assert_eq!(finished.code, Some(0), "{finished}");
    let lines: Vec<&str> = finished.output.lines().collect();
    let expected = [
        "# billing-prod: role billing",
        "take: on \"orders\", \"invoice-*\"",
        "block: no",
        "create: no",
        "define: on \"invoice-*\"",
        "lease: no",
        "look: no",
        "share: 1% of what is left in one call",
    ];
    assert_eq!(lines, expected);
    let finished = check(&["billing-prod", "--name", "invoice-7"]);
    assert!(
        finished.output.contains("take: yes, by \"invoice-*\""),
        "{finished}"
    );
    let finished = check(&["anonymous", "--name", "public-1"]);
    assert!(
        finished.output.contains("look: yes, by \"public-*\""),
        "{finished}"
    );
    for unknown in ["other", "billing"] {
        let finished = check(&[unknown]);
        assert_eq!(finished.code, Some(2), "{finished}");
        assert!(finished.errors.contains("file of callers"), "{finished}");
    }
}
