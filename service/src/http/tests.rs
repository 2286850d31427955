//! Tests how calls with a JSON Web Token are decided.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::path::Path;
use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::header;
use actix_web::test::TestRequest;
use futures_util::FutureExt as _;
use odometer_process::metrics::Metrics;
use odometer_tests::directory;
use odometer_tests::token_signer::{TokenSigner, key_set, unix_seconds};
use serde_json::json;

use super::evidence;
use crate::access::credentials::Credentials;
use crate::access::issuers::issuer::IssuerSettings;
use crate::access::role::Role;
use crate::access::settings::AccessSettings;
use crate::calls::access::Access;
use crate::calls::problem::Code;
use crate::calls::wrong_tokens::MAX_AT_ONCE;
use crate::config::{Config, Secret};

/// The administrator's token has the form of a JSON Web Token, too.
const ADMIN: &str = "an.administrator.s-token";

/// Returns what decides with one caller, `billing`, whose tokens `signer` signs for the subject `s`.
fn access(folder: &Path, signer: &TokenSigner) -> Access {
    let [callers_file, jwks_file] = ["callers", "keys"].map(|it| folder.join(it));
    let section = "[billing]\nrole = \"taker\"\nsubject = \"s\"\n";
    std::fs::write(&callers_file, section).expect("our file");
    std::fs::write(&jwks_file, key_set(&[signer])).expect("our file");
    let mut settings = AccessSettings {
        anonymous: Some(Arc::new(Role::new("guest"))),
        callers_file: Some(callers_file),
        issuers: vec![IssuerSettings {
            issuer: "x".to_owned(),
            audience: "o".to_owned(),
            jwks_file,
        }],
        ..AccessSettings::default()
    };
    settings.roles.add(Role::new("taker"));
    let config = Config {
        admin_token: Some(Secret::new(ADMIN)),
        access: Some(settings),
        ..Config::default()
    };
    let metrics = Arc::new(Metrics::new());
    let credentials = Credentials::new(&config, metrics.access_stale.clone());
    let credentials = Arc::new(credentials.expect("its files can be used"));
    Access::new(false, credentials, metrics)
}

fn shows(token: &str, last: u8) -> HttpRequest {
    TestRequest::post()
        .peer_addr(([192, 0, 2, last], 5000).into())
        .insert_header((header::AUTHORIZATION, format!("Bearer {token}")))
        .to_http_request()
}

/// Returns the name of the caller or the code of the refusal; `None` if the call has to wait.
fn who(access: &Access, token: &str, last: u8) -> Option<Result<String, Code>> {
    let request = shows(token, last);
    let evidence = evidence::of(&request);
    let caller = access.identify_itself(&evidence).now_or_never()?;
    Some(match caller {
        Ok(caller) => Ok(caller.name().to_owned()),
        Err(problem) => Err(problem.code()),
    })
}

#[actix_web::test]
async fn a_wrong_json_web_token_waits_as_any_wrong_token_and_a_right_one_does_not() {
    let folder = directory("access");
    let (signer, forger) = (TokenSigner::ed25519("k"), TokenSigner::ed25519("k"));
    let access = access(folder.path(), &signer);
    let claims = json!({"iss": "x", "aud": "o", "sub": "s", "exp": unix_seconds() + 600});
    let [right, wrong] = [&signer, &forger].map(|signer| signer.token(&claims));
    let billing = Some(Ok("billing".to_owned()));
    assert_eq!(who(&access, &right, 1), billing);
    for _ in 0..MAX_AT_ONCE {
        let refused = Some(Err(Code::Unauthenticated));
        assert_eq!(who(&access, &wrong, 1), refused);
    }
    assert_eq!(who(&access, &wrong, 1), None, "it did not wait");
    // One that was remembered, and one that was not.
    let another = signer.token(&json!({
        "iss": "x", "aud": "o", "sub": "s", "exp": unix_seconds() + 900,
    }));
    for right in [&right, &another] {
        assert_eq!(who(&access, right, 1), billing);
    }
    assert_eq!(who(&access, ADMIN, 1), None, "it did not wait");
    let administrator = Some(Ok("administrator".to_owned()));
    assert_eq!(who(&access, ADMIN, 2), administrator);
}

#[actix_web::test]
async fn a_right_json_web_token_in_the_wrong_form_is_wrong() {
    let folder = directory("access");
    let signer = TokenSigner::ed25519("k");
    let access = access(folder.path(), &signer);
    let mut claims = json!({"iss": "x", "aud": "o", "sub": "s", "exp": unix_seconds() + 600});
    let right = signer.token(&claims);
    // Above 4 KiB.
    claims["more"] = json!("m".repeat(4096));
    let long = signer.token(&claims);
    for header in [
        format!("Basic {right}"),
        right.clone(),
        format!("Bearer {long}"),
        format!("Bearer {right} {right}"),
    ] {
        let request = TestRequest::post().insert_header((header::AUTHORIZATION, header));
        let request = request.to_http_request();
        let caller = access.identify_itself(&evidence::of(&request)).await;
        let code = caller.err().map(|problem| problem.code());
        assert_eq!(code, Some(Code::Unauthenticated));
    }
}
