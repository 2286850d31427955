//! Tests that every instant lies in one period, also on dates on which clocks were set.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may fail loudly"
)]

use std::collections::BTreeSet;

use jiff::{
    Timestamp,
    civil::{DateTime, datetime},
    tz::{TimeZone, TimeZoneDatabase},
};
use proptest::prelude::*;

use super::cutover::END_MS;
use super::*;
use crate::{
    definition::{Definition, Span},
    period::PeriodKind,
    tests::table,
};

const UNITS: [PeriodKind; 4] = [
    PeriodKind::Day,
    PeriodKind::Week,
    PeriodKind::Month,
    PeriodKind::Year,
];

/// Bounds the tested instants: the years 1970 to 2200.
const INSTANTS_MS: std::ops::Range<i64> = 0..7_289_654_400_000;

fn zone_names() -> Vec<String> {
    let names = TimeZoneDatabase::bundled();
    names.available().map(|name| name.to_string()).collect()
}

fn defined(period: PeriodKind, zone: &str, cutover: &str, year_starts: &str) -> Definition {
    Definition {
        period,
        time_zone: zone.to_owned(),
        cutover: cutover.to_owned(),
        year_starts: year_starts.to_owned(),
        ..Definition::default()
    }
}

fn calendar(period: PeriodKind, zone: &str, cutover: &str) -> Calendar {
    Calendar::of(&defined(period, zone, cutover, "01-01")).unwrap()
}

fn at(time: &str) -> i64 {
    time.parse::<Timestamp>().unwrap().as_millisecond()
}

fn shown(ms: i64) -> String {
    Timestamp::from_millisecond(ms).unwrap().to_string()
}

/// Checks the text of a period, its beginning and its end.
fn is_spelled(period: &CalendarPeriod, expected: &str) {
    let (from, until) = (shown(period.span.from_ms), shown(period.span.until_ms));
    let spelled = format!("{} from {from} until {until}", period.period);
    assert_eq!(spelled, expected);
}

/// Checks days. Each row has a zone, a cut-over, a day or an instant of it, and how it is spelled.
fn days_are_spelled(rows: &'static str) {
    for [zone, cutover, asked, expected] in table(rows) {
        let calendar = calendar(PeriodKind::Day, zone, cutover);
        let day = match asked.parse::<Timestamp>() {
            Ok(instant) => calendar.at(instant.as_millisecond()),
            Err(_) => calendar.named(asked).unwrap(),
        };
        is_spelled(&day, expected);
    }
}

/// Returns whether local time reaches `local` exactly at `ms`, and not a millisecond earlier.
fn reaches(zone: &TimeZone, ms: i64, local: DateTime) -> bool {
    let at = |ms| zone.to_datetime(Timestamp::from_millisecond(ms).unwrap());
    at(ms) >= local && at(ms - 1) < local
}

