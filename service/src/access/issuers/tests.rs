//! Tests which JSON Web Tokens are right, and which files of keys are of use.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may fail loudly"
)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use odometer_tests::directory;
use odometer_tests::token_signer::{TokenSigner, key_set, token_of_secret, unsigned_token};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::issuer::{Identity, IssuerSettings, TokenIssuers};
use super::key_set::KeySet;

const ISSUER: &str = "https://issuer.example";
const SUBJECT: &str = "system:serviceaccount:payments:billing";

/// When the tokens of these tests are shown, in seconds since 1970.
const NOW: u64 = 1_800_000_000;

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": ["other", "odometer"], "sub": SUBJECT, "exp": NOW + 600})
}

/// Returns the claims with other members; null takes one out.
fn claims_with(others: Value) -> Value {
    let mut claims = claims();
    let members = claims.as_object_mut().unwrap();
    for (name, value) in others.as_object().unwrap() {
        members.insert(name.clone(), value.clone());
    }
    members.retain(|_, value| !value.is_null());
    claims
}

/// Returns an issuer with these keys, and another one with none of them.
fn issuers(signers: &[&TokenSigner]) -> TokenIssuers {
    let folder = directory("issuers");
    let of = |issuer: &str, keys: &str| {
        let jwks_file = folder.path().join(format!("{}.json", issuer.len()));
        std::fs::write(&jwks_file, keys).unwrap();
        IssuerSettings {
            issuer: issuer.to_owned(),
            audience: "odometer".to_owned(),
            jwks_file,
        }
    };
    let other = key_set(&[&TokenSigner::ed25519("other")]);
    let settings = [of("https://other", &other), of(ISSUER, &key_set(signers))];
    TokenIssuers::read(&settings).unwrap()
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn shown(issuers: &TokenIssuers, token: &str) -> Option<Identity> {
    issuers.identity(token, at(NOW))
}

#[test]
fn a_token_of_each_algorithm_says_whom_it_is_for() {
    let signers = [
        TokenSigner::rs256("r"),
        TokenSigner::es256("p"),
        TokenSigner::ed25519("e"),
    ];
    let issuers = issuers(&signers.each_ref());
    assert_eq!((issuers.n_issuers(), issuers.n_keys()), (2, 4));
    for signer in &signers {
        let token = signer.token(&claims());
        assert!(issuers.may_have_signed(&token));
        let identity = shown(&issuers, &token);
        let expected = Identity {
            issuer: ISSUER.to_owned(),
            subject: SUBJECT.to_owned(),
            until: at(NOW + 630),
        };
        assert_eq!(identity, Some(expected), "{}", signer.algorithm());
    }
    assert!(!issuers.may_have_signed("a.b") && !issuers.may_have_signed("a.b.c.d"));
    assert!(!TokenIssuers::default().may_have_signed("a.b.c"));
}

#[test]
fn a_token_whose_claims_are_wrong_is_wrong() {
    let signer = TokenSigner::ed25519("e");
    let issuers = issuers(&[&signer]);
    let is_right = |others| shown(&issuers, &signer.token(&claims_with(others))).is_some();
    for right in [
        json!({}),
        json!({"aud": "odometer"}),
        json!({"nbf": NOW + 30, "iat": NOW + 900}),
        json!({"exp": NOW - 29}),
        json!({"exp": 1_800_000_000.5}),
    ] {
        assert!(is_right(right.clone()), "{right}");
    }
    for wrong in [
        json!({"exp": NOW - 30}),
        json!({"exp": 0}),
        json!({"exp": -5}),
        json!({"exp": u64::MAX}),
        json!({"exp": 1e300}),
        json!({"exp": "1800000600"}),
        json!({"exp": null}),
        json!({"nbf": NOW + 31}),
        json!({"nbf": "now"}),
        json!({"aud": "other"}),
        json!({"aud": []}),
        json!({"aud": 5}),
        json!({"aud": ["odometer2"]}),
        json!({"aud": null}),
        json!({"iss": "https://other"}),
        json!({"iss": "https://issuer.example/"}),
        json!({"iss": [ISSUER]}),
        json!({"iss": null}),
        json!({"sub": null}),
        json!({"sub": 5}),
    ] {
        assert!(!is_right(wrong.clone()), "{wrong}");
    }
    let no_claims = json!([1]);
    assert_eq!(shown(&issuers, &signer.token(&no_claims)), None);
}

#[test]
fn a_token_whose_header_is_wrong_is_wrong() {
    let (rsa, p256) = (TokenSigner::rs256("r"), TokenSigner::es256("p"));
    let issuers = issuers(&[&rsa, &p256]);
    let header = |algorithm: &str, id: &str| json!({"alg": algorithm, "kid": id});
    let other = TokenSigner::es256("new");
    for id in ["new", "p"] {
        let mut with_key = header("ES256", id);
        with_key["jwk"] = other.public_key();
        let token = other.token_with(&with_key, &claims());
        assert_eq!(shown(&issuers, &token), None, "{with_key}");
    }
    let mut critical = header("ES256", "p");
    critical["crit"] = json!(["b64"]);
    critical["b64"] = json!(true);
    for wrong in [
        header("ES256", "P"),
        header("ES256", ""),
        json!({"alg": "ES256"}),
        json!({"kid": "p"}),
        header("RS256", "p"),
        header("EdDSA", "p"),
        header("ES384", "p"),
        header("none", "p"),
        header("HS256", "p"),
        critical,
        json!({"alg": "ES256", "kid": "p", "crit": []}),
    ] {
        let token = p256.token_with(&wrong, &claims());
        assert_eq!(shown(&issuers, &token), None, "{wrong}");
    }
    // A key of the other type is named, so each of these fits either the key or the signature.
    let confused = rsa.token_with(&header("RS256", "p"), &claims());
    assert_eq!(shown(&issuers, &confused), None);
    let confused = p256.token_with(&header("ES256", "r"), &claims());
    assert_eq!(shown(&issuers, &confused), None);
}

#[test]
fn a_token_that_no_key_of_the_issuer_signed_is_wrong() {
    let signers = [
        TokenSigner::rs256("k"),
        TokenSigner::es256("k"),
        TokenSigner::ed25519("k"),
    ];
    for signer in &signers {
        let issuers = issuers(&[signer]);
        let right = signer.token(&claims());
        assert!(shown(&issuers, &right).is_some());
        let parts: Vec<&str> = right.split('.').collect();
        let other_claims = signer.token(&claims_with(json!({"sub": "admin"})));
        let others: Vec<&str> = other_claims.split('.').collect();
        let short = &parts[2][..parts[2].len() - 2];
        // The public key as the secret of an algorithm with secrets.
        let mut header = signer.header();
        header["alg"] = json!("HS256");
        let public_text = signer.public_key().to_string();
        for wrong in [
            format!("{}.{}.{}", parts[0], others[1], parts[2]),
            format!("{}.{}.{}", parts[0], parts[1], others[2]),
            format!("{}.{}.{short}", parts[0], parts[1]),
            format!("{}.{}.", parts[0], parts[1]),
            format!("{}.{}", parts[0], parts[1]),
            format!("{right}="),
            format!("{right}.{}", parts[2]),
            unsigned_token(&json!({"alg": "none", "kid": "k"}), &claims()),
            unsigned_token(&signer.header(), &claims()),
            token_of_secret(signer.public_bytes(), &header, &claims()),
            token_of_secret(public_text.as_bytes(), &header, &claims()),
            token_of_secret(signer.public_bytes(), &signer.header(), &claims()),
            "..".to_owned(),
            String::new(),
        ] {
            let is_right = shown(&issuers, &wrong).is_some();
            assert!(!is_right, "{}: {wrong}", signer.algorithm());
        }
        for other in &signers {
            let is_its_own = std::ptr::eq(other, signer);
            let mut header = other.header();
            for algorithm in [signer.algorithm(), other.algorithm()] {
                header["alg"] = json!(algorithm);
                let token = other.token_with(&header, &claims());
                let is_right = shown(&issuers, &token).is_some();
                assert_eq!(is_right, is_its_own, "{header} by {}", other.algorithm());
            }
        }
    }
}

#[test]
fn a_key_counts_for_its_own_issuer_alone() {
    let signer = TokenSigner::ed25519("e");
    let issuers = issuers(&[&signer]);
    let of_other = claims_with(json!({"iss": "https://other"}));
    assert_eq!(shown(&issuers, &signer.token(&of_other)), None);
}

#[test]
fn an_issuer_whose_file_is_broken_keeps_its_keys_and_the_others_get_new_ones() {
    let folder = directory("issuers");
    let settings = ["a", "b"].map(|issuer| IssuerSettings {
        issuer: issuer.to_owned(),
        audience: "odometer".to_owned(),
        jwks_file: folder.path().join(issuer),
    });
    let (old, new) = (TokenSigner::ed25519("old"), TokenSigner::ed25519("new"));
    let [a, b] = settings.each_ref().map(|it| it.jwks_file.as_path());
    let problem = TokenIssuers::read(&settings).unwrap_err();
    let named = "access.issuers[0].jwks_file: ";
    assert!(problem.starts_with(named), "{problem}");
    for file in [a, b] {
        std::fs::write(file, key_set(&[&old])).unwrap();
    }
    let first = TokenIssuers::read(&settings).unwrap();
    assert_eq!(first.read_again(), (first.clone(), Vec::new()));
    std::fs::write(a, "{").unwrap();
    std::fs::write(b, key_set(&[&new])).unwrap();
    let (second, problems) = first.read_again();
    assert_ne!(first, second);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with(named), "{problems:?}");
    for (issuer, signer, is_right) in [
        ("a", &old, true),
        ("a", &new, false),
        ("b", &old, false),
        ("b", &new, true),
    ] {
        let token = signer.token(&claims_with(json!({"iss": issuer})));
        assert_eq!(shown(&second, &token).is_some(), is_right, "{issuer}");
    }
}

