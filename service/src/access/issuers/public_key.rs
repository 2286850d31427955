//! Reads one JSON Web Key.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

use super::signature::is_on_p256;
use crate::access::token;

/// The bits that the modulus of an RSA key may have. Ring verifies with no other key.
const MODULUS_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// The most bytes of the exponent of an RSA key. Nearly all keys have 65537, which has three.
const MAX_EXPONENT: usize = 4;

/// The bytes of a coordinate on P-256, and of a point on Ed25519.
const N_COORDINATE: usize = 32;

/// The first byte of a point that is written with both coordinates (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// A key that verifies signatures of one algorithm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PublicKey {
    /// Modulus and exponent, without zeros before them.
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// A point with both coordinates.
    P256 {
        point: Vec<u8>,
    },
    Ed25519 {
        point: Vec<u8>,
    },
}

/// The coordinates `y` of all points of Ed25519 whose order divides 8, as they can be written: 0, 1,
/// −1, the two of order 8, and 0 and 1 with the modulus 2^255 − 19 added. They follow from the curve
/// of RFC 8032, section 5.1.
const SMALL_ORDER: [&str; 7] = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
];

/// Reads the members of a key of one type.
type KeyReader = fn(&Value) -> Result<PublicKey, String>;

impl PublicKey {
    /// Reads a JSON Web Key (RFC 7517), by RFC 7518 for RSA and P-256 and by RFC 8037 for Ed25519.
    /// `None` if the key is of another type, or is for something else.
    ///
    /// # Errors
    /// A sentence: the key would be of use, but cannot be used.
    pub fn parse(key: &Value) -> Result<Option<Self>, String> {
        // A secret has no place in this file, whatever it is for.
        if let Some(secret) = ["d", "k"].into_iter().find(|part| key.get(part).is_some()) {
            return Err(format!(
                "it has a secret part, `{secret}`; make a new key, and give its public part alone"
            ));
        }
        if !is_for_signatures(key) {
            return Ok(None);
        }
        let (name, read): (&str, KeyReader) = match (text(key, "kty"), text(key, "crv")) {
            (Some("RSA"), _) => ("RS256", Self::rsa),
            (Some("EC"), Some("P-256")) => ("ES256", Self::p256),
            (Some("OKP"), Some("Ed25519")) => ("EdDSA", Self::ed25519),
            (_, _) => return Ok(None),
        };
        // A key may verify another algorithm of its type, as in RS512.
        if key.get("alg").is_some_and(|given| given != name) {
            return Ok(None);
        }
        read(key).map(Some)
    }

    fn rsa(key: &Value) -> Result<Self, String> {
        let (modulus, exponent) = (number(key, "n")?, number(key, "e")?);
        let first = modulus.first().map_or(0, |byte| byte.leading_zeros());
        let bits = (modulus.len() * 8).saturating_sub(usize::try_from(first).unwrap_or(0));
        if !MODULUS_BITS.contains(&bits) {
            let (least, most) = (MODULUS_BITS.start(), MODULUS_BITS.end());
            return Err(format!(
                "its RSA key has {bits} bits; give one of {least} to {most}"
            ));
        }
        let is_odd = |number: &[u8]| number.last().is_some_and(|byte| byte % 2 == 1);
        let is_exponent = is_odd(&exponent) && exponent != [1] && exponent.len() <= MAX_EXPONENT;
        if !is_odd(&modulus) || !is_exponent {
            return Err("`n` and `e` are not those of an RSA key".to_owned());
        }
        Ok(Self::Rsa { modulus, exponent })
    }

    fn p256(key: &Value) -> Result<Self, String> {
        let mut point = vec![UNCOMPRESSED];
        point.extend(coordinate(key, "x")?);
        point.extend(coordinate(key, "y")?);
        if !is_on_p256(&point) {
            return Err("`x` and `y` are no point of P-256".to_owned());
        }
        Ok(Self::P256 { point })
    }

    fn ed25519(key: &Value) -> Result<Self, String> {
        let point = coordinate(key, "x")?;
        if is_of_small_order(&point) {
            return Err("`x` is a point for which anybody can sign; give a key".to_owned());
        }
        Ok(Self::Ed25519 { point })
    }

    /// Returns the only algorithm that the key verifies.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Self::Rsa { .. } => Algorithm::RS256,
            Self::P256 { .. } => Algorithm::ES256,
            Self::Ed25519 { .. } => Algorithm::EdDSA,
        }
    }

    /// Returns the key as the library takes it.
    pub(super) fn decoding_key(&self) -> DecodingKey {
        match self {
            Self::Rsa { modulus, exponent } => {
                DecodingKey::from_rsa_raw_components(modulus, exponent)
            }
            Self::P256 { point } => DecodingKey::from_ec_der(point),
            Self::Ed25519 { point } => DecodingKey::from_ed_der(point),
        }
    }
}

/// Returns whether a point of Ed25519 has an order of at most 8. Signatures for such a point can be
/// made without a secret. The sign of the other coordinate does not matter.
fn is_of_small_order(point: &[u8]) -> bool {
    let Ok(mut y) = <[u8; N_COORDINATE]>::try_from(point) else {
        return false;
    };
    if let Some(last) = y.last_mut() {
        *last &= 0x7f;
    }
    SMALL_ORDER.contains(&&*token::to_hex(&y))
}

/// Returns whether a key may verify signatures: `use` and `key_ops` say nothing else.
fn is_for_signatures(key: &Value) -> bool {
    let may_verify = |operations: &Value| {
        let mut operations = operations.as_array().into_iter().flatten();
        operations.any(|operation| operation == "verify")
    };
    key.get("use").is_none_or(|purpose| purpose == "sig")
        && key.get("key_ops").is_none_or(may_verify)
}

fn text<'a>(key: &'a Value, member: &str) -> Option<&'a str> {
    key.get(member).and_then(Value::as_str)
}

fn bytes(key: &Value, member: &str) -> Result<Vec<u8>, String> {
    let bytes = text(key, member).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    bytes.ok_or_else(|| format!("`{member}` is not a text in base64url without padding"))
}

/// Reads a number, without zeros before it.
fn number(key: &Value, member: &str) -> Result<Vec<u8>, String> {
    let mut bytes = bytes(key, member)?;
    let n_zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.drain(..n_zeros);
    Ok(bytes)
}

fn coordinate(key: &Value, member: &str) -> Result<Vec<u8>, String> {
    let bytes = bytes(key, member)?;
    if bytes.len() != N_COORDINATE {
        let n = bytes.len();
        return Err(format!(
            "`{member}` has {n} bytes; a key of this type has {N_COORDINATE}"
        ));
    }
    Ok(bytes)
}
