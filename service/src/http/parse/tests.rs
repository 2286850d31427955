//! Tests what is read of a request, and what is refused.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may fail loudly"
)]

use actix_web::http::header::HeaderValue;

use super::*;

fn named(raw: &str) -> Result<String, Code> {
    let parsed = name(&format!("/v1/sequences/{raw}/next"));
    parsed
        .map(|name| name.to_string())
        .map_err(|problem| problem.code())
}

fn next_of(query: &str) -> Result<NextQuery, Code> {
    next(Some(query)).map_err(|problem| problem.code())
}

fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let name = HeaderName::from_static(name);
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

#[test]
fn a_name_is_decoded_once() {
    assert_eq!(named("orders").unwrap(), "orders");
    assert_eq!(named("%6Frders").unwrap(), "orders");
    assert_eq!(named("a:b.c_d-E9").unwrap(), "a:b.c_d-E9");
    assert_eq!(named("a%3ab").unwrap(), "a:b");
    assert_eq!(named(&"a".repeat(128)).unwrap().len(), 128);
    assert_eq!(named("%256Frders"), Err(Code::InvalidName));
}

#[test]
fn a_name_that_does_not_fit_is_refused() {
    let long = "a".repeat(129);
    for raw in [
        "",
        "a%2Fb",
        "a%2fb",
        "a b",
        "a%20b",
        "a+b",
        "a%2Bb",
        "a%00b",
        "%00",
        "a%20",
        "a ",
        "%20a",
        "a%0A",
        "-a",
        ".",
        "..",
        "%2E%2E",
        "_a",
        "a%25",
        "a%",
        "a%2",
        "a%zz",
        "ä",
        "%C3%A4",
        "%E4",
        "%FF",
        "a\u{0}b",
        "a;b",
        "a~b",
        &long,
        &"%61".repeat(129),
    ] {
        assert_eq!(named(raw), Err(Code::InvalidName), "{raw:?}");
    }
}

#[test]
fn a_count_is_a_whole_number_within_bounds() {
    assert_eq!(next(None).unwrap().count, None);
    assert_eq!(next(None).ok(), next(Some("")).ok());
    assert_eq!(next_of("count=1").unwrap().count, Some(1));
    assert_eq!(next_of("count=10000").unwrap().count, Some(10_000));
    for query in [
        "count=0",
        "count=-1",
        "count=%2B1",
        "count=+1",
        "count=10001",
        "count=abc",
        "count=1.0",
        "count=1e3",
        "count=0x10",
        "count=18446744073709551616",
        "count=18446744073709551617",
        "count=",
        "count",
        "count=1&count=1",
        "count=1&count=2",
        "count=%31%20",
        "count=%D9%A1",
    ] {
        assert_eq!(next_of(query), Err(Code::InvalidCount), "{query}");
    }
}

#[test]
fn a_count_that_is_too_high_has_a_limit_and_one_that_is_none_has_not() {
    let limit_of = |query| {
        next(Some(query))
            .map(|_| ())
            .map_err(|refused| refused.limit())
    };
    for query in ["count=10001", "count=18446744073709551615"] {
        assert_eq!(limit_of(query), Err(Some(MAX_COUNT)), "{query}");
        assert!(next_of_any_count(Some(query)).is_ok(), "{query}");
    }
    for query in [
        "count=0",
        "count=abc",
        "count=",
        "count=10001&count=1",
        "count=18446744073709551616",
    ] {
        assert_eq!(limit_of(query), Err(None), "{query}");
        assert!(next_of_any_count(Some(query)).is_err(), "{query}");
    }
    let limit_of = |query| blocks(query).map(|_| ()).map_err(|refused| refused.limit());
    for query in [None, Some("size=0"), Some("size=x")] {
        assert_eq!(limit_of(query), Err(None), "{query:?}");
    }
    let listed = listing(Some("limit=1001")).unwrap_err();
    assert_eq!(listed.limit(), None);
}

#[test]
fn flags_are_true_or_false() {
    let asked = next_of("count=5&contiguous=true&ids=false").unwrap();
    assert!(asked.contiguous && !asked.ids);
    let asked = next_of("contiguous=false&ids=true").unwrap();
    assert!(!asked.contiguous && asked.ids);
    for query in [
        "ids=",
        "ids=1",
        "ids=False",
        "contiguous",
        "ids=true&ids=true",
    ] {
        assert_eq!(next_of(query), Err(Code::InvalidParameter), "{query}");
    }
}

