//! Says how fast the numbers of a sequence may be reserved.
//!
//! A failover that lost commits skips what the [limit](crate::speed_limit) allows. So a high limit
//! costs numbers then, and a low one keeps callers waiting.
//!
//! A definition has its limit as a field of its own, also if nobody asked for one. So all replicas
//! and all copies of a database have the same limit, whatever defaults their programs have.

use serde_json::Value;

use super::change::{unknown, wrong};
use super::check::require;
use super::{ChangeError, Definition, DefinitionError, Kind, number};
use crate::format::Format;
use crate::period::PeriodKind;
use crate::speed_limit::SpeedLimit;

/// Bounds the rate of a limit, in numbers a second.
pub(super) const MAX_RATE: u32 = 1_000_000_000;
/// Bounds the burst of a limit, in numbers. Its time at the lowest rate still fits 63 bits of
/// microseconds.
pub(super) const MAX_BURST: u64 = 1_000_000_000_000;
/// Sets how many numbers a range must have for its sequence to have a limit. A failover would use a
/// smaller range up.
pub(super) const MIN_RANGE: u64 = 1_000_000;
/// Sets the rate of a sequence whose numbers people read, or that counts for each key, and the least
/// rate of one that declares its own.
const SLOW_RATE: u32 = 100;
/// Sets how many times the declared rate the rate is.
const DECLARED: f64 = 100.0;
/// Sets for how many seconds the rate the burst lasts.
const BURST_SECONDS: u64 = 100;
/// Sets which part of its range a sequence may reserve at once, one of so many, if its blocks need no
/// larger one.
const BURST_PART: u64 = 100;
/// Bounds for how many seconds the rate a burst lasts: a day. A counter that used a longer one would
/// need days to rest.
const MAX_BURST_SECONDS: u64 = 86_400;
const FIELDS: &str = "rate, burst";

impl Definition {
    /// Returns the limit that suits the other fields. `None` if there is to be none: the range is too
    /// short for one, or no counter counts.
    ///
    /// A sequence that was defined by a program without limits has this limit until it is changed.
    /// So the answer may not change from version to version. A version that wants to give new
    /// sequences another limit needs a function of its own.
    #[must_use]
    pub(crate) fn suitable_limit(&self) -> Option<SpeedLimit> {
        let range = self.left(self.start);
        if self.kind == Kind::Snowflake || range < MIN_RANGE {
            return None;
        }
        let is_slow = self.format != Format::PLAIN || self.period == PeriodKind::Keyed;
        let rate = match self.declared_rate {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is above 0, and bounded"
            )]
            Some(declared) => {
                let rate = (declared * DECLARED).ceil().min(f64::from(MAX_RATE)) as u32;
                rate.max(SLOW_RATE)
            }
            None if is_slow => SLOW_RATE,
            None => SpeedLimit::DEFAULT.rate(),
        };
        let burst = u64::from(rate).saturating_mul(BURST_SECONDS);
        let burst = burst.min(range / BURST_PART);
        // A short range would not last for many bursts, however fast they came again.
        let rate = u64::from(rate).min(burst / BURST_SECONDS).max(1);
        let burst = burst.max(self.block.min);
        let rate = rate.max(burst.div_ceil(MAX_BURST_SECONDS));
        SpeedLimit::new(u32::try_from(rate).unwrap_or(MAX_RATE), burst)
    }

    /// Gives the definition its limit: the one that was asked for, or the one of `base`. If the
    /// limit of `base` is what suits `base`, the definition has what suits the definition.
    pub(crate) fn settle_limit(&mut self, asked: Option<Option<SpeedLimit>>, base: &Self) {
        self.limit = match asked {
            Some(Some(limit)) => Some(limit),
            Some(None) => self.suitable_limit(),
            None if base.limit == base.suitable_limit() => self.suitable_limit(),
            None => base.limit,
        };
    }

    /// Refuses a limit that is out of range, or that a block would not fit into.
    pub(crate) fn check_limit(&self) -> Result<(), DefinitionError> {
        let Some(limit) = self.limit else {
            return Ok(());
        };
        let (rate, burst) = (limit.rate(), limit.burst());
        require((1..=MAX_RATE).contains(&rate), "limit.rate", || {
            format!("must be 1 to {MAX_RATE} numbers a second, not {rate}")
        })?;
        require((1..=MAX_BURST).contains(&burst), "limit.burst", || {
            format!("must be 1 to {MAX_BURST} numbers, not {burst}")
        })?;
        let longest = u64::from(rate).saturating_mul(MAX_BURST_SECONDS);
        require(burst <= longest, "limit.burst", || {
            format!("must be at most {longest}, a day at `limit.rate`, not {burst}")
        })?;
        let min = self.block.min;
        require(min <= burst, "block.min", || {
            format!("must be at most `limit.burst`; {min} is above {burst}")
        })
    }
}

