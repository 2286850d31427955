//! Signs JSON Web Tokens, as an issuer does.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use serde_json::{Value, json};

/// A key with which an issuer signs, and the `kid` that its tokens name.
pub struct TokenSigner {
    id: String,
    key: SigningKey,
}

enum SigningKey {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl TokenSigner {
    /// Makes a new key of 2048 bits that signs by RS256. `openssl` makes it, because ring makes no
    /// keys of RSA.
    pub fn rs256(id: &str) -> Self {
        let mut command = Command::new("openssl");
        command.args(["genpkey", "-algorithm", "RSA", "-outform", "DER"]);
        let output = command.args(["-pkeyopt", "rsa_keygen_bits:2048"]).output();
        let output = output.expect("openssl runs");
        assert!(output.status.success(), "{output:?}");
        // The version of openssl decides which of the two forms it writes.
        let made = output.stdout.as_slice();
        let key = RsaKeyPair::from_der(made).or_else(|_| RsaKeyPair::from_pkcs8(made));
        Self::of(id, SigningKey::Rsa(Box::new(key.expect("it is read"))))
    }

    /// Makes a new key that signs by ES256.
    pub fn es256(id: &str) -> Self {
        let (by, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let made = EcdsaKeyPair::generate_pkcs8(by, &random).expect("a key is made");
        let key = EcdsaKeyPair::from_pkcs8(by, made.as_ref(), &random).expect("it is read");
        Self::of(id, SigningKey::P256(key))
    }

    /// Makes a new key that signs by EdDSA with Ed25519.
    pub fn ed25519(id: &str) -> Self {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key is made");
        let key = Ed25519KeyPair::from_pkcs8(made.as_ref()).expect("it is read");
        Self::of(id, SigningKey::Ed25519(key))
    }

    fn of(id: &str, key: SigningKey) -> Self {
        let id = id.to_owned();
        Self { id, key }
    }

    /// Returns the name of the algorithm by which this key signs.
    pub fn algorithm(&self) -> &'static str {
        match self.key {
            SigningKey::Rsa(_) => "RS256",
            SigningKey::P256(_) => "ES256",
            SigningKey::Ed25519(_) => "EdDSA",
        }
    }

    /// Returns the bytes of the public key that a guesser would take for a secret.
    pub fn public_bytes(&self) -> &[u8] {
        match &self.key {
            SigningKey::Rsa(key) => key.public_key().as_ref(),
            SigningKey::P256(key) => key.public_key().as_ref(),
            SigningKey::Ed25519(key) => key.public_key().as_ref(),
        }
    }

    /// Returns the public key as a JSON Web Key.
    pub fn public_key(&self) -> Value {
        let mut key = match &self.key {
            SigningKey::Rsa(key) => {
                let public = PublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "n": encoded(&public.n), "e": encoded(&public.e)})
            }
            SigningKey::P256(key) => {
                // After its first byte, which says so, it has both coordinates.
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": encoded(x), "y": encoded(y)})
            }
            SigningKey::Ed25519(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encoded(key.public_key().as_ref())})
            }
        };
        key["kid"] = Value::from(self.id.as_str());
        key["use"] = Value::from("sig");
        key
    }

    /// Returns the header of the tokens that this key signs.
    pub fn header(&self) -> Value {
        json!({"alg": self.algorithm(), "kid": self.id})
    }

    /// Returns a token.
    pub fn token(&self, claims: &Value) -> String {
        self.token_with(&self.header(), claims)
    }

    /// Returns a token with any header, signed by this key.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let signature = self.signature(message.as_bytes());
        format!("{message}.{}", encoded(&signature))
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        match &self.key {
            SigningKey::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(
                    &RSA_PKCS1_SHA256,
                    &SystemRandom::new(),
                    message,
                    &mut signature,
                )
                .expect("it signs");
                signature
            }
            SigningKey::P256(key) => {
                let signature = key.sign(&SystemRandom::new(), message);
                signature.expect("it signs").as_ref().to_vec()
            }
            SigningKey::Ed25519(key) => key.sign(message).as_ref().to_vec(),
        }
    }
}

/// Returns the file of the keys of an issuer.
pub fn key_set(signers: &[&TokenSigner]) -> String {
    let keys: Vec<Value> = signers.iter().map(|signer| signer.public_key()).collect();
    json!({ "keys": keys }).to_string()
}

/// Returns a token whose signature is made of a secret, as by HS256.
pub fn token_of_secret(secret: &[u8], header: &Value, claims: &Value) -> String {
    let message = message(header, claims);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let signature = hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", encoded(signature.as_ref()))
}

/// Returns a token without a signature.
pub fn unsigned_token(header: &Value, claims: &Value) -> String {
    format!("{}.", message(header, claims))
}

/// Returns the seconds since 1970, as the times of a token count them.
pub fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a clock after 1970").as_secs()
}

fn message(header: &Value, claims: &Value) -> String {
    let part = |part: &Value| encoded(part.to_string().as_bytes());
    format!("{}.{}", part(header), part(claims))
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
