//! Tests JSON Web Tokens: who is taken for whom, and how keys are replaced while callers go on.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::{ADMIN, Roles, get, post, refused, replace};
use crate::support::token_signer::{
    TokenSigner, key_set, token_of_secret, unix_seconds, unsigned_token,
};
use crate::support::{Options, Program, directory, run, wait};

const LIMIT: Duration = Duration::from_secs(20);
const NEXT: &str = "/v1/sequences/orders/next";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const SUBJECT: &str = "system:serviceaccount:payments:billing";

/// A program that knows one issuer and, by its subject, one caller.
struct Issued {
    roles: Roles,
    keys: TempDir,
}

impl Issued {
    async fn start(options: Options, signers: &[&TokenSigner]) -> Self {
        let keys = directory("issuers");
        let file = keys.path().join("jwks.json");
        std::fs::write(&file, key_set(signers)).expect("our directory");
        let options = options.env("ODOMETER_DEFINITION_REFRESH", "1s");
        let roles = Roles::start(options, &access(&file), &section()).await;
        Self { roles, keys }
    }

    fn file(&self) -> PathBuf {
        self.keys.path().join("jwks.json")
    }

    async fn status(&self, token: &str) -> u16 {
        // On a connection of its own, which remembers no caller.
        post(&self.roles.client(), token, NEXT).await.status
    }

    async fn status_becomes(&self, token: &str, status: u16) {
        wait::until("the file was read again", LIMIT, async || {
            (self.status(token).await == status).then_some(())
        })
        .await;
    }

    async fn is_stale(&self) -> bool {
        let metrics = get(&self.roles.client(), ADMIN, "/metrics").await;
        let mut lines = metrics.body.lines();
        lines.any(|line| line == "odometer_access_stale 1")
    }
}

/// Returns the part of the configuration after `[access]`. A call that falls back to the guest is
/// seen at `/v1/me`.
fn access(keys: &Path) -> String {
    let keys = keys.display();
    format!(
        "anonymous = \"guest\"\n[access.roles.guest]\nlook = [\"*\"]\n\
         [access.roles.taker]\ntake = [\"*\"]\ncreate = [\"*\"]\n\
         [[access.issuers]]\nissuer = \"{ISSUER}\"\naudience = \"odometer\"\n\
         jwks_file = \"{keys}\"\n"
    )
}

fn section() -> String {
    format!("[billing-prod]\nrole = \"taker\"\nsubject = \"{SUBJECT}\"\n")
}

fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": ["odometer"], "sub": SUBJECT,
        "nbf": unix_seconds(), "exp": unix_seconds() + 3600,
    })
}

#[test]
fn a_token_of_each_algorithm_takes_numbers_and_a_wrong_one_is_unauthenticated() {
    run(async {
        let signers = [
            TokenSigner::rs256("r"),
            TokenSigner::es256("p"),
            TokenSigner::ed25519("e"),
        ];
        let issued = Issued::start(Program::options(), &signers.each_ref()).await;
        let client = issued.roles.client();
        let mut shown = Vec::new();
        for signer in &signers {
            let right = signer.token(&claims());
            let reply = post(&client, &right, NEXT).await;
            assert_eq!(reply.status, 200, "{}: {reply:?}", signer.algorithm());
            let me = get(&client, &right, "/v1/me").await.json();
            assert_eq!(
                (&me["caller"], &me["role"]),
                (&json!("billing-prod"), &json!("taker"))
            );
            shown.push(right);
        }
        let unknown = post(&client, "odo_wrong", NEXT).await;
        let mut of_other = claims();
        of_other["sub"] = json!("system:serviceaccount:payments:other");
        let mut over = claims();
        over["exp"] = json!(unix_seconds() - 60);
        for claims in [&of_other, &over] {
            let wrong = signers[1].token(claims);
            let reply = post(&client, &wrong, NEXT).await;
            refused(&reply, 401, "unauthenticated", &claims.to_string());
            assert_eq!(reply.body, unknown.body);
            // It is not taken for a call without a token either.
            let me = get(&client, &wrong, "/v1/me").await;
            refused(&me, 401, "unauthenticated", &claims.to_string());
            shown.push(wrong);
        }
        let log = issued.roles.program.stop().await;
        for token in shown {
            let signature = token.rsplit('.').next().expect("three parts");
            assert!(!log.contains(signature), "a token in the log");
        }
    });
}

