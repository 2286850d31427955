//! Reads JSON in which every field is given once. A definition that gives a field twice is a
//! mistake.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A JSON value in which no object has a field twice.
pub(crate) struct Once(pub(crate) Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OnceVisitor).map(Self)
    }
}

struct OnceVisitor;

impl<'de> Visitor<'de> for OnceVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Once(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((field, Once(value))) = fields.next_entry::<String, Once>()? {
            if map.contains_key(&field) {
                return Err(A::Error::custom(format!("`{field}` is given twice")));
            }
            map.insert(field, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_once_is_read_as_it_stands() {
        let text = r#"{"a":[1,-2,0.5,"x",null,true],"b":{"c":{}},"d":18446744073709551615}"#;
        let Once(read) = serde_json::from_str(text).unwrap();
        let plain: Value = serde_json::from_str(text).unwrap();
        assert_eq!(read, plain);
    }

    #[test]
    fn what_is_given_twice_is_refused_at_any_depth() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"[{"a":1,"a":2}]"#,
        ] {
            let said = serde_json::from_str::<Once>(text).map(|_| ()).unwrap_err();
            assert!(said.to_string().contains("is given twice"), "{said}");
        }
    }
}
