//! Reads what a caller wrote, once: names, query parameters, wanted media type, conditions.
//!
//! Parameters that are unknown or given twice are refused. So are empty values, unless they select
//! names. Below this file nothing is checked again.

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
pub(crate) mod workers;

use std::borrow::Cow;

use actix_web::http::header::{self, HeaderMap, HeaderName, Quality, QualityItem};
use actix_web::mime::Mime;
use odometer_core::{definition::whole_number, name::SequenceName, period::Period};
use odometer_sequence::description::{Act, Condition, LiveSort};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::form_urlencoded;

use super::payload::bodies::{AdvanceRequest, ParseRequest};
use super::payload::parameters::{BlocksQuery, ExplainQuery, NextQuery};
use crate::calls::problem::{Code, Problem};
use crate::calls::size_limit::MAX_COUNT;

/// The most sequences that one page lists.
pub(crate) const MAX_LIMIT: u64 = 1000;

/// How many sequences a page lists if the caller does not say.
pub(crate) const DEFAULT_LIMIT: u64 = 100;

/// A version that no definition has. A condition with this version never holds.
const NO_VERSION: i64 = -1;

/// The query of a list of sequences, or of names in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NamesQuery {
    /// Only names that begin with this text, or that contain it in the list of names in memory. An
    /// empty text selects all names.
    pub(crate) filter: String,
    /// Only names that sort after this text. An empty text selects all names.
    pub(crate) after: String,
    /// The most sequences of the page, 1 to [`MAX_LIMIT`].
    pub(crate) limit: u64,
}

/// The media types that a number can be given in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MediaType {
    Json,
    Text,
}

/// Reads the caller's key from the path as it was sent: `/v1/sequences/{name}/periods/{key}`.
pub(crate) fn key(raw_path: &str) -> Result<Period, Problem> {
    let key = segment(raw_path, 5);
    let not_utf_8 = || Problem::new(Code::InvalidPeriod, "The period in the path is not UTF-8.");
    Ok(Period::parse(&key.ok_or_else(not_utf_8)?)?)
}

/// Reads the name from the path as it was sent: `/v1/sequences/{name}…`.
///
/// The router decodes everything but `%2F`, `%25` and `%2B` before it splits the path. So it finds
/// the same segments as in the raw path. Here everything is decoded, and what a name cannot hold is
/// refused.
pub(crate) fn name(raw_path: &str) -> Result<SequenceName, Problem> {
    name_at(raw_path, 3)
}

/// Reads the name in the same way from `/v1/replica/sequences/{name}`.
pub(crate) fn live_name(raw_path: &str) -> Result<SequenceName, Problem> {
    name_at(raw_path, 4)
}

fn name_at(raw_path: &str, place: usize) -> Result<SequenceName, Problem> {
    let name = segment(raw_path, place);
    let name = name.ok_or_else(|| Problem::new(Code::InvalidName, NOT_UTF_8))?;
    Ok(SequenceName::parse(&name)?)
}

/// Returns the decoded segment at a place of the path; `None` if it is not UTF-8.
fn segment(raw_path: &str, place: usize) -> Option<Cow<'_, str>> {
    let raw = raw_path.split('/').nth(place).unwrap_or_default();
    percent_decode_str(raw).decode_utf8().ok()
}

const NOT_UTF_8: &str = "The name in the path is not UTF-8. A name is 1 to 128 of the characters \
                         A-Z, a-z, 0-9, `.`, `_`, `:` and `-`, and begins with a letter or digit.";

/// Reads the query of `next`.
pub(crate) fn next(query: Option<&str>) -> Result<NextQuery, Problem> {
    let asked = next_of_any_count(query)?;
    check_count(asked.count)?;
    Ok(asked)
}

/// Reads the query of `next`. The count may be too high for one call.
pub(crate) fn next_of_any_count(query: Option<&str>) -> Result<NextQuery, Problem> {
    if query.is_none() {
        return Ok(NextQuery::ONE_NUMBER);
    }
    let given = Parameters::read(query, &["count", "period", "contiguous", "ids", "confirm"])?;
    let period = given.period()?;
    let count = given.count()?;
    Ok(NextQuery {
        period,
        count,
        contiguous: given.flag("contiguous")?.unwrap_or(false),
        ids: given.flag("ids")?.unwrap_or(true),
        confirm: given.flag("confirm")?.unwrap_or(false),
    })
}

