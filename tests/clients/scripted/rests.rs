//! How long a replica that failed is left alone, and which call tries it again.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{kept::case_of, player::options, stage::Stage};
use crate::{
    clients::{
        driver::{Driver, Given},
        language::{Language, for_each_language},
    },
    support::wait,
};

/// How long the events of a test may take.
const LIMIT: Duration = Duration::from_secs(60);
/// The first rest of a replica that failed. The next one is twice as long.
const FIRST_REST: Duration = Duration::from_secs(1);
/// After this time the first rest is over, with all that a library adds to it at random.
const AFTER_FIRST_REST: Duration = Duration::from_millis(2500);
const N_THREADS: usize = 8;
const N_EACH: usize = 20;

/// Two replicas and a driver that calls for each number.
///
/// The replica that is called first answers by a script. The other one closes its connection with
/// each reply, so that the library then looks which replica is next.
struct Scene {
    stage: Stage,
    driver: Driver,
}

impl Scene {
    async fn start(language: Language, first: Value) -> Self {
        let other = json!([{"always": "give_then_close"}]);
        let case = case_of(json!([first, other]), json!({"order": "strict"}));
        let stage = Stage::start(&case).await;
        let driver = Driver::start(language, &options(&case, stage.endpoints())).await;
        Self { stage, driver }
    }

    /// Returns when the calls for numbers reached a replica.
    fn arrivals(&self, replica: usize) -> Vec<Instant> {
        let log = self.stage.log();
        let calls = log.calls.iter().filter(|call| call.is_for_numbers());
        let calls = calls.filter(|call| call.replica == replica);
        calls.map(|call| call.arrived).collect()
    }
}

for_each_language!(
    a_replica_that_fails_again_rests_twice_as_long,
    one_call_alone_tries_a_replica_that_failed,
);

async fn a_replica_that_fails_again_rests_twice_as_long(language: Language) {
    let mut scene = Scene::start(language, json!(["cut", "cut", "cut"])).await;
    let failed = wait::until("the replica failed three times", LIMIT, async || {
        let given = scene.driver.take("next 1").await;
        assert_eq!((given.n_numbers(), &given.error), (1, &None));
        Some(scene.arrivals(0)).filter(|failed| failed.len() >= 3)
    })
    .await;
    let pairs = failed.windows(2);
    let rests: Vec<Duration> = pairs.map(|pair| pair[1].duration_since(pair[0])).collect();
    assert!(rests[0] >= FIRST_REST, "{rests:?}");
    assert!(rests[1] >= 2 * FIRST_REST, "{rests:?}");
    scene.driver.exit().await;
}

async fn one_call_alone_tries_a_replica_that_failed(language: Language) {
    let step = format!("threads {N_THREADS} {N_EACH}");
    let mut scene = Scene::start(language, json!(["cut", {"hold": "give"}])).await;
    let given = scene.driver.take("next 1").await;
    assert_eq!((given.n_numbers(), &given.error), (1, &None));
    tokio::time::sleep(AFTER_FIRST_REST).await;
    scene.driver.send(&step).expect("the driver reads steps");
    // The caller whose call tries the replica waits, and all others go on.
    let n_of_others = 1 + (N_THREADS - 1) * N_EACH;
    wait::until("all other callers got their numbers", LIMIT, async || {
        (scene.arrivals(1).len() >= n_of_others).then_some(())
    })
    .await;
    assert_eq!(
        scene.arrivals(0).len(),
        2,
        "calls of the replica that failed"
    );
    scene.stage.release(1);
    let answer = scene.driver.answer().await.expect("an answer");
    let given = Given::parse(&answer).unwrap_or_else(|| panic!("{step}: {answer}"));
    assert_eq!(
        (given.values().len(), given.error),
        (N_THREADS * N_EACH, None),
        "{answer}"
    );
    scene.driver.exit().await;
}