/// Checks what must be true of the period of any instant, and of the periods around it.
fn check_around(calendar: &Calendar, now_ms: i64) {
    let here = calendar.at(now_ms);
    assert!(here.span.contains(now_ms), "{here:?} at {now_ms}");
    assert_eq!(calendar.at(here.span.from_ms), here);
    assert_eq!(calendar.at(here.span.until_ms - 1), here);
    assert_eq!(calendar.named(here.period.as_str()).unwrap(), here);
    let next = calendar.at(here.span.until_ms);
    assert_eq!(next.span.from_ms, here.span.until_ms, "{here:?} {next:?}");
    assert!(next.period > here.period, "{here:?} {next:?}");
    let before = calendar.at(here.span.from_ms - 1);
    if before == here {
        assert_eq!(here, calendar.at(i64::MIN), "the first one");
        return;
    }
    assert_eq!(
        before.span.until_ms, here.span.from_ms,
        "{before:?} {here:?}"
    );
    assert!(before.period < here.period, "{before:?} {here:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..crate::tests::properties() })]

    #[test]
    fn each_instant_lies_in_one_period_of_each_calendar(
        zone in prop::sample::select(zone_names()),
        unit in prop::sample::select(&UNITS[..]),
        now_ms in INSTANTS_MS,
        minute in prop_oneof![Just(0_u32), Just(150), Just(1320), 0..1440_u32],
        starts in prop::sample::select(vec!["01-01", "04-06", "10-01", "12-31", "02-28"]),
        jump_ms in 0..1_000_000_000_000_i64,
    ) {
        let cutover = format!("{:02}:{:02}", minute / 60, minute % 60);
        let calendar = Calendar::of(&defined(unit, &zone, &cutover, starts)).unwrap();
        let now_ms = now_ms.max(calendar.at(i64::MIN).span.from_ms);
        check_around(&calendar, now_ms);
        // It also holds at the next change of the clock, a likely place for mistakes.
        let zone = TimeZoneDatabase::bundled().get(&zone).unwrap();
        let now = Timestamp::from_millisecond(now_ms).unwrap();
        for change in zone.following(now).take(2) {
            let changed_ms = change.timestamp().as_millisecond();
            for near_ms in [-86_400_000, -1, 0, 1, 86_400_000] {
                check_around(&calendar, now_ms.max(changed_ms + near_ms));
            }
        }
        // The texts of periods sort as time goes.
        let (here, later) = (calendar.at(now_ms), calendar.at(now_ms + jump_ms));
        prop_assert_eq!(here.period.cmp(&later.period), here.span.from_ms.cmp(&later.span.from_ms));
    }

    #[test]
    fn a_day_begins_when_local_time_first_reaches_its_cut_over(
        zone in prop::sample::select(zone_names()),
        now_ms in INSTANTS_MS,
        hour in 0_i8..24,
        half in 0_i8..2,
    ) {
        let cutover = format!("{hour:02}:{:02}", half * 30);
        let calendar = calendar(PeriodKind::Day, &zone, &cutover);
        let zone = TimeZoneDatabase::bundled().get(&zone).unwrap();
        let now_ms = now_ms.max(calendar.at(i64::MIN).span.from_ms);
        let now = Timestamp::from_millisecond(now_ms).unwrap();
        let changes = zone.following(now).take(2).map(|change| change.timestamp());
        let changes = changes.flat_map(|change| {
            [0, 7_200_000, 86_400_000].map(|later_ms| change.as_millisecond() + later_ms)
        });
        for now_ms in changes.chain([now_ms]) {
            let day = calendar.at(now_ms);
            let date = day.period.as_str().parse::<i32>().unwrap();
            let (year, month, day_of_month) = (date / 10_000, date / 100 % 100, date % 100);
            let local = datetime(
                year.try_into().unwrap(), month.try_into().unwrap(),
                day_of_month.try_into().unwrap(), hour, half * 30, 0, 0,
            );
            let is_calendar_day = hour == 0 && half == 0;
            let from = if is_calendar_day { local } else { local.yesterday().unwrap() };
            prop_assert!(reaches(&zone, day.span.from_ms, from), "{:?} from {}", day, from);
        }
    }

    #[test]
    fn no_instant_and_no_label_makes_a_calendar_panic(
        zone in prop::sample::select(zone_names()),
        unit in prop::sample::select(&UNITS[..]),
        now_ms in prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), END_MS - 9..END_MS + 9],
        label in ".{0,12}|[0-9]{4}(W?[0-9]{2}([0-9]{2})?)?",
        seconds in any::<u64>(),
    ) {
        for cutover in ["00:00", "22:00"] {
            let calendar = calendar(unit, &zone, cutover);
            let here = calendar.at(now_ms);
            prop_assert!(here.span.from_ms < here.span.until_ms);
            prop_assert_eq!(calendar.named(here.period.as_str()), Ok(here.clone()));
            let span = Span::from_seconds(seconds);
            prop_assert!(calendar.admits(&here, now_ms, span, span));
            let removable = calendar.removable_through(now_ms, span);
            prop_assert!(removable.is_none_or(|last| last < here.period));
            if let Ok(named) = calendar.named(&label) {
                prop_assert_eq!(named.period.as_str(), &label);
                prop_assert_eq!(calendar.at(named.span.from_ms), named);
            }
        }
    }
}

#[test]
fn the_days_of_berlin_have_23_hours_and_25_when_the_clock_is_changed() {
    days_are_spelled(
        "
        Europe/Berlin | 00:00 | 20260329 | 20260329 from 2026-03-28T23:00:00Z until 2026-03-29T22:00:00Z
        Europe/Berlin | 00:00 | 20261025 | 20261025 from 2026-10-24T22:00:00Z until 2026-10-25T23:00:00Z
        ",
    );
}

#[test]
fn a_cut_over_that_is_left_out_or_comes_twice_is_where_the_clock_first_reaches_it() {
    // On 29 March there is no time from 02:00 to 03:00. The day begins at 03:00, which is 01:00
    // UTC. On 25 October the time from 02:00 to 03:00 comes twice. The day begins at the first
    // 02:30.
    days_are_spelled(
        "
        Europe/Berlin | 02:30 | 2026-03-29T01:00:00Z | 20260330 from 2026-03-29T01:00:00Z until 2026-03-30T00:30:00Z
        Europe/Berlin | 02:30 | 2026-10-25T01:30:00Z | 20261026 from 2026-10-25T00:30:00Z until 2026-10-26T01:30:00Z
        ",
    );
}