/// Refuses a count that is too high for one call.
pub(crate) fn check_count(count: Option<u64>) -> Result<(), Problem> {
    match count.filter(|count| *count > MAX_COUNT) {
        None => Ok(()),
        Some(_) => Err(out_of_bounds("count", MAX_COUNT).limited_to(MAX_COUNT)),
    }
}

/// Reads the query of `blocks`.
pub(crate) fn blocks(query: Option<&str>) -> Result<BlocksQuery, Problem> {
    let given = Parameters::read(query, &["size", "period", "confirm"])?;
    let period = given.period()?;
    let size = given.get("size").and_then(digits).filter(|size| *size > 0);
    let size = size.ok_or_else(|| {
        let detail = "`size` says how many numbers to reserve: a whole number of at least 1.";
        Problem::new(Code::InvalidCount, detail)
    })?;
    Ok(BlocksQuery {
        size,
        period,
        confirm: given.flag("confirm")?.unwrap_or(false),
    })
}

/// Reads the query of the list of sequences.
pub(crate) fn listing(query: Option<&str>) -> Result<NamesQuery, Problem> {
    let given = Parameters::read(query, &["prefix", "after", "limit"])?;
    given.names_query(given.beginning("prefix")?)
}

/// Reads the query of the list of names in memory.
pub(crate) fn live(query: Option<&str>) -> Result<(NamesQuery, LiveSort), Problem> {
    let given = Parameters::read(query, &["contains", "after", "limit", "sort"])?;
    let sort = match given.get("sort") {
        None | Some("name") => LiveSort::Name,
        Some("reserve") => LiveSort::Reserve,
        Some("runway") => LiveSort::Runway,
        Some(_) => {
            let detail = "`sort` is `name`, `reserve` or `runway`.";
            return Err(invalid_parameter(detail));
        }
    };
    Ok((given.names_query(given.middle("contains")?)?, sort))
}

/// Reads the query of `explain`.
pub(crate) fn explain(query: Option<&str>) -> Result<ExplainQuery, Problem> {
    let given = Parameters::read(query, &["id", "period"])?;
    let period = given.period()?;
    let id = given.get("id").ok_or_else(|| {
        let detail = "`id` says which number is asked about, as in `?id=42`.";
        Problem::new(Code::InvalidId, detail)
    })?;
    let id = id.to_owned();
    Ok(ExplainQuery { id, period })
}

/// Reads the query of a call that takes only a period.
pub(crate) fn period(query: Option<&str>) -> Result<Option<Period>, Problem> {
    Parameters::read(query, &["period"])?.period()
}

/// Refuses a query, for a call that takes none.
pub(crate) fn no_query(query: Option<&str>) -> Result<(), Problem> {
    Parameters::read(query, &[]).map(|_| ())
}

/// Reads the query of a change of a definition: whether the change is only to be checked.
pub(crate) fn dry_run(query: Option<&str>) -> Result<bool, Problem> {
    let given = Parameters::read(query, &["dry_run"])?;
    Ok(given.flag("dry_run")?.unwrap_or(false))
}

/// Reads `If-None-Match` and `If-Match` of a change.
pub(crate) fn condition(headers: &HeaderMap) -> Result<Condition, Problem> {
    let none_match = single(headers, &header::IF_NONE_MATCH)?;
    let matching = single(headers, &header::IF_MATCH)?;
    match (none_match, matching) {
        (None, None) => Ok(Condition::None),
        (Some("*"), None) => Ok(Condition::MustNotExist),
        (None, Some(tag)) => version(tag),
        (Some(_), None) => Err(invalid_parameter(
            "`If-None-Match` takes only `*` here: create, and never change.",
        )),
        (Some(_), Some(_)) => Err(invalid_parameter(
            "Give `If-None-Match` or `If-Match`, not both.",
        )),
    }
}

/// Reads `If-Match` of a change of something that has to exist.
pub(crate) fn matching(headers: &HeaderMap) -> Result<Condition, Problem> {
    if headers.contains_key(header::IF_NONE_MATCH) {
        let detail = "`If-None-Match` has no use here: this call creates nothing.";
        return Err(invalid_parameter(detail));
    }
    condition(headers)
}

