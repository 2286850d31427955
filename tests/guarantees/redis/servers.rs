//! Several Redis servers, each of which gives the numbers of some sequences.

use serde_json::json;

use super::{LIMIT, configured, refusal};
use crate::support::{Backend, Options, Program, Redis, TestDatabase, for_each_server, wait};

const N_SERVERS: usize = 3;
const N_SEQUENCES: usize = 24;

struct Stage {
    database: TestDatabase,
    servers: Vec<Redis>,
}

impl Stage {
    async fn new(backend: Backend) -> Self {
        let mut servers = Vec::new();
        for _ in 0..N_SERVERS {
            servers.push(Redis::start().await);
        }
        Self {
            database: TestDatabase::empty(backend).await,
            servers,
        }
    }

    /// Returns options with the servers at these positions of the list.
    fn options(&self, places: &[usize]) -> Options {
        let urls: Vec<String> = places.iter().map(|&at| self.servers[at].url()).collect();
        configured(
            Program::options(),
            &self.database.url,
            &urls.join(","),
            "none",
        )
    }

    fn migrate(&self, places: &[usize]) {
        let migrated = self.options(places).run(&["migrate"]);
        assert_eq!(migrated.code, Some(0), "migrate: {migrated}");
    }
}

fn name(number: usize) -> String {
    format!("spread-{number}")
}

for_each_server!(each_redis_server_gives_the_numbers_of_some_sequences);

async fn each_redis_server_gives_the_numbers_of_some_sequences(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    stage.migrate(&[0, 1, 2]);
    let options = stage.options(&[0, 1, 2]);
    let programs = [options.start_ready().await, options.start_ready().await];
    let clients = programs.each_ref().map(Program::client);
    for number in 0..N_SEQUENCES {
        let name = name(number);
        clients[0].define(&name, &json!({"order": "strict"})).await;
        for expected in 1..=4 {
            let client = &clients[usize::from(expected % 2 == 0)];
            assert_eq!(client.next(&name).await, expected);
        }
    }
    let keys: Vec<Vec<String>> = stage
        .servers
        .iter()
        .map(|server| server.keys("odometer:*:spread-*:*"))
        .collect();
    let n_keys: Vec<usize> = keys.iter().map(Vec::len).collect();
    assert_eq!(n_keys.iter().sum::<usize>(), N_SEQUENCES, "{n_keys:?}");
    assert!(n_keys.iter().all(|n_keys| *n_keys > 0), "{n_keys:?}");

    stage.servers[1].kill();
    for number in 0..N_SEQUENCES {
        let name = name(number);
        let is_there = |key: &String| key.contains(&format!(":{name}:"));
        let is_lost = keys[1].iter().any(is_there);
        for client in &clients {
            let code = refusal(client, &name).await;
            assert_eq!(code.is_some(), is_lost, "{name}: {code:?}");
        }
    }
    stage.servers[1].start_again().await;
    for number in 0..N_SEQUENCES {
        let path = format!("/v1/sequences/{}/next", name(number));
        let number = wait::until("all are given again", LIMIT, async || {
            let reply = clients[0].post(&path).await.expect("a reply");
            (reply.status == 200).then(|| reply.number())
        })
        .await;
        assert!(number > 4, "{path}: {number}");
    }
}

for_each_server!(replicas_with_different_lists_of_servers_do_not_serve_together);

async fn replicas_with_different_lists_of_servers_do_not_serve_together(backend: Backend) {
    let stage = Stage::new(backend).await;
    stage.migrate(&[0, 1]);
    let program = stage.options(&[0, 1]).start_ready().await;
    let client = program.client();
    for number in 0..N_SEQUENCES {
        let name = name(number);
        client.define(&name, &json!({"order": "strict"})).await;
        assert_eq!(client.next(&name).await, 1);
    }
    let other_fallback = stage
        .options(&[0, 1])
        .env("ODOMETER_STORES__DEFAULT__FALLBACK", "database");
    let without = Program::options().database(&stage.database.url);
    for options in [
        stage.options(&[0]),
        stage.options(&[0, 2]),
        stage.options(&[0, 1, 2]),
        other_fallback,
        without,
    ] {
        for command in ["serve", "check"] {
            let options = options.clone().env("ODOMETER_LISTEN", "127.0.0.1:0");
            let refused = options.run(&[command]);
            assert_eq!(refused.code, Some(78), "{command}: {refused}");
            assert!(refused.errors.contains("migrate"), "no mend: {refused}");
        }
    }
    // A replica that still serves with the old list refuses after the change.
    stage.migrate(&[0, 1, 2]);
    for number in 0..N_SEQUENCES {
        let code = refusal(&client, &name(number)).await;
        assert_eq!(code.as_deref(), Some("store_unavailable"));
    }
    program.stop().await;
    // With the new list, all sequences go on above the issued numbers, no matter which server has
    // them now.
    let program = stage.options(&[0, 1, 2]).start_ready().await;
    let client = program.client();
    let before = stage.servers[2].keys("odometer:*:spread-*:*");
    assert_eq!(before, Vec::<String>::new());
    for number in 0..N_SEQUENCES {
        let name = name(number);
        let number = client.next(&name).await;
        assert!(number > 1, "{name}: {number}");
    }
    let moved = stage.servers[2].keys("odometer:*:spread-*:*");
    assert!(!moved.is_empty(), "vacuous: nothing moved");
}

for_each_server!(replicas_that_serve_with_different_lists_are_found_out);

async fn replicas_that_serve_with_different_lists_are_found_out(backend: Backend) {
    let stage = Stage::new(backend).await;
    stage.migrate(&[0, 1]);
    let right = stage.options(&[0, 1]).start_ready().await;
    let other = stage.options(&[0, 2]).without_guards("any-redis");
    let other = other.start_ready().await;
    for number in 0..N_SEQUENCES {
        let name = name(number);
        let client = right.client();
        client.define(&name, &json!({"order": "strict"})).await;
        client.next(&name).await;
        other.client().next(&name).await;
    }
    let strange = stage.servers[2].keys("odometer:*:spread-*:*");
    assert!(
        !strange.is_empty(),
        "no number came from a server that is not on record"
    );
}
