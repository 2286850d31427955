//! Tests what a user sees who has just built the program.

use crate::support::{Program, directory, run};

#[test]
fn without_any_configuration_the_first_number_is_one_and_a_restart_goes_on() {
    run(async {
        let home = directory("first-minute");
        let options = Program::options().in_directory(home.path());

        let program = options.start_ready().await;
        let reply = program.client().post("/v1/sequences/orders/next").await;
        let reply = reply.expect("a reply");
        assert_eq!(reply.status, 200);
        assert_eq!(
            reply.body,
            r#"{"sequence":"orders","period":null,"id":"1","value":"1"}"#
        );
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert_eq!(program.client().next("orders").await, 2);
        program.stop().await;
        assert!(home.path().join("odometer.db").is_file());

        let program = options.start_ready().await;
        assert_eq!(program.client().next("orders").await, 3);
        program.stop().await;
    });
}
