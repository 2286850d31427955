//! Tests who may define sequences, and that names above their bound are found.

use serde_json::{Value, json};

use crate::support::{Backend, Client, Program, Reply, TestDatabase, run};

async fn put(client: &Client, name: &str, body: &Value, headers: &[(&str, &str)]) -> Reply {
    let path = format!("/v1/sequences/{name}");
    client
        .put_with(&path, body, headers)
        .await
        .expect("a reply")
}

#[test]
fn names_created_above_their_bound_are_found_out() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_MAX_SEQUENCES", 3)
            .without_guards("no-bounds")
            .start_ready()
            .await;
        let client = program.client();
        for name in ["one", "two", "three", "four"] {
            assert_eq!(client.next(name).await, 1);
        }
    });
}

/// Callers from other machines may take numbers. Only callers with the token may change
/// definitions.
#[test]
fn definitions_are_changed_from_afar_with_the_token_only() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options()
            .database(&database.url)
            .env("ODOMETER_LISTEN", "0.0.0.0:0")
            .env("ODOMETER_UNKNOWN", "create");
        let mut program = options.start_ready().await;
        let client = program.client();
        assert_eq!(client.next("far").await, 1);
        let reply = put(&client, "far", &json!({"description": "x"}), &[]).await;
        assert_eq!(reply.status, 403, "{reply:?}");
        assert_eq!(reply.code().as_deref(), Some("forbidden"));
        program.kill();
        drop(program);

        let token = "a-token-of-the-administrator";
        let program = options
            .env("ODOMETER_ADMIN_TOKEN", token)
            .start_ready()
            .await;
        let client = program.client();
        let change = json!({"description": "x"});
        let reply = put(&client, "far", &change, &[]).await;
        assert_eq!(reply.status, 401, "{reply:?}");
        assert_eq!(reply.code().as_deref(), Some("unauthenticated"));
        let wrong = [("authorization", "Bearer another-token")];
        assert_eq!(put(&client, "far", &change, &wrong).await.status, 401);
        let bearer = format!("Bearer {token}");
        let right = [("authorization", bearer.as_str())];
        assert_eq!(put(&client, "far", &change, &right).await.status, 200);
        assert!(!program.stop().await.contains(token), "a token in the log");
    });
}
