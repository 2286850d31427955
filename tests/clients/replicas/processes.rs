//! Drivers in several processes, and callers without a library, share a sequence.

use super::{Replicas, SEQUENCE, options};
use crate::{
    clients::{
        driver::Driver,
        language::{Language, for_each_language_and_server},
    },
    support::{Answer, Backend, Client, Ledger, TestDatabase, settings},
};

/// How many calls of each size the callers without a library make.
const N_CALLS: usize = 50;

for_each_language_and_server!(several_processes_never_get_the_same_number);

/// Rule C7.
async fn several_processes_never_get_the_same_number(language: Language, backend: Backend) {
    let n_each = settings::at_size(2_000, 100_000);
    let database = TestDatabase::prepared(backend).await;
    let replicas = Replicas::start(&database, 2).await;
    let options = options(&replicas.endpoints());
    let mut one = Driver::start(language, &options).await;
    let mut other = Driver::start(language, &options).await;
    let step = format!("threads 4 {n_each}");
    let client = replicas.programs[0].client();
    let (of_one, of_other, of_others) =
        tokio::join!(one.take(&step), other.take(&step), taken_by_calls(&client));
    let mut ledger = of_others;
    for given in [of_one, of_other] {
        assert_eq!((given.n_numbers(), &given.error), (4 * n_each, &None));
        ledger.record(SEQUENCE, &given.ranges);
    }
    assert_eq!(ledger.n_duplicates(), 0);
    one.exit().await;
    other.exit().await;
}

async fn taken_by_calls(client: &Client) -> Ledger {
    let mut ledger = Ledger::default();
    for call in ["next", "next?count=7", "blocks?size=30"].repeat(N_CALLS) {
        let path = format!("/v1/sequences/{SEQUENCE}/{call}");
        match client.ask(&path).await {
            Answer::Given(ranges) => ledger.record(SEQUENCE, &ranges),
            answer @ (Answer::Refused(_) | Answer::NoReply(_)) => panic!("{call}: {answer:?}"),
        }
    }
    ledger
}