/// Refuses `Idempotency-Key`, because the service does not support it yet.
pub(crate) fn no_idempotency_key(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key("idempotency-key") {
        return Err(invalid_parameter(
            "`Idempotency-Key` is not honoured yet, so it is refused: a call for numbers that is \
             sent again gets others.",
        ));
    }
    Ok(())
}

/// Reads the body of `advance`.
pub(crate) fn advance(body: &[u8]) -> Result<Act, Problem> {
    let fields: AdvanceRequest = object(body, r#"{"floor": "5001", "confirm": false}"#)?;
    let period = match &fields.period {
        None => Period::none(),
        Some(Value::String(text)) => Period::parse(text)?,
        Some(_) => {
            let detail = "`period` is a string, as a reply has it.";
            return Err(Problem::new(Code::InvalidPeriod, detail));
        }
    };
    let floor = match fields.floor.as_str() {
        Some(text) => digits(text).and_then(|floor| i64::try_from(floor).ok()),
        None => plain_number(&fields.floor),
    };
    let floor = floor.ok_or_else(|| {
        let detail = format!(
            "`floor` is a whole number from 0 to {}, as a string or a number.",
            i64::MAX
        );
        Problem::new(Code::InvalidBody, detail)
    })?;
    Ok(Act::Advance {
        period,
        floor,
        confirm: fields.confirm,
    })
}

/// Reads the body of `parse`: an id as it is printed.
pub(crate) fn printed(body: &[u8]) -> Result<String, Problem> {
    let ParseRequest { id } = object(body, r#"{"id": "INV-2026-000042"}"#)?;
    let number = || plain_number(&id).map(|number| number.to_string());
    id.as_str()
        .map(str::to_owned)
        .or_else(number)
        .ok_or_else(|| {
            let detail = "`id` is a string, as a reply has it.";
            Problem::new(Code::InvalidId, detail)
        })
}

/// Returns the whole number that a JSON value is, if it is 0 or more.
fn plain_number(value: &Value) -> Option<i64> {
    whole_number(value.as_number()?).filter(|number| *number >= 0)
}

/// Reads a body that is a JSON object. A refusal shows the example.
fn object<T: DeserializeOwned>(body: &[u8], example: &str) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        let what = cut(&error.to_string(), 160);
        let detail = format!("The body has to be a JSON object such as {example}: {what}.");
        Problem::new(Code::InvalidBody, detail)
    })
}

/// Returns the media type that the caller wants.
///
/// It is text only if `text/plain` is named, its weight is above the weight of JSON, and the weight
/// of `*/*` is not above it. An item that cannot be read is passed over.
pub(crate) fn wanted(headers: &HeaderMap) -> MediaType {
    let accepted = headers.get_all(header::ACCEPT);
    let ranges: Vec<QualityItem<Mime>> = accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|range| range.trim().parse().ok())
        .collect();
    let weight = |essences: &[&str]| {
        let named = ranges
            .iter()
            .filter(|range| essences.contains(&range.item.essence_str()));
        let highest = named.map(|range| range.quality).max();
        highest.unwrap_or(Quality::ZERO)
    };
    let text = weight(&["text/plain"]);
    if text > weight(&["application/json", "application/*"]) && text >= weight(&["*/*"]) {
        MediaType::Text
    } else {
        MediaType::Json
    }
}

/// Returns the value of a header that may be there only once.
pub(crate) fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name);
    let Some(value) = values.next() else {
        return Ok(None);
    };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text.trim())),
        _ => Err(invalid_parameter(format!(
            "`{name}` has to be given once, in ASCII."
        ))),
    }
}

/// Reads the version of an entity tag. If no definition can have the tag, the version never
/// matches.
fn version(tag: &str) -> Result<Condition, Problem> {
    if tag == "*" || tag.contains(',') {
        return Err(invalid_parameter(
            "`If-Match` takes one version, as `ETag` gave it.",
        ));
    }
    let bare = tag
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let version = bare
        .and_then(digits)
        .and_then(|version| i64::try_from(version).ok());
    Ok(Condition::Version(version.unwrap_or(NO_VERSION)))
}

