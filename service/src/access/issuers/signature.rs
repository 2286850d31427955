//! Verifies signatures by ring, as the provider of `jsonwebtoken`.
//!
//! Only three algorithms are known: RS256, ES256 and EdDSA with Ed25519. None of them has a secret
//! that both sides share, so no public key can be taken for one.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, new_error};
use jsonwebtoken::signature::{Error as SignatureError, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use odometer_process::faults::{self, Fault};
use ring::agreement::{self, ECDH_P256, EphemeralPrivateKey};
use ring::error::Unspecified;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Lets `jsonwebtoken` verify by ring in this process. Only the first call has an effect. It comes
/// before any token is verified.
pub(super) fn install() {
    // An error says that the provider is there already.
    let _ = PROVIDER.install_default();
}

/// A key, and the only algorithm that it is used with.
struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let is_known = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA].contains(algorithm);
    if !is_known || algorithm.family() != key.family() {
        return Err(new_error(ErrorKind::InvalidAlgorithm));
    }
    Ok(Box::new(RingVerifier {
        algorithm: *algorithm,
        key: key.clone(),
    }))
}

/// Returns whether a point, written with both coordinates, is on P-256.
///
/// ring has no function that answers this. But to agree on a secret with somebody, it checks the
/// point of the other side (NIST SP 800-56A, section 5.6.2.3). A point on the curve cannot fail after
/// that, because the order of the curve is prime.
pub(super) fn is_on_p256(point: &[u8]) -> bool {
    let private = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new());
    private.is_ok_and(|private| {
        let point = agreement::UnparsedPublicKey::new(&ECDH_P256, point);
        agreement::agree_ephemeral(private, &point, |_secret| ()).is_ok()
    })
}

/// Refuses to sign: the service makes no tokens.
fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(new_error(ErrorKind::UnsupportedAlgorithm))
}

impl RingVerifier {
    fn check(&self, message: &[u8], signature: &[u8]) -> Result<(), Unspecified> {
        match (self.algorithm, self.key.kind()) {
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                key.verify(message, signature)
            }
            (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(&ED25519, point).verify(message, signature)
            }
            (_, _) => Err(Unspecified),
        }
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), SignatureError> {
        if faults::is(Fault::SignatureUnchecked) {
            return Ok(());
        }
        let checked = self.check(message, signature);
        checked.map_err(|Unspecified| SignatureError::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
