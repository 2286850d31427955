//! Tests which calendars a sequence may have, and what a refusal of the others says.

use serde_json::json;

use crate::support::{Backend, Program, TestDatabase, run};

#[test]
fn a_calendar_that_cannot_be_is_refused_with_what_is_allowed() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let client = program.client();
        for (body, field, said) in [
            (
                json!({"period": "day", "time_zone": "Europe/Berln"}),
                "time_zone",
                "near it: Europe/Berlin",
            ),
            (
                json!({"time_zone": "europe/berlin"}),
                "time_zone",
                "near it: Europe/Berlin",
            ),
            (json!({"time_zone": "+01:00"}), "time_zone", "IANA"),
            (
                json!({"period": "day", "cutover": "25:00"}),
                "cutover",
                "23:59",
            ),
            (
                json!({"period": "year", "year_starts": "02-30"}),
                "year_starts",
                "MM-DD",
            ),
            (
                json!({"period": "year", "year_starts": "02-29"}),
                "year_starts",
                "every year",
            ),
            (
                json!({"period": "month", "year_starts": "04-06"}),
                "year_starts",
                "month",
            ),
            (json!({"retain": "2d"}), "retain", "period_back"),
            (json!({"period_back": "500d"}), "retain", "period_back"),
            (json!({"period_ahead": "9999w"}), "period_ahead", "36525d"),
            (json!({"period": "fortnight"}), "period", "keyed"),
        ] {
            let reply = client
                .put("/v1/sequences/never", &body)
                .await
                .expect("a reply");
            assert_eq!(reply.status, 400, "{body}: {reply:?}");
            assert_eq!(reply.code().as_deref(), Some("invalid_definition"));
            let detail = reply.json()["detail"].to_string();
            assert!(detail.contains(&format!("`{field}`")), "{body}: {detail}");
            assert!(detail.contains(said), "{body}: {detail}");
        }
        let reply = client.get("/v1/sequences/never").await.expect("a reply");
        assert_eq!(reply.status, 404, "{reply:?}");
    });
}