/// Shows tokens that no key of the issuer signed. Returns those that took a number.
async fn forgeries_that_took_a_number(options: Options) -> Vec<&'static str> {
    let (signer, forger) = (TokenSigner::es256("k"), TokenSigner::es256("k"));
    let issued = Issued::start(options, &[&signer]).await;
    assert_eq!(issued.status(&signer.token(&claims())).await, 200);
    let right = signer.token(&claims());
    let (message, signature) = right.rsplit_once('.').expect("three parts");
    let (header, _) = message.split_once('.').expect("three parts");
    let mut longer = claims();
    longer["exp"] = json!(unix_seconds() + 1_000_000);
    let other = unsigned_token(&signer.header(), &longer);
    let (_, payload) = other
        .trim_end_matches('.')
        .split_once('.')
        .expect("two parts");
    let mut of_secret = signer.header();
    of_secret["alg"] = json!("HS256");
    let forgeries = [
        ("another key", forger.token(&claims())),
        ("other claims", format!("{header}.{payload}.{signature}")),
        ("no signature", unsigned_token(&signer.header(), &claims())),
        (
            "no algorithm",
            unsigned_token(&json!({"alg": "none", "kid": "k"}), &claims()),
        ),
        (
            "the public key as a secret",
            token_of_secret(signer.public_bytes(), &of_secret, &claims()),
        ),
    ];
    let mut taken = Vec::new();
    for (what, token) in forgeries {
        match issued.status(&token).await {
            200 => taken.push(what),
            status => assert_eq!(status, 401, "{what}"),
        }
    }
    taken
}

#[test]
fn a_forged_token_takes_no_number() {
    run(async {
        let taken = forgeries_that_took_a_number(Program::options()).await;
        assert_eq!(taken, Vec::<&str>::new());
    });
}

#[test]
fn a_signature_that_is_not_checked_is_found_out() {
    run(async {
        let options = Program::options().without_guards("signature-unchecked");
        let taken = forgeries_that_took_a_number(options).await;
        assert_eq!(taken, ["another key", "other claims", "no signature"]);
    });
}

#[test]
fn after_many_forged_tokens_a_right_one_that_is_new_does_not_wait() {
    run(async {
        let (signer, forger) = (TokenSigner::es256("k"), TokenSigner::es256("k"));
        let issued = Issued::start(Program::options(), &[&signer]).await;
        let forged = forger.token(&claims());
        for _ in 0..10 {
            assert_eq!(issued.status(&forged).await, 401);
        }
        let started = Instant::now();
        assert_eq!(issued.status(&forged).await, 401);
        assert!(
            started.elapsed() >= Duration::from_secs(1),
            "it did not wait"
        );
        // As many forged tokens wait as may wait at once. Right ones are answered meanwhile.
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                let (client, forged) = (issued.roles.client(), forged.clone());
                tokio::spawn(async move { post(&client, &forged, NEXT).await.status })
            })
            .collect();
        let mut n_answered = 0;
        while !waiting.iter().all(JoinHandle::is_finished) {
            let mut claims = claims();
            claims["jti"] = json!(n_answered);
            assert_eq!(issued.status(&signer.token(&claims)).await, 200);
            n_answered += 1;
        }
        for forged in waiting {
            assert_eq!(forged.await.expect("a reply"), 401);
        }
        assert!(n_answered >= 5, "vacuous: {n_answered}");
    });
}

