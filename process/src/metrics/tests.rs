//! Checks the metrics as a scrape shows them.

use std::sync::Arc;

use super::token_expiries::MAX_CALLERS;
use crate::metrics::*;

fn value(text: &str, series: &str) -> Option<f64> {
    text.lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn durations_are_exported_as_histograms() {
    let metrics = Metrics::new();
    metrics.reservation_duration.record(0.003);
    metrics.http_duration(Route::Next).record(0.000_02);
    metrics.upkeep();
    let text = metrics.render();
    for name in [
        "odometer_reservation_duration_seconds",
        "odometer_http_request_duration_seconds",
    ] {
        assert!(text.contains(&format!("# TYPE {name} histogram")), "{text}");
    }
    assert!(!text.contains(" summary"), "{text}");
    assert_eq!(
        value(
            &text,
            "odometer_reservation_duration_seconds_bucket{le=\"0.005\"}"
        ),
        Some(1.0)
    );
    assert_eq!(
        value(
            &text,
            "odometer_http_request_duration_seconds_bucket{route=\"next\",le=\"0.000025\"}"
        ),
        Some(1.0)
    );
}

#[test]
fn every_metric_of_the_design_is_in_a_first_scrape_with_one_sequence() {
    let metrics = Metrics::new();
    metrics.sequence("orders").issued.increment(3);
    let text = metrics.render();
    let mut wanted = vec![
        "odometer_numbers_issued_total{sequence=\"orders\"}".to_owned(),
        "odometer_block_size{sequence=\"orders\"}".to_owned(),
        "odometer_block_remaining{sequence=\"orders\"}".to_owned(),
        "odometer_block_utilization_ratio{sequence=\"orders\"}".to_owned(),
        "odometer_reserve_seconds{sequence=\"orders\"}".to_owned(),
        "odometer_runway_numbers{sequence=\"orders\"}".to_owned(),
        "odometer_runway_seconds{sequence=\"orders\"}".to_owned(),
        "odometer_reservation_retries_total".to_owned(),
        "odometer_reservation_duration_seconds_count".to_owned(),
        "odometer_waiters".to_owned(),
        "odometer_token_expires_seconds{caller=\"_other\"}".to_owned(),
        "odometer_actors".to_owned(),
        "odometer_http_requests_total{route=\"next\",status=\"200\"}".to_owned(),
        "odometer_http_request_duration_seconds_count{route=\"next\"}".to_owned(),
        concat!(
            "odometer_build_info{version=\"",
            env!("CARGO_PKG_VERSION"),
            "\"}"
        )
        .to_owned(),
    ];
    wanted.extend(AbandonedCause::ALL.map(|cause| {
        let cause = cause.word();
        format!("odometer_abandoned_numbers_total{{cause=\"{cause}\"}}")
    }));
    for outcome in [
        "reserved",
        "adopted",
        "conflict",
        "not_committed",
        "uncertain",
    ] {
        wanted.push(format!(
            "odometer_reservations_total{{outcome=\"{outcome}\"}}"
        ));
    }
    for series in wanted {
        assert!(
            value(&text, &series).is_some(),
            "{series} is not in\n{text}"
        );
    }
    assert_eq!(
        value(&text, "odometer_numbers_issued_total{sequence=\"orders\"}"),
        Some(3.0)
    );
}

#[test]
fn a_least_value_of_nothing_is_infinite() {
    let text = Metrics::new().render();
    for series in [
        "odometer_shortest_reserve_ratio",
        "odometer_shortest_reserve_seconds",
        "odometer_shortest_runway_numbers",
        "odometer_shortest_runway_seconds",
    ] {
        assert_eq!(value(&text, series), Some(f64::INFINITY), "{series}");
    }
}

#[test]
fn handles_count_where_their_labels_say() {
    let metrics = Metrics::new();
    for (index, cause) in (1..).zip(AbandonedCause::ALL) {
        metrics.abandoned(cause).increment(index);
    }
    for (index, route) in (1..).zip(Route::ALL) {
        metrics.http(route, 503).increment(index);
        metrics.http(route, 299).increment(10 * index);
    }
    let text = metrics.render();
    for (index, cause) in (1..).zip(AbandonedCause::ALL) {
        let label = cause.word();
        let series = format!("odometer_abandoned_numbers_total{{cause=\"{label}\"}}");
        assert_eq!(value(&text, &series), Some(f64::from(index)), "{series}");
    }
    for (index, route) in (1..).zip(Route::ALL) {
        let label = route.word();
        for (status, count) in [("200", 0), ("503", index), ("other", 10 * index)] {
            let series =
                format!("odometer_http_requests_total{{route=\"{label}\",status=\"{status}\"}}");
            assert_eq!(value(&text, &series), Some(f64::from(count)), "{series}");
        }
    }
}

#[test]
fn names_beyond_the_bound_count_together() {
    let metrics = Metrics::with_sequence_labels(2);
    for name in ["a", "b", "c", "d", "a"] {
        let sequence = metrics.sequence(name);
        sequence.issued.increment(1);
        sequence.block_size.set(5.0);
    }
    let text = metrics.render();
    for (name, issued) in [("a", 2.0), ("b", 1.0), ("_other", 2.0)] {
        let series = format!("odometer_numbers_issued_total{{sequence=\"{name}\"}}");
        assert_eq!(value(&text, &series), Some(issued), "{series}");
    }
    assert_eq!(text.matches("odometer_block_size{").count(), 2);
}

fn seconds_left(text: &str, caller: &str) -> Option<f64> {
    let series = format!("odometer_token_expires_seconds{{caller=\"{caller}\"}}");
    value(text, &series)
}

#[test]
fn a_caller_that_is_gone_is_no_longer_shown() {
    let metrics = Metrics::new();
    assert_eq!(
        seconds_left(&metrics.render(), "_other"),
        Some(f64::INFINITY)
    );
    metrics.show_token_expiries(vec![("a".into(), 60.0), ("b".into(), -5.5)]);
    let text = metrics.render();
    for (caller, left) in [("a", 60.0), ("b", -5.5), ("_other", f64::INFINITY)] {
        assert_eq!(seconds_left(&text, caller), Some(left), "{caller}");
    }
    assert_eq!(
        text.matches("# TYPE odometer_token_expires_seconds gauge")
            .count(),
        1
    );
    metrics.show_token_expiries(vec![("b".into(), 7.0)]);
    let text = metrics.render();
    assert_eq!(seconds_left(&text, "a"), None, "{text}");
    assert_eq!(seconds_left(&text, "b"), Some(7.0));
    metrics.show_token_expiries(Vec::new());
    assert_eq!(seconds_left(&metrics.render(), "b"), None);
    assert_eq!(
        seconds_left(&metrics.render(), "_other"),
        Some(f64::INFINITY)
    );
}

#[test]
fn of_many_callers_the_first_to_expire_have_labels_of_their_own() {
    let metrics = Metrics::new();
    // The last one expires first.
    let callers = (0..1500_u32).map(|n| {
        let name: Arc<str> = format!("c{n}").into();
        (name, f64::from(1500 - n))
    });
    metrics.show_token_expiries(callers.collect());
    let text = metrics.render();
    for (caller, left) in [
        ("c1499", Some(1.0)),
        ("c500", Some(1000.0)),
        ("c499", None),
        ("_other", Some(1001.0)),
    ] {
        assert_eq!(seconds_left(&text, caller), left, "{caller}");
    }
    let n_series = text.matches("odometer_token_expires_seconds{").count();
    assert_eq!(n_series, MAX_CALLERS + 1);
}

#[test]
fn two_sets_of_metrics_do_not_meet() {
    let (one, other) = (Metrics::new(), Metrics::new());
    one.reserved.increment(1);
    let series = "odometer_reservations_total{outcome=\"reserved\"}";
    assert_eq!(value(&one.render(), series), Some(1.0));
    assert_eq!(value(&other.render(), series), Some(0.0));
}