#[test]
fn a_banks_day_is_the_one_that_ends_at_the_cut_over() {
    days_are_spelled(
        "Europe/Berlin | 22:00 | 2026-11-20T20:59:59.999Z | 20261120 from 2026-11-19T21:00:00Z until 2026-11-20T21:00:00Z",
    );
    // Weeks, months and years consist of such days.
    let evening = at("2026-12-31T21:00:00Z");
    for (unit, label, from) in [
        (PeriodKind::Day, "20270101", "2026-12-31T21:00:00Z"),
        (PeriodKind::Week, "2026W53", "2026-12-27T21:00:00Z"),
        (PeriodKind::Month, "202701", "2026-12-31T21:00:00Z"),
        (PeriodKind::Year, "2027", "2026-12-31T21:00:00Z"),
    ] {
        let period = calendar(unit, "Europe/Berlin", "22:00").at(evening);
        assert_eq!(period.period.as_str(), label);
        assert_eq!(shown(period.span.from_ms), from);
    }
}

#[test]
fn zones_off_by_half_hours_are_cut_at_their_own_midnight() {
    // Lord Howe sets its clock forward by half an hour, at 02:00 on 4 October.
    days_are_spelled(
        "
        Asia/Kolkata        | 00:00 | 2026-11-20T18:29:59.999Z | 20261120 from 2026-11-19T18:30:00Z until 2026-11-20T18:30:00Z
        Australia/Lord_Howe | 02:15 | 2026-10-03T15:30:00Z     | 20261005 from 2026-10-03T15:30:00Z until 2026-10-04T15:15:00Z
        ",
    );
    let midnight = calendar(PeriodKind::Day, "Australia/Lord_Howe", "00:00");
    let changed = midnight.named("20261004").unwrap();
    assert_eq!(changed.span.until_ms - changed.span.from_ms, 84_600_000);
}

#[test]
fn a_day_without_midnight_begins_after_the_gap() {
    // In Brazil the clock went from 00:00 to 01:00 on 4 November 2018. On 17 February at midnight
    // the clock went back to 23:00. That hour came twice, so the day had 25 hours.
    days_are_spelled(
        "
        America/Sao_Paulo | 00:00 | 20181104 | 20181104 from 2018-11-04T03:00:00Z until 2018-11-05T02:00:00Z
        America/Sao_Paulo | 00:00 | 20180217 | 20180217 from 2018-02-17T02:00:00Z until 2018-02-18T03:00:00Z
        ",
    );
}

#[test]
fn a_day_that_the_clock_was_set_past_is_no_period() {
    let apia = calendar(PeriodKind::Day, "Pacific/Apia", "00:00");
    let before = apia.named("20111229").unwrap();
    let after = apia.at(before.span.until_ms);
    is_spelled(
        &after,
        "20111231 from 2011-12-30T10:00:00Z until 2011-12-31T10:00:00Z",
    );
    let refused = apia.named("20111230").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "There was no 20111230 in Pacific/Apia: the clock was set past it."
    );
    // The week and the year of the missing day are a day shorter.
    let week = calendar(PeriodKind::Week, "Pacific/Apia", "00:00");
    let short = week.named("2011W52").unwrap();
    assert_eq!(short.span.until_ms - short.span.from_ms, 6 * 86_400_000);
}

#[test]
fn a_fiscal_year_is_printed_as_the_year_it_begins_in() {
    let definition = defined(PeriodKind::Year, "Europe/London", "00:00", "04-06");
    let calendar = Calendar::of(&definition).unwrap();
    is_spelled(
        &calendar.at(at("2026-04-05T22:59:59.999Z")),
        "2025 from 2025-04-05T23:00:00Z until 2026-04-05T23:00:00Z",
    );
    assert_eq!(
        calendar.at(at("2026-04-05T23:00:00Z")).period.as_str(),
        "2026"
    );
    assert_eq!(
        calendar.at(at("2027-01-01T00:00:00Z")).period.as_str(),
        "2026"
    );
}