#[test]
fn keys_are_replaced_without_a_refused_call() {
    run(async {
        let (old, new) = (TokenSigner::rs256("old"), TokenSigner::es256("new"));
        let issued = Issued::start(Program::options(), &[&old]).await;
        let of_old = old.token(&claims());
        let of_new = new.token(&claims());
        let token = Arc::new(Mutex::new(of_old.clone()));
        let (is_over, n_calls) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let calling = {
            let (client, token) = (issued.roles.client(), Arc::clone(&token));
            let (is_over, n_calls) = (Arc::clone(&is_over), Arc::clone(&n_calls));
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let shown = token.lock().expect("a token").clone();
                    let reply = post(&client, &shown, NEXT).await;
                    assert_eq!(reply.status, 200, "{reply:?}");
                    n_calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        assert_eq!(
            issued.status(&of_new).await,
            401,
            "its key is not known yet"
        );
        replace(&issued.file(), &key_set(&[&old, &new]));
        issued.status_becomes(&of_new, 200).await;
        token.lock().expect("a token").clone_from(&of_new);
        // A call with the former token may be under way.
        let n_before = n_calls.load(Ordering::Relaxed);
        wait::until("calls show the new token", LIMIT, async || {
            (n_calls.load(Ordering::Relaxed) > n_before + 1).then_some(())
        })
        .await;
        replace(&issued.file(), &key_set(&[&new]));
        issued.status_becomes(&of_old, 401).await;
        is_over.store(true, Ordering::Relaxed);
        calling.await.expect("no call was refused");
        assert!(n_calls.load(Ordering::Relaxed) > 50, "vacuous: {n_calls:?}");
    });
}

#[test]
fn a_subject_is_withdrawn_by_the_file_of_callers() {
    run(async {
        let signer = TokenSigner::ed25519("k");
        let issued = Issued::start(Program::options(), &[&signer]).await;
        let token = signer.token(&claims());
        assert_eq!(issued.status(&token).await, 200);
        let expired = format!("{}expires = 2020-01-01\n", section());
        for without in [String::new(), expired] {
            replace(&issued.roles.callers_file(), &without);
            issued.status_becomes(&token, 401).await;
            replace(&issued.roles.callers_file(), &section());
            issued.status_becomes(&token, 200).await;
        }
    });
}

#[test]
fn a_broken_file_of_keys_changes_nothing_and_is_told() {
    run(async {
        let signer = TokenSigner::ed25519("k");
        let issued = Issued::start(Program::options(), &[&signer]).await;
        let token = signer.token(&claims());
        assert!(!issued.is_stale().await);
        for broken in ["{", "{\"keys\": []}"] {
            replace(&issued.file(), broken);
            wait::until("the metric says so", LIMIT, async || {
                issued.is_stale().await.then_some(())
            })
            .await;
            assert_eq!(issued.status(&token).await, 200);
            replace(&issued.file(), &key_set(&[&signer]));
            wait::until("it is over", LIMIT, async || {
                (!issued.is_stale().await).then_some(())
            })
            .await;
        }
        assert_eq!(issued.status(&token).await, 200);
        let log = issued.roles.program.stop().await;
        for said in [
            "access.issuers[0].jwks_file: ",
            "jwks.json: not a JSON Web Key Set",
            "it has no key that verifies tokens",
            "can be read again",
        ] {
            assert!(log.contains(said), "no {said}: {log}");
        }
    });
}

#[test]
fn issuers_without_a_file_of_callers_end_the_start() {
    let folder = directory("issuers");
    let file = |name: &str| folder.path().join(name);
    let keys = key_set(&[&TokenSigner::ed25519("k")]);
    std::fs::write(file("jwks.json"), keys).expect("our directory");
    let config = format!("[access]\n{}", access(&file("jwks.json")));
    std::fs::write(file("odometer.toml"), config).expect("our directory");
    let options = Program::options()
        .env("ODOMETER_CONFIG", file("odometer.toml").display())
        .env("ODOMETER_LISTEN", "127.0.0.1:0");
    for command in ["serve", "check"] {
        let finished = options.run(&[command]);
        assert_eq!(finished.code, Some(78), "{command}: {finished}");
        for said in ["access.issuers in ", "give access.callers_file as well"] {
            assert!(finished.errors.contains(said), "{command}: {finished}");
        }
    }
}

#[test]
fn the_files_of_keys_are_checked_before_the_start() {
    let folder = directory("issuers");
    let file = |name: &str| folder.path().join(name);
    let config = format!(
        "[access]\ncallers_file = \"{}\"\n{}",
        file("callers.toml").display(),
        access(&file("jwks.json"))
    );
    std::fs::write(file("odometer.toml"), config).expect("our directory");
    std::fs::write(file("callers.toml"), section()).expect("our directory");
    let options = Program::options()
        .env("ODOMETER_CONFIG", file("odometer.toml").display())
        .env("ODOMETER_LISTEN", "127.0.0.1:0")
        .env(
            "ODOMETER_DATABASE_URL",
            "postgres://nobody@127.0.0.1:9/none",
        );
    for arguments in [
        &["serve"][..],
        &["check"],
        &["check", "--as", "billing-prod"],
    ] {
        let finished = options.run(arguments);
        assert_eq!(finished.code, Some(78), "{arguments:?}: {finished}");
        let said = "access.issuers[0].jwks_file: ";
        assert!(finished.errors.contains(said), "{arguments:?}: {finished}");
    }
    let keys = key_set(&[&TokenSigner::ed25519("k")]);
    std::fs::write(file("jwks.json"), keys).expect("our directory");
    let finished = options.run(&["check", "--as", "billing-prod"]);
    assert_eq!(finished.code, Some(0), "{finished}");
    let finished = options.run(&["check"]);
    assert!(
        finished.output.contains("issuers: 1 with 1 keys"),
        "{finished}"
    );
}