/// Reads a whole number in decimal digits only: no sign, no blank.
fn digits(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// Query parameters that are known, each given once.
struct Parameters<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Parameters<'a> {
    fn read(query: Option<&'a str>, known: &[&str]) -> Result<Self, Problem> {
        let mut given = Vec::new();
        for (key, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if !known.contains(&key.as_ref()) {
                return Err(unknown(&key, known));
            }
            if given.iter().any(|(earlier, _)| *earlier == key) {
                let detail = format!("`{key}` is given twice; give it once.");
                return Err(Problem::new(code_of(&key), detail));
            }
            given.push((key, value));
        }
        Ok(Self(given))
    }

    fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(given, _)| given == key);
        found.map(|(_, value)| value.as_ref())
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, Problem> {
        match self.get(key) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(Problem::new(
                code_of(key),
                format!("`{key}` is `true` or `false`."),
            )),
        }
    }

    /// Returns the period to count in, if one is named.
    fn period(&self) -> Result<Option<Period>, Problem> {
        Ok(self.get("period").map(Period::parse).transpose()?)
    }

    /// Returns a whole number from 1 to `most`, if one is given.
    fn up_to(&self, key: &str, most: u64) -> Result<Option<u64>, Problem> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        match digits(text).filter(|number| (1..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(out_of_bounds(key, most)),
        }
    }

    /// Returns how many numbers a call takes, if it says so: 1 or more.
    fn count(&self) -> Result<Option<u64>, Problem> {
        let Some(text) = self.get("count") else {
            return Ok(None);
        };
        match digits(text).filter(|count| *count > 0) {
            Some(count) => Ok(Some(count)),
            None => Err(out_of_bounds("count", MAX_COUNT)),
        }
    }

    /// Returns which names are asked for, of those that the filter selects.
    fn names_query(&self, filter: String) -> Result<NamesQuery, Problem> {
        Ok(NamesQuery {
            filter,
            after: self.beginning("after")?,
            limit: self.up_to("limit", MAX_LIMIT)?.unwrap_or(DEFAULT_LIMIT),
        })
    }

    /// Returns a text that can stand anywhere in a name, or an empty text.
    fn middle(&self, key: &str) -> Result<String, Problem> {
        let text = self.get(key).unwrap_or_default();
        // After its first character, a name may have more characters.
        let is_behind = SequenceName::check(&format!("a{text}")).is_ok();
        if is_behind || SequenceName::check(text).is_ok() {
            return Ok(text.to_owned());
        }
        Err(invalid_parameter(format!(
            "No name contains `{}`: names have at most 128 of the characters A-Z, a-z, 0-9, `.`, \
             `_`, `:` and `-`.",
            shortened(text)
        )))
    }

    /// Returns a text that a name can begin with, or an empty text.
    fn beginning(&self, key: &str) -> Result<String, Problem> {
        let text = self.get(key).unwrap_or_default();
        match SequenceName::check(text) {
            Err(error) if !text.is_empty() => Err(invalid_parameter(format!(
                "No name begins like `{key}`: {error}"
            ))),
            Ok(()) | Err(_) => Ok(text.to_owned()),
        }
    }
}

/// Returns the refusal of a parameter that is no whole number from 1 to `most`.
fn out_of_bounds(key: &str, most: u64) -> Problem {
    let detail = format!("`{key}` is a whole number from 1 to {most}.");
    Problem::new(code_of(key), detail)
}

/// Returns the refusal of a parameter, a header or a field that is out of bounds.
fn invalid_parameter(detail: impl Into<Cow<'static, str>>) -> Problem {
    Problem::new(Code::InvalidParameter, detail)
}

fn unknown(key: &str, known: &[&str]) -> Problem {
    let key = shortened(key);
    let detail = if known.is_empty() {
        format!("`{key}` is not a parameter of this call; it takes none.")
    } else {
        let known = known.join("`, `");
        format!("`{key}` is not a parameter of this call; it takes `{known}`.")
    };
    invalid_parameter(detail)
}

/// Returns what a caller wrote, short enough to be repeated to them.
fn shortened(text: &str) -> String {
    cut(text, 64)
}

fn cut(text: &str, most: usize) -> String {
    text.chars()
        .take(most)
        .map(|found| {
            if found.is_control() {
                '\u{fffd}'
            } else {
                found
            }
        })
        .collect()
}

fn code_of(parameter: &str) -> Code {
    match parameter {
        "count" | "size" => Code::InvalidCount,
        "period" => Code::InvalidPeriod,
        "id" => Code::InvalidId,
        _ => Code::InvalidParameter,
    }
}