#[test]
fn keys_that_are_for_something_else_are_left_out() {
    let signer = TokenSigner::es256("p");
    let mut keys = vec![signer.public_key()];
    let mut with = |id: &str, member: &str, value: Value| {
        let mut key = signer.public_key();
        key["kid"] = json!(id);
        key[member] = value;
        keys.push(key);
    };
    with("a", "use", json!("enc"));
    with("b", "key_ops", json!(["sign"]));
    with("c", "kty", json!("oct"));
    with("d", "crv", json!("P-384"));
    with("e", "alg", json!("ES384"));
    with("f", "key_ops", json!(["verify"]));
    with("g", "alg", json!("ES256"));
    keys.push(json!({"kty": "RSA", "alg": "RS512", "kid": "h"}));
    keys.push(json!(5));
    let set = KeySet::parse(json!({"keys": keys, "more": 1}).to_string().as_bytes()).unwrap();
    let kept: Vec<&str> = ["p", "a", "b", "c", "d", "e", "f", "g", "h"]
        .into_iter()
        .filter(|id| set.get(id).is_some())
        .collect();
    assert_eq!(kept, ["p", "f", "g"]);
    assert_eq!(set.n_keys(), 3);
}

#[test]
fn a_file_of_keys_that_is_of_no_use_is_refused_with_the_reason() {
    let (p256, rsa) = (TokenSigner::es256("p"), TokenSigner::rs256("r"));
    let with = |signer: &TokenSigner, member: &str, value: Value| {
        let mut key = signer.public_key();
        key[member] = value;
        json!({ "keys": [key] }).to_string()
    };
    // 1,024 bits of 1, in base64url.
    let short = format!("{}8", "_".repeat(170));
    let no_id = p256.public_key().as_object().cloned().map(|mut key| {
        key.remove("kid");
        json!({ "keys": [key] }).to_string()
    });
    let secret_of_other_use = json!({"keys": [
        {"kty": "EC", "crv": "P-256", "kid": "a", "key_ops": ["sign"], "d": "AAAA"},
    ]});
    let shared_secret = json!({"keys": [{"kty": "oct", "kid": "a", "k": "AAAA"}]});
    let ed25519 = TokenSigner::ed25519("e");
    // Points of order 4, 1 and 2, in base64url. The second one has the sign set.
    let (zeros, one) = ("A".repeat(43), format!("AQ{}IA", "A".repeat(39)));
    let minus_one = format!("7P{}38", "_".repeat(39));
    let many: Vec<Value> = (0..65).map(|_| json!({})).collect();
    let other = TokenSigner::es256("other").public_key();
    for (text, said) in [
        ("{".to_owned(), "not a JSON Web Key Set"),
        ("[]".to_owned(), "a list `keys`"),
        ("{\"keys\":{}}".to_owned(), "a list `keys`"),
        ("{\"keys\":[]}".to_owned(), "no key that verifies"),
        (with(&p256, "use", json!("enc")), "no key that verifies"),
        (json!({ "keys": many }).to_string(), "65 keys; give 64"),
        (no_id.unwrap(), "keys[0]: `kid` is missing"),
        (with(&p256, "kid", json!("")), "`kid` is missing"),
        (
            key_set(&[&p256, &p256]),
            "keys[1]: another key has the `kid` \"p\"",
        ),
        (with(&p256, "x", json!(5)), "`x` is not a text"),
        (with(&p256, "y", json!("AAAA")), "`y` has 3 bytes"),
        (with(&p256, "x", json!("a+b")), "`x` is not a text"),
        (with(&p256, "x", other["y"].clone()), "no point of P-256"),
        (with(&p256, "y", json!(zeros)), "no point of P-256"),
        (with(&p256, "d", json!("AAAA")), "secret part, `d`"),
        (secret_of_other_use.to_string(), "secret part, `d`"),
        (shared_secret.to_string(), "secret part, `k`"),
        (with(&ed25519, "x", json!(zeros)), "anybody can sign"),
        (with(&ed25519, "x", json!(one)), "anybody can sign"),
        (with(&ed25519, "x", json!(minus_one)), "anybody can sign"),
        (with(&rsa, "n", json!(short)), "1024 bits; give one of 2048"),
        (with(&rsa, "n", json!("")), "0 bits"),
        (with(&rsa, "e", json!("AQ")), "not those of an RSA key"),
        (with(&rsa, "e", json!("AAAC")), "not those of an RSA key"),
        (with(&rsa, "e", json!("AQAAAAE")), "not those of an RSA key"),
    ] {
        let problem = KeySet::parse(text.as_bytes()).unwrap_err();
        let start: String = text.chars().take(80).collect();
        assert!(problem.contains(said), "{start}: {problem}");
        assert_eq!(problem.lines().count(), 1, "{problem}");
    }
}