#[test]
fn what_is_unknown_is_named_beside_what_is_known() {
    for query in [
        "cuont=5",
        "Count=5",
        "count=1&x=1",
        "=1",
        "%63ount%20=1",
        "size=5",
    ] {
        assert_eq!(next_of(query), Err(Code::InvalidParameter), "{query}");
    }
    assert_eq!(next_of("%63ount=2").unwrap().count, Some(2));
    let problem = next(Some("cuont=5")).unwrap_err().to_string();
    assert!(
        problem.contains("`cuont`") && problem.contains("`count`"),
        "{problem}"
    );
    assert!(no_query(Some("")).is_ok());
    assert!(no_query(Some("a=1")).is_err());
}

#[test]
fn a_period_has_the_characters_of_a_name() {
    for (query, period) in [
        ("period=2026", "2026"),
        ("count=1&period=eod-7", "eod-7"),
        ("period=a%3Ab", "a:b"),
    ] {
        let asked = next(Some(query)).unwrap();
        assert_eq!(asked.period.unwrap().as_str(), period, "{query}");
    }
    let too_long = format!("period={}", "k".repeat(65));
    for query in [
        "period=",
        "period=a+b",
        "period=a%20b",
        "period=1&period=1",
        &too_long,
    ] {
        assert_eq!(next_of(query), Err(Code::InvalidPeriod), "{query}");
    }
}

#[test]
fn a_size_is_needed_and_positive() {
    let size_of = |query| {
        let asked = blocks(query).map_err(|problem| problem.code())?;
        Ok(asked.size)
    };
    assert_eq!(size_of(Some("size=5")), Ok(5));
    assert_eq!(size_of(Some("size=18446744073709551615")), Ok(u64::MAX));
    for query in [
        "",
        "size=0",
        "size=-1",
        "size=x",
        "size=",
        "size=18446744073709551616",
    ] {
        assert_eq!(size_of(Some(query)), Err(Code::InvalidCount), "{query}");
    }
    assert_eq!(size_of(None), Err(Code::InvalidCount));
    assert_eq!(size_of(Some("size=1&size=1")), Err(Code::InvalidCount));
    assert_eq!(size_of(Some("count=1")), Err(Code::InvalidParameter));
    assert_eq!(size_of(Some("size=1&period=+")), Err(Code::InvalidPeriod));
    let asked = blocks(Some("size=1&period=a")).unwrap();
    assert_eq!(asked.period.unwrap().as_str(), "a");
}

#[test]
fn an_explanation_needs_an_id_and_takes_a_period() {
    let asked = explain(Some("id=INV-2026%2F7&period=2026")).unwrap();
    assert_eq!(asked.id, "INV-2026/7");
    assert_eq!(asked.period.unwrap().as_str(), "2026");
    let code_of = |query| explain(query).map(|_| ()).map_err(|problem| problem.code());
    assert_eq!(code_of(None), Err(Code::InvalidId));
    assert_eq!(code_of(Some("id=1&id=1")), Err(Code::InvalidId));
    assert_eq!(code_of(Some("id=1&period=")), Err(Code::InvalidPeriod));
    assert_eq!(code_of(Some("value=1")), Err(Code::InvalidParameter));
}

#[test]
fn a_listing_has_bounds() {
    let asked = listing(Some("prefix=&after=&limit=1000")).unwrap();
    let all = NamesQuery {
        filter: String::new(),
        after: String::new(),
        limit: 1000,
    };
    assert_eq!(asked, all);
    assert_eq!(listing(None).unwrap().limit, DEFAULT_LIMIT);
    for query in [
        "limit=0",
        "limit=1001",
        "limit=",
        "limit=x",
        "prefix=%25",
        "after=a%20",
    ] {
        let problem = listing(Some(query)).unwrap_err();
        assert_eq!(problem.code(), Code::InvalidParameter, "{query}");
    }
}

