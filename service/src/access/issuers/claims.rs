//! Reads what a JSON Web Token says of itself.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Number;

/// How far the clock of an issuer may be from ours.
const LEEWAY: Duration = Duration::from_secs(30);

/// The issuer that a token names. Nothing is verified.
#[derive(Deserialize)]
pub(super) struct NamedIssuer {
    pub(super) iss: String,
}

/// The claims of a token (RFC 7519, section 4.1). The library checks `iss` and `aud`.
#[derive(Deserialize)]
pub(super) struct Claims {
    /// The list of issuers that the library would take is refused here: `iss` is one text.
    #[serde(rename = "iss")]
    _iss: String,
    pub(super) sub: String,
    exp: NumericDate,
    nbf: Option<NumericDate>,
}

impl Claims {
    /// Returns from which time on the token is wrong. `None` if that time is too far away to be one.
    pub(super) fn end(&self) -> Option<SystemTime> {
        self.exp.0.checked_add(LEEWAY)
    }

    /// Returns whether the token has begun at the time `now`.
    pub(super) fn has_begun(&self, now: SystemTime) -> bool {
        let begin = self.nbf.as_ref().map(|begin| begin.0);
        begin.is_none_or(|begin| now.checked_add(LEEWAY).is_none_or(|latest| begin <= latest))
    }
}

/// Seconds since 1970, whole or not (RFC 7519, section 2).
struct NumericDate(SystemTime);

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(source)?;
        let fraction = || Duration::try_from_secs_f64(number.as_f64()?).ok();
        let since = number.as_u64().map(Duration::from_secs).or_else(fraction);
        let date = since.and_then(|since| UNIX_EPOCH.checked_add(since));
        date.map(Self)
            .ok_or_else(|| D::Error::custom("not a time that a clock can show"))
    }
}
