//! Several stores from an operator's view: what the commands do with each of them, and what the
//! program shows.

use std::time::Duration;

use serde_json::json;

use crate::support::{
    Backend, Options, PASSWORD, Program, Redis, Scrape, TestDatabase, directory, ports, run, wait,
};

const LIMIT: Duration = Duration::from_secs(30);

/// A default store and another store.
struct Stage {
    default: TestDatabase,
    other: TestDatabase,
}

impl Stage {
    async fn new() -> Self {
        Self {
            default: TestDatabase::prepared(Backend::Postgres).await,
            other: TestDatabase::prepared(Backend::MariaDb).await,
        }
    }

    fn options(&self) -> Options {
        self.options_with(&self.other.url)
    }

    /// Returns options with the other store at `url`.
    fn options_with(&self, url: &str) -> Options {
        Program::options()
            .database(&self.default.url)
            .env("ODOMETER_STORES__OTHER__DATABASE", url)
    }

    /// Returns options with the other store on a port where nobody listens.
    fn away(&self) -> Options {
        let (start, name) = self.other.url.rsplit_once('/').expect("a name");
        let (start, _port) = start.rsplit_once(':').expect("a port");
        // The program gives up a connection after this time.
        self.options_with(&format!("{start}:{}/{name}", ports::free()))
            .env("ODOMETER_POOL__ACQUIRE", "1s")
    }

    /// Uses a sequence in each store, and returns a number of each.
    async fn used(&self) -> [i64; 2] {
        let program = self.options().start_ready().await;
        let client = program.client();
        client.define("here", &json!({})).await;
        client.define("there", &json!({"store": "other"})).await;
        let numbers = [client.next("here").await, client.next("there").await];
        program.stop().await;
        numbers
    }

    async fn next_values(&self) -> [Option<i64>; 2] {
        [
            self.default.next_value("here").await,
            self.other.next_value("there").await,
        ]
    }
}

#[test]
fn the_commands_look_at_every_store() {
    run(async {
        let stage = Stage::new().await;
        stage.used().await;
        for command in ["migrate", "check"] {
            let finished = stage.options().run(&[command]);
            assert_eq!(finished.code, Some(0), "{command}: {finished}");
            let said = format!("{}{}", finished.output, finished.errors);
            for database in [&stage.default, &stage.other] {
                let (_, place) = database.url.split_once('@').expect("an account");
                assert!(said.contains(place), "{command}: {place}? {finished}");
            }
            assert!(said.contains("stores.other"), "{command}: {finished}");
            let away = stage.away().run(&[command]);
            assert!(
                away.code.is_some_and(|code| code != 0 && code != 78),
                "{command}: {away}"
            );
            assert!(away.errors.contains("stores.other"), "{command}: {away}");
            assert!(!away.to_string().contains(PASSWORD), "{command}: {away}");
        }
    });
}

#[test]
fn a_recovery_is_for_all_stores_or_for_one() {
    run(async {
        let stage = Stage::new().await;
        stage.used().await;
        let [here, there] = stage
            .next_values()
            .await
            .map(|value| value.expect("created"));
        let only = ["recover", "--yes", "--skip", "1000", "--store", "other"];
        let finished = stage.options().run(&only);
        assert_eq!(finished.code, Some(0), "{finished}");
        let expected = [Some(here), Some(there + 1000)];
        assert_eq!(stage.next_values().await, expected);
        let finished = stage.options().run(&["recover", "--yes", "--skip", "1000"]);
        assert_eq!(finished.code, Some(0), "{finished}");
        let expected = [Some(here + 1000), Some(there + 2000)];
        assert_eq!(stage.next_values().await, expected);

        // A store that is away is named, and does not prevent the recovery of the other store.
        let finished = stage.away().run(&["recover", "--yes", "--skip", "1000"]);
        assert_eq!(finished.code, Some(1), "{finished}");
        assert!(finished.errors.contains("stores.other"), "{finished}");
        let expected = [Some(here + 2000), Some(there + 2000)];
        assert_eq!(stage.next_values().await, expected);
        let nowhere = ["recover", "--yes", "--skip", "1000", "--store", "nowhere"];
        let finished = stage.options().run(&nowhere);
        assert_eq!(finished.code, Some(78), "{finished}");
        assert!(finished.errors.contains("nowhere"), "{finished}");
    });
}

#[test]
fn urls_of_stores_may_stand_in_files() {
    run(async {
        let stage = Stage::new().await;
        let home = directory("stores");
        let secret = home.path().join("urls");
        std::fs::write(&secret, format!("{}\n", stage.other.url)).expect("our directory");
        let file = format!(
            "[stores.other]\ndatabase_file = \"{}\"\n\n[default]\nstore = \"other\"\n",
            secret.display()
        );
        std::fs::write(home.path().join("odometer.toml"), file).expect("our directory");
        let program = Program::options()
            .database(&stage.default.url)
            .in_directory(home.path())
            .start_ready()
            .await;
        let client = program.client();
        client.next("orders").await;
        let state = client.describe("orders").await["state"].clone();
        assert_eq!(state["store"]["name"], "other", "{state}");
        assert!(stage.other.next_value("orders").await.is_some());
        assert_eq!(stage.default.next_value("orders").await, None);
    });
}

#[test]
fn what_serves_a_sequence_and_whether_it_answers_is_shown() {
    run(async {
        let stage = Stage::new().await;
        let mut redis = Redis::start().await;
        let options = stage
            .options()
            .env("ODOMETER_STORES__OTHER__REDIS", redis.url());
        let migrated = options.run(&["migrate"]);
        assert_eq!(migrated.code, Some(0), "{migrated}");
        let program = options.start_ready().await;
        let client = program.client();
        client.define("here", &json!({})).await;
        let strict = json!({"store": "other", "order": "strict"});
        client.define("there", &strict).await;
        client.define("beside", &json!({"store": "other"})).await;
        for name in ["here", "there", "beside"] {
            client.next(name).await;
        }

        let here = client.describe("here").await["state"]["store"].clone();
        assert_eq!(here["name"], "default", "{here}");
        assert_eq!(here["kind"], "database", "{here}");
        assert_eq!(here["databases"][0]["up"], true, "{here}");
        let there = client.describe("there").await["state"]["store"].clone();
        assert_eq!(there["kind"], "redis", "{there}");
        let shown = &there["redis"];
        assert_eq!(shown["up"], true, "{there}");
        assert_eq!(shown["window"], 1, "{there}");
        let ceiling = shown["ceiling"].as_str().expect("a number in a string");
        let ceiling: Option<i64> = ceiling.parse().ok();
        assert_eq!(ceiling, stage.other.next_value("there").await, "{there}");
        assert!(!there.to_string().contains(PASSWORD), "{there}");

        let scrape = Scrape::of(&client).await;
        for store in ["default", "other"] {
            let up = scrape.sum("odometer_database_up", &[("store", store)]);
            assert_eq!(up, 1.0, "{store}");
            let reserved = "odometer_database_reservations_total";
            let n_reserved = scrape.sum(reserved, &[("store", store)]);
            assert!(n_reserved >= 1.0, "{store}: {n_reserved}");
        }
        redis.kill();
        let refused = client.post("/v1/sequences/there/next").await;
        assert_eq!(refused.expect("a reply").status, 503);
        wait::until("it is seen to be away", LIMIT, async || {
            let there = client.describe("there").await["state"]["store"].clone();
            let up = Scrape::of(&client).await.sum("odometer_redis_up", &[]);
            (there["redis"]["up"] == false && up == 0.0).then_some(())
        })
        .await;
    });
}