#[test]
fn a_file_of_keys_may_have_256_kib() {
    let folder = directory("keys");
    let path = folder.path().join("keys.json");
    let mut text = key_set(&[&TokenSigner::es256("p")]);
    text += &" ".repeat(256 * 1024 - text.len());
    std::fs::write(&path, &text).unwrap();
    assert_eq!(KeySet::read(&path).unwrap().n_keys(), 1);
    std::fs::write(&path, text + " ").unwrap();
    let problem = KeySet::read(&path).unwrap_err();
    assert!(problem.contains("give 262144 bytes at most"), "{problem}");
}

/// Changes one character of a text.
fn changed(text: &str, place: usize, to: char) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    let place = place % characters.len();
    characters[place] = to;
    characters.into_iter().collect()
}

proptest! {
    #![proptest_config(odometer_tests::settings::properties())]

    #[test]
    fn fuzz_a_token_with_one_other_character_is_wrong(
        place in any::<usize>(),
        to in "[A-Za-z0-9_.=-]",
    ) {
        let signer = TokenSigner::ed25519("e");
        let issuers = issuers(&[&signer]);
        let token = signer.token(&claims());
        let other = changed(&token, place, to.chars().next().unwrap());
        let is_right = shown(&issuers, &other).is_some();
        prop_assert_eq!(is_right, other == token, "{}", other);
    }

    #[test]
    fn fuzz_a_file_of_keys_is_read_or_refused(
        place in any::<usize>(),
        to in any::<char>(),
    ) {
        let signer = TokenSigner::es256("p");
        let text = changed(&key_set(&[&signer]), place, to);
        if let Err(problem) = KeySet::parse(text.as_bytes()) {
            prop_assert!(!problem.is_empty());
        }
    }
}