#[test]
fn a_part_of_a_name_is_what_a_name_can_hold() {
    for contains in ["", "a", "-", ".b:c_", "9", &"x".repeat(128)] {
        let (asked, _) = live(Some(&format!("contains={contains}&limit=7"))).unwrap();
        assert_eq!((asked.filter.as_str(), asked.limit), (contains, 7));
    }
    let (asked, sort) = live(None).unwrap();
    assert_eq!((asked.limit, sort), (DEFAULT_LIMIT, LiveSort::Name));
    let sort_of = |query| live(Some(query)).map(|(_, sort)| sort);
    assert_eq!(sort_of("sort=name"), Ok(LiveSort::Name));
    assert_eq!(sort_of("sort=reserve"), Ok(LiveSort::Reserve));
    assert_eq!(sort_of("limit=7&sort=runway"), Ok(LiveSort::Runway));
    for query in [
        "contains=a+b",
        "contains=%C3%A9",
        "contains=a%2Fb",
        "after=-",
        "limit=0",
        "prefix=a",
        "contains=a&contains=b",
        "sort=",
        "sort=Name",
        "sort=reserve&sort=runway",
    ] {
        let problem = live(Some(query)).unwrap_err();
        assert_eq!(problem.code(), Code::InvalidParameter, "{query}");
    }
    let long = format!("contains={}", "x".repeat(129));
    assert!(live(Some(&long)).is_err());
}

#[test]
fn text_is_given_where_it_is_preferred() {
    for (accept, expected) in [
        ("text/plain", MediaType::Text),
        ("Text/Plain; charset=utf-8", MediaType::Text),
        ("text/plain, */*", MediaType::Text),
        ("text/plain;q=0.9, application/json;q=0.1", MediaType::Text),
        ("*/*", MediaType::Json),
        ("", MediaType::Json),
        ("text/*", MediaType::Json),
        ("text/html", MediaType::Json),
        ("application/json", MediaType::Json),
        ("application/json, text/plain, */*", MediaType::Json),
        ("text/plain, application/json", MediaType::Json),
        ("text/plain;q=0", MediaType::Json),
        ("text/plain;q=0.1, */*", MediaType::Json),
        ("text/plain;q=abc", MediaType::Json),
    ] {
        assert_eq!(
            wanted(&headers(&[("accept", accept)])),
            expected,
            "{accept}"
        );
    }
    assert_eq!(wanted(&headers(&[])), MediaType::Json);
    let twice = headers(&[("accept", "text/html"), ("accept", "text/plain")]);
    assert_eq!(wanted(&twice), MediaType::Text);
}

#[test]
fn weights_are_those_of_the_rfc() {
    let of_two = |text: &str, json: &str| {
        let accept = format!("text/plain;q={text}, application/json;q={json}");
        wanted(&headers(&[("accept", &accept)]))
    };
    let ascending = ["0.", "0.001", "0.05", "0.499", "0.5", "1.000"];
    for (lower, higher) in ascending.into_iter().zip(ascending.into_iter().skip(1)) {
        assert_eq!(of_two(higher, lower), MediaType::Text, "{lower} {higher}");
        assert_eq!(of_two(lower, higher), MediaType::Json, "{lower} {higher}");
    }
    assert_eq!(of_two("1", "1.000"), MediaType::Json);
    assert_eq!(of_two("0.5", "0.500"), MediaType::Json);
    for weight in ["", "2", "-1", "0.1234", "0.x", ".5", "1.001"] {
        assert_eq!(of_two(weight, "0"), MediaType::Json, "{weight}");
        assert_eq!(of_two("0.001", weight), MediaType::Text, "{weight}");
    }
}

#[test]
fn conditions_are_read_from_their_headers() {
    let condition_of = |given: &[_]| condition(&headers(given)).map_err(|problem| problem.code());
    assert_eq!(condition_of(&[]), Ok(Condition::None));
    assert_eq!(
        condition_of(&[("if-none-match", "*")]),
        Ok(Condition::MustNotExist)
    );
    assert_eq!(
        condition_of(&[("if-match", "\"17\"")]),
        Ok(Condition::Version(17))
    );
    for never in [
        "\"abc\"",
        "W/\"17\"",
        "17",
        "\"\"",
        "\"-1\"",
        "\"9223372036854775808\"",
    ] {
        let read = condition_of(&[("if-match", never)]);
        assert_eq!(read, Ok(Condition::Version(NO_VERSION)), "{never}");
    }
    for refused in [
        &[("if-none-match", "\"17\"")][..],
        &[("if-match", "*")],
        &[("if-match", "\"1\", \"2\"")],
        &[("if-match", "\"1\""), ("if-match", "\"2\"")],
        &[("if-match", "\"1\""), ("if-none-match", "*")],
    ] {
        assert_eq!(
            condition_of(refused),
            Err(Code::InvalidParameter),
            "{refused:?}"
        );
    }
}

