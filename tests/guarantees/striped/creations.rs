//! The first use of a name, and databases that missed it.

use serde_json::{Value, json};

use super::{
    KINDS, LIMIT, Stripes, behind_proxies, configured, first, n_twice, residue, residues, take,
    until_so_many_give,
};
use crate::support::{Link, Options, Program, run, settled, wait};

#[test]
fn a_database_that_missed_a_creation_serves_at_the_level_of_the_others() {
    run(async {
        let stripes = Stripes::new().await;
        for k in 0..KINDS.len() {
            let (first, level) = returned(&stripes, Program::options(), k).await;
            assert!(first > level, "{first} of {k} below {level}");
            let query = format!("SELECT count(*) FROM sequence WHERE name = 'created-{k}'");
            assert_eq!(stripes.numbers(&query).await, [Some(1); KINDS.len()]);
        }
    });
}

#[test]
fn without_levelling_a_database_that_missed_a_creation_starts_far_below() {
    run(async {
        let stripes = Stripes::new().await;
        let options = Program::options().without_guards("no-catch-up");
        let (first, level) = returned(&stripes, options, 1).await;
        assert!(
            first <= level,
            "the check finds nothing: {first} above {level}"
        );
    });
}

/// Returns the first number of a database that was away when the name was created. Also returns the
/// highest number that was issued before the database came back.
async fn returned(stripes: &Stripes, options: Options, k: usize) -> (i64, i64) {
    let program = stripes.options(options).start_ready().await;
    let client = program.client();
    let name = format!("created-{k}");
    stripes.set(k, Link::Cut);
    first(&client, &name).await;
    let values = until_so_many_give(&client, &name, KINDS.len() - 1).await;
    assert_eq!(n_twice(&values), 0, "{values:?}");
    assert!(!residues(&values).contains(&k), "{k} gave some: {values:?}");
    let level = values.into_iter().max().expect("there are some");
    stripes.set(k, Link::Whole);
    let first = wait::until("it gives numbers", LIMIT, async || {
        let values = take(&client, &name, 20).await;
        values.into_iter().find(|value| residue(*value) == k)
    })
    .await;
    program.stop().await;
    (first, level)
}

#[test]
fn no_name_is_created_without_more_than_half_of_the_databases() {
    run(async {
        let stripes = Stripes::new().await;
        let (twice, created) = created_apart(&stripes, Program::options()).await;
        assert_eq!((twice, created), (0, 0));
    });
}

#[test]
fn names_created_in_a_minority_repeat_numbers() {
    run(async {
        let stripes = Stripes::new().await;
        let options = Program::options().without_guards("loose-creation");
        let (twice, created) = created_apart(&stripes, options).await;
        assert!(created > 0 && twice > 0, "the check finds nothing");
    });
}

/// Lets two replicas create a name differently, each in another database. Returns how many numbers
/// were issued twice, and how many in all.
async fn created_apart(stripes: &Stripes, options: Options) -> (u64, usize) {
    let (proxies, urls) = behind_proxies(&stripes.databases).await;
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let one = stripes.options(options.clone()).start_ready().await;
    let other = configured(options, &urls)
        .env("ODOMETER_STORE__TIMEOUT", "1s")
        .env("ODOMETER_DEFAULT__START", "2")
        .start_ready()
        .await;
    // With start 2 the last database has what the first would give: 1, 4, 7 … and 4, 7, 10 …
    for (k, proxy) in proxies.iter().enumerate() {
        stripes.set(k, if k == 0 { Link::Whole } else { Link::Cut });
        proxy.set(if k == 2 { Link::Whole } else { Link::Cut });
    }
    let (one, other) = (one.client(), other.client());
    let mut values = Vec::new();
    for client in [&one, &other] {
        for _ in 0..20 {
            let path = "/v1/sequences/apart/next";
            let reply = client.post(path).await.expect("a reply");
            match reply.status {
                200 => values.extend(reply.values()),
                _ => assert_eq!(reply.status, 503, "{reply:?}"),
            }
        }
    }
    for (k, proxy) in proxies.iter().enumerate() {
        stripes.set(k, Link::Whole);
        proxy.set(Link::Whole);
    }
    (n_twice(&values), values.len())
}

#[test]
fn of_all_who_create_a_name_at_once_one_does() {
    run(async {
        let stripes = Stripes::new().await;
        let options = stripes.options(Program::options());
        let programs = [options.start_ready().await, options.start_ready().await];
        for n_name in 0..20 {
            let path = format!("/v1/sequences/raced-{n_name}");
            let callers: Vec<_> = programs
                .iter()
                .cycle()
                .take(6)
                .enumerate()
                .map(|(n_caller, program)| {
                    let (client, path) = (program.client(), path.clone());
                    let body = json!({"description": format!("of caller {n_caller}")});
                    tokio::spawn(async move {
                        let only_new = [("if-none-match", "*")];
                        let mut n_asked = 0;
                        let reply = settled(|| {
                            n_asked += 1;
                            client.put_with(&path, &body, &only_new)
                        })
                        .await;
                        (reply.status, n_asked > 1, body)
                    })
                })
                .collect();
            let mut replies = Vec::new();
            for caller in callers {
                replies.push(caller.await.expect("a caller does not panic"));
            }
            // A caller that asked again after an uncertain outcome may find its own sequence.
            let may_be_made = replies
                .iter()
                .filter(|(status, again, _)| *status == 201 || *again);
            let may_be_made: Vec<_> = may_be_made.map(|(_, _, body)| body.clone()).collect();
            let n_with = |wanted: u16| replies.iter().filter(|reply| reply.0 == wanted).count();
            let (n_created, n_refused) = (n_with(201), n_with(412));
            assert_eq!(n_created + n_refused, replies.len(), "{path}: {replies:?}");
            assert!(n_created <= 1, "{path}: {replies:?}");
            for program in &programs {
                let is = &program.client().describe(&format!("raced-{n_name}")).await["definition"];
                let is_of = |body: &Value| body["description"] == is["description"];
                assert!(may_be_made.iter().any(is_of), "{is}: {replies:?}");
            }
        }
    });
}

#[test]
fn callers_who_use_a_name_first_at_once_get_different_numbers() {
    run(async {
        let stripes = Stripes::new().await;
        let options = stripes.options(Program::options());
        let programs = [options.start_ready().await, options.start_ready().await];
        let mut callers = Vec::new();
        for n_caller in 0..40 {
            let client = programs[n_caller % 2].client();
            callers.push(tokio::spawn(async move {
                let mut values = Vec::new();
                for n_name in 0..10 {
                    values.push(first(&client, &format!("first-{n_name}")).await);
                }
                values
            }));
        }
        let mut all = vec![Vec::new(); 10];
        for caller in callers {
            let values = caller.await.expect("a caller does not panic");
            for (own, value) in all.iter_mut().zip(values) {
                own.push(value);
            }
        }
        for values in all {
            assert_eq!((n_twice(&values), values.len()), (0, 40), "{values:?}");
        }
    });
}