#[test]
fn only_calendar_periods_have_a_calendar() {
    for period in [PeriodKind::None, PeriodKind::Keyed] {
        assert!(Calendar::of(&defined(period, "UTC", "00:00", "01-01")).is_none());
    }
    for (zone, cutover, starts) in [
        ("Mars", "00:00", "01-01"),
        ("UTC", "25:00", "01-01"),
        ("UTC", "00:00", "02-30"),
    ] {
        assert!(Calendar::of(&defined(PeriodKind::Year, zone, cutover, starts)).is_none());
    }
}

#[test]
fn what_is_no_period_is_refused_with_what_one_is() {
    let named = |unit, label: &str| {
        let refused = calendar(unit, "UTC", "00:00").named(label).unwrap_err();
        refused.to_string()
    };
    assert_eq!(
        named(PeriodKind::Day, "2026-11-20"),
        "A period of this sequence is a day printed as 20261120, of the years 1970 to 9999; \
         \"2026-11-20\" is none."
    );
    assert!(named(PeriodKind::Week, "2025W53").contains("2026W47"));
    assert!(named(PeriodKind::Month, "196912").contains("1970 to 9999"));
    assert!(named(PeriodKind::Year, "26").contains("year"));
    assert!(named(PeriodKind::Year, &"9".repeat(10_000)).len() < 300);
}

#[test]
fn the_ends_of_time_have_a_period_too() {
    let apia = calendar(PeriodKind::Day, "Pacific/Apia", "00:00");
    let berlin = calendar(PeriodKind::Day, "Europe/Berlin", "22:00");
    for calendar in [apia, berlin] {
        assert_eq!(calendar.at(i64::MIN).period.as_str(), "19700101");
        let last = calendar.at(i64::MAX);
        assert_eq!(last.span.until_ms, END_MS);
        assert!(last.period.as_str() >= "99991230", "{last:?}");
        assert_eq!(calendar.at(last.span.until_ms), last);
    }
    let definition = defined(PeriodKind::Year, "UTC", "00:00", "04-06");
    let calendar = Calendar::of(&definition).unwrap();
    assert_eq!(calendar.at(0).period.as_str(), "1970");
    assert_eq!(calendar.at(END_MS - 1).period.as_str(), "9999");
}

#[test]
fn a_caller_may_name_what_ended_lately_or_begins_soon() {
    let calendar = calendar(PeriodKind::Day, "UTC", "00:00");
    let now_ms = at("2026-11-20T12:00:00Z");
    let admitted = |back, ahead| {
        let days = (10..=30).map(|day| calendar.named(&format!("202611{day}")).unwrap());
        let (back, ahead) = (Span::from_seconds(back), Span::from_seconds(ahead));
        let admitted: BTreeSet<String> = days
            .filter(|day| calendar.admits(day, now_ms, back, ahead))
            .map(|day| day.period.to_string())
            .collect();
        let first = admitted.first().unwrap().split_at(6).1.to_owned();
        let last = admitted.last().unwrap().split_at(6).1.to_owned();
        (first, admitted.len(), last)
    };
    let are = |first: &str, len, last: &str| (first.to_owned(), len, last.to_owned());
    assert_eq!(admitted(0, 0), are("20", 1, "20"));
    // It is noon: the 19th ended twelve hours ago, and the 21st begins in twelve hours.
    assert_eq!(admitted(43_200, 43_200), are("20", 1, "20"));
    assert_eq!(admitted(43_201, 43_201), are("19", 3, "21"));
    assert_eq!(admitted(172_800, 172_800), are("18", 5, "22"));
    // It is also true in the first millisecond of the period.
    let today = calendar.named("20261120").unwrap();
    let none = Span::from_seconds(0);
    assert!(calendar.admits(&today, today.span.from_ms, none, none));
    assert!(!calendar.admits(&today, today.span.until_ms, none, none));
}

#[test]
fn what_ended_long_enough_ago_may_be_removed() {
    let calendar = calendar(PeriodKind::Day, "UTC", "00:00");
    let through = |now: &str, days| {
        let period = calendar.removable_through(at(now), Span::from_days(days));
        period.map(|period| period.to_string())
    };
    // The 18th ended at 00:00 on the 19th.
    assert_eq!(through("2026-11-20T00:00:00Z", 1).unwrap(), "20261118");
    assert_eq!(through("2026-11-19T23:59:59.999Z", 1).unwrap(), "20261117");
    assert_eq!(through("2026-11-20T00:00:00Z", 400).unwrap(), "20251015");
    assert_eq!(through("1970-01-02T00:00:00Z", 1), None);
    assert_eq!(through("1970-01-03T00:00:00Z", 1).unwrap(), "19700101");
    assert_eq!(through("2026-11-20T00:00:00Z", u32::MAX), None);
}