#[test]
fn a_dry_run_is_asked_for_by_a_flag() {
    assert_eq!(dry_run(None), Ok(false));
    assert_eq!(dry_run(Some("dry_run=false")), Ok(false));
    assert_eq!(dry_run(Some("dry_run=true")), Ok(true));
    for query in [
        "dry-run=true",
        "dry_run",
        "dry_run=1",
        "dry_run=true&dry_run=true",
    ] {
        let code = dry_run(Some(query)).map_err(|problem| problem.code());
        assert_eq!(code, Err(Code::InvalidParameter), "{query}");
    }
}

#[test]
fn a_floor_is_a_whole_number_as_a_string_or_a_number() {
    let read = |body: &str| advance(body.as_bytes()).map_err(|problem| problem.code());
    for (body, floor, confirm) in [
        (r#"{"floor":"0"}"#, 0, false),
        (r#"{"floor":5001,"confirm":false}"#, 5001, false),
        (r#"{"floor":5001.0}"#, 5001, false),
        (r#"{"floor":3e4}"#, 30_000, false),
        (
            r#"{"confirm":true,"floor":"9223372036854775807"}"#,
            i64::MAX,
            true,
        ),
    ] {
        let expected = Act::Advance {
            period: Period::none(),
            floor,
            confirm,
        };
        assert_eq!(read(body), Ok(expected), "{body}");
    }
    for body in [
        "",
        "{}",
        "[]",
        "5",
        "null",
        r#"{"floor":null}"#,
        r#"{"floor":""}"#,
        r#"{"floor":"-1"}"#,
        r#"{"floor":-1}"#,
        r#"{"floor":"+1"}"#,
        r#"{"floor":" 1"}"#,
        r#"{"floor":1.5}"#,
        r#"{"floor":-1.0}"#,
        r#"{"floor":1e300}"#,
        r#"{"floor":9007199254740994.0}"#,
        r#"{"floor":true}"#,
        r#"{"floor":"9223372036854775808"}"#,
        r#"{"floor":1,"floor":1}"#,
        r#"{"floor":1,"confirm":"true"}"#,
        r#"{"floor":1,"confirm":null}"#,
        r#"{"floor":1,"flor":1}"#,
        r#"{"floor":1}{}"#,
    ] {
        assert_eq!(read(body), Err(Code::InvalidBody), "{body}");
    }
    let of_period = read(r#"{"floor":1,"period":"2026"}"#).unwrap();
    assert_eq!(of_period.period().as_str(), "2026");
    for body in [
        r#"{"floor":1,"period":2026}"#,
        r#"{"floor":1,"period":"a b"}"#,
    ] {
        assert_eq!(read(body), Err(Code::InvalidPeriod), "{body}");
    }
}

#[test]
fn what_creates_nothing_takes_only_if_match() {
    let code_of = |given: &[_]| matching(&headers(given)).map_err(|problem| problem.code());
    assert_eq!(code_of(&[]), Ok(Condition::None));
    assert_eq!(
        code_of(&[("if-match", "\"17\"")]),
        Ok(Condition::Version(17))
    );
    assert_eq!(
        code_of(&[("if-none-match", "*")]),
        Err(Code::InvalidParameter)
    );
}

#[test]
fn an_id_is_read_as_it_is_printed_or_as_a_whole_number() {
    let read = |body: &str| printed(body.as_bytes()).map_err(|problem| problem.code());
    for (body, id) in [
        (r#"{"id":"INV-000042"}"#, "INV-000042"),
        (r#"{"id":"5001.0"}"#, "5001.0"),
        (r#"{"id":5001}"#, "5001"),
        (r#"{"id":5001.0}"#, "5001"),
        (r#"{"id":9223372036854775807}"#, "9223372036854775807"),
    ] {
        assert_eq!(read(body).as_deref(), Ok(id), "{body}");
    }
    for body in [
        r#"{"id":-1}"#,
        r#"{"id":5001.5}"#,
        r#"{"id":9223372036854775808}"#,
        r#"{"id":null}"#,
    ] {
        assert_eq!(read(body), Err(Code::InvalidId), "{body}");
    }
}
