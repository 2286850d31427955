//! Tests that the OpenAPI description is the one of the snapshot.

use serde_json::Value;

use crate::support::{Backend, Program, TestDatabase, run};

#[test]
fn the_contract_changes_only_on_purpose() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let reply = program
            .client()
            .get("/openapi.json")
            .await
            .expect("a reply");
        assert_eq!(reply.status, 200);
        let mut contract = reply.json();
        let version = contract["openapi"].as_str().expect("a version").to_owned();
        assert!(version.starts_with("3.1"), "{version}");
        // The snapshot leaves out the version of the program, because the version is no part of the
        // contract.
        contract["info"]["version"] = Value::String("(any)".to_owned());
        let text = serde_json::to_string_pretty(&contract).expect("JSON is printable");
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../snapshots");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!("openapi", text));
    });
}