/// Reads a limit, whole. `null` is the default.
pub(crate) fn limit(field: &str, value: &Value) -> Result<Option<SpeedLimit>, ChangeError> {
    let fields = match value {
        Value::Null => return Ok(None),
        Value::Object(fields) => fields,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            let known = format!("an object with {FIELDS}, or null");
            return Err(wrong(field, &known, value));
        }
    };
    if let Some(other) = fields
        .keys()
        .find(|key| !matches!(key.as_str(), "rate" | "burst"))
    {
        return Err(unknown(&format!("{field}.{other}"), FIELDS));
    }
    let counted = |inner: &str, most: u64| {
        let path = format!("{field}.{inner}");
        let value = fields.get(inner).unwrap_or(&Value::Null);
        let counted = number::counted(value).filter(|n| (1..=most).contains(n));
        counted.ok_or_else(|| wrong(&path, &format!("a whole number from 1 to {most}"), value))
    };
    let rate = counted("rate", u64::from(MAX_RATE))?;
    let burst = counted("burst", MAX_BURST)?;
    Ok(u32::try_from(rate)
        .ok()
        .and_then(|rate| SpeedLimit::new(rate, burst)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::definition::DefinitionChange;

    fn created(fields: Value) -> Result<Definition, String> {
        let change = DefinitionChange::from_value(&fields).map_err(|error| error.to_string())?;
        let created = change.create(&Definition::default());
        created.map_err(|error| error.to_string())
    }

    fn limited(fields: Value) -> Option<(u32, u64)> {
        let limit = created(fields).ok()?.limit?;
        Some((limit.rate(), limit.burst()))
    }

    #[test]
    fn each_sequence_has_the_limit_that_fits_its_use() {
        assert_eq!(limited(json!({})), Some((100_000, 10_000_000)));
        assert_eq!(
            limited(json!({"declared_rate": 20})),
            Some((2_000, 200_000))
        );
        assert_eq!(
            limited(json!({"declared_rate": 0.001})),
            Some((100, 10_000))
        );
        assert_eq!(
            limited(json!({"format": "INV-{value:08}"})),
            Some((100, 10_000))
        );
        assert_eq!(limited(json!({"period": "keyed"})), Some((100, 10_000)));
        assert_eq!(
            limited(json!({"format": "INV-{value:08}", "declared_rate": 20})),
            Some((2_000, 200_000))
        );
        assert_eq!(
            limited(json!({"limit": {"rate": 7, "burst": 70}})),
            Some((7, 70))
        );
        // A burst is at most one hundredth of the range, and at least one block.
        assert_eq!(limited(json!({"max": 1_000_000})), Some((100, 10_000)));
        let block = json!({"min": 70_000});
        assert_eq!(
            limited(json!({"max": 1_000_000, "block": block})),
            Some((100, 70_000))
        );
        // A burst lasts for a day at most.
        let block = json!({"min": 17_280_000});
        assert_eq!(
            limited(json!({"declared_rate": 0.01, "block": block})),
            Some((200, 17_280_000))
        );
        assert_eq!(limited(json!({"max": 999_999})), None);
        assert_eq!(limited(json!({"kind": "snowflake"})), None);
    }

    #[test]
    fn a_limit_that_cannot_be_is_refused_by_its_field() {
        for (fields, field) in [
            (json!({"limit": 5}), "`limit`"),
            (json!({"limit": {"rate": 5}}), "`limit.burst`"),
            (json!({"limit": {"rate": 0, "burst": 5}}), "`limit.rate`"),
            (json!({"limit": {"rate": 1.5, "burst": 5}}), "`limit.rate`"),
            (
                json!({"limit": {"rate": 5, "burst": 5, "per": 1}}),
                "`limit.per`",
            ),
            (
                json!({"limit": {"rate": 5, "burst": 432_001}}),
                "`limit.burst`",
            ),
            (
                json!({"limit": {"rate": 5, "burst": 5}, "block": {"min": 6}}),
                "`block.min`",
            ),
        ] {
            let refused = created(fields.clone()).unwrap_err();
            assert!(refused.contains(field), "{fields}: {refused}");
        }
    }

    fn changed(definition: &Definition, fields: Value) -> Definition {
        let change = DefinitionChange::from_value(&fields).unwrap();
        change.apply(definition, 1, true).unwrap()
    }

    fn limit_of(definition: &Definition) -> Option<(u32, u64)> {
        definition.limit.map(|limit| (limit.rate(), limit.burst()))
    }

    #[test]
    fn a_limit_is_kept_with_the_definition_and_goes_by_null() {
        let definition = created(json!({"limit": {"rate": 7, "burst": 70}})).unwrap();
        let read = Definition::from_stored(&definition.to_stored()).unwrap();
        assert_eq!(read, definition);
        let declared = changed(&definition, json!({"declared_rate": 20}));
        assert_eq!(limit_of(&declared), Some((7, 70)));
        let suitable = changed(&declared, json!({"limit": null}));
        assert_eq!(limit_of(&suitable), Some((2_000, 200_000)));
    }

    #[test]
    fn a_limit_that_suits_the_other_fields_follows_them() {
        let template = created(json!({})).unwrap();
        let change = DefinitionChange::from_value(&json!({"format": "INV-{value:08}"})).unwrap();
        let invoices = change.create(&template).unwrap();
        assert_eq!(limit_of(&invoices), Some((100, 10_000)));
        let declared = json!({"format": "{value}", "declared_rate": 20});
        let plain = changed(&invoices, declared);
        assert_eq!(limit_of(&plain), Some((2_000, 200_000)));
        let wide = changed(&invoices, json!({"block": {"min": 20_000}}));
        assert_eq!(limit_of(&wide), Some((100, 20_000)));
        let short = changed(&plain, json!({"max": 999_999}));
        assert_eq!(limit_of(&short), None);
        assert_eq!(
            limit_of(&changed(&short, json!({"max": 1_000_000}))),
            Some((100, 10_000))
        );
    }

    #[test]
    fn a_definition_from_before_there_were_limits_has_the_one_that_suits_it() {
        let read = Definition::from_stored(r#"{"format": "INV-{value:08}"}"#).unwrap();
        assert_eq!(limit_of(&read), Some((100, 10_000)));
        assert_eq!(changed(&read, json!({})), read);
        let written: Value = serde_json::from_str(&read.to_stored()).unwrap();
        assert_eq!(written["limit"], json!({"rate": 100, "burst": 10_000}));
        let short = Definition::from_stored(r#"{"max": "999"}"#).unwrap();
        assert_eq!(limit_of(&short), None);
        let ids = Definition::from_stored(r#"{"kind": "snowflake", "layout": {}}"#).unwrap();
        assert_eq!(limit_of(&ids), None);
    }
}
