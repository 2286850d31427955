//! Lists the expressions that show only failures, and what provokes each failure.

use super::{dashboards, expressions::Expression};
use crate::support::prometheus::Rule;

/// The failures, in the order in which the test provokes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Troubled,
    Stalled,
    GivenUp,
    Draining,
    Dead,
    Away,
    Over,
}

pub(super) const STEPS: [Step; 7] = [
    Step::Troubled,
    Step::Stalled,
    Step::GivenUp,
    Step::Draining,
    Step::Dead,
    Step::Away,
    Step::Over,
];

/// Every alert, the step that provokes it, and how.
const PROVOKED: [(&str, Step, &str); 32] = [
    (
        "OdometerActorRestarted",
        Step::Troubled,
        "actors panic, each at some refill",
    ),
    (
        "OdometerInternalErrors",
        Step::Troubled,
        "the counter of a sequence is deleted by SQL",
    ),
    (
        "OdometerReserveBelowHold",
        Step::Troubled,
        "the blocks of a busy sequence have two numbers",
    ),
    (
        "OdometerStoreWentBack",
        Step::Troubled,
        "the counter of a sequence is rewound by SQL",
    ),
    (
        "OdometerAccessStale",
        Step::Troubled,
        "the file of the administrator's token is removed",
    ),
    (
        "OdometerCertificateExpires",
        Step::Troubled,
        "the certificate of a replica is good for three days",
    ),
    (
        "OdometerTokenExpires",
        Step::Troubled,
        "a caller of a replica has expired",
    ),
    (
        "OdometerCallsNotAllowed",
        Step::Troubled,
        "a program goes on calling with a wrong token",
    ),
    (
        "OdometerStoreFailedOver",
        Step::Troubled,
        "the stamp of a database names another server",
    ),
    (
        "OdometerDurabilityWeak",
        Step::Troubled,
        "the URL of the database says `synchronous_commit = off`",
    ),
    (
        "OdometerJournalOverlap",
        Step::Troubled,
        "a row that overlaps another one is put into the journal",
    ),
    (
        "OdometerClockSkew",
        Step::Troubled,
        "the replica's clock is two minutes ahead",
    ),
    (
        "OdometerRunwayUnder30Days",
        Step::Troubled,
        "a sequence has 17 days left at its declared rate",
    ),
    (
        "OdometerRunwayUnder7Days",
        Step::Troubled,
        "a sequence has 3 days left at its declared rate",
    ),
    (
        "OdometerLimitNear",
        Step::Troubled,
        "a sequence in use may give one number a second",
    ),
    (
        "OdometerNearlyExhausted",
        Step::Troubled,
        "a sequence in use has a `max` of 500",
    ),
    (
        "OdometerNumbersAbandoned",
        Step::GivenUp,
        "a write of 100,000 numbers is given up, and done all the same",
    ),
    (
        "OdometerUnexpectedCreations",
        Step::Troubled,
        "a program asks for 150 new names",
    ),
    (
        "OdometerWorkerIdsRefused",
        Step::Troubled,
        "three programs lease from a pool of two worker ids",
    ),
    (
        "OdometerWorkerIdsNearlyUsedUp",
        Step::Troubled,
        "both worker ids of that pool are taken",
    ),
    (
        "OdometerWorkerLeaseRunningOut",
        Step::Troubled,
        "two replicas have the same `worker`",
    ),
    (
        "OdometerRetriesHigh",
        Step::Troubled,
        "a sequence lost its counter: each reservation looks once more, in vain",
    ),
    (
        "OdometerRefillsFailing",
        Step::Stalled,
        "rows of counters are locked for longer than `store.timeout`",
    ),
    (
        "OdometerWaitsLong",
        Step::Stalled,
        "callers come and are not served",
    ),
    (
        "OdometerConnectionsNearlyUsedUp",
        Step::Stalled,
        "callers who wait stay connected, and `http.connections` is small",
    ),
    (
        "OdometerCallersRefused",
        Step::Stalled,
        "more callers come than `limits.waiters`",
    ),
    (
        "OdometerReplicaNotReady",
        Step::Draining,
        "a replica is told to end, and has a long `shutdown.ready_wait`",
    ),
    ("OdometerReplicaDown", Step::Dead, "one of two is killed"),
    (
        "OdometerDatabaseAway",
        Step::Away,
        "connections to one of the two databases of a store are cut",
    ),
    ("OdometerRedisAway", Step::Away, "Redis is killed"),
    (
        "OdometerStoreDown",
        Step::Away,
        "connections to the database are cut",
    ),
    (
        "OdometerNoReplica",
        Step::Over,
        "the last replica is killed",
    ),
];

/// Series that do not exist before there is something to count.
const SHOWN_BY_FAILURES: [(&str, Step); 2] = [
    (
        "odometer_http_requests_total{status=\"500\"}",
        Step::Troubled,
    ),
    (
        "namespace_job_route_status:odometer_http_requests:rate5m\
         {route=~\"next|blocks\",status=~\"5..\"}",
        Step::Troubled,
    ),
];

/// A selector that may find series while all is well. A starting replica answers that it is not
/// ready.
const SHOWN_BY_CHANCE: &str =
    "odometer_http_requests_total{job=~\"odometer\", instance=~\".+\", status=~\"5..\"}";

/// Returns whether a selector may find nothing while all is well.
pub(super) fn shows_only_failures(selector: &str) -> bool {
    let mut shown = SHOWN_BY_FAILURES.iter();
    selector.contains(SHOWN_BY_CHANCE) || shown.any(|(shown, _)| selector.contains(shown))
}

/// Returns every expression that shows only a failure, with the step of the failure.
///
/// # Panics
/// If a listed alert does not exist, if an alert is not listed, or if no expression asks for a
/// listed series.
pub(super) fn all_provoked(rules: &[Rule]) -> Vec<(Step, Expression)> {
    for alert in rules.iter().filter(|rule| rule.is_alert) {
        let is_listed = PROVOKED.iter().any(|(name, ..)| *name == alert.name);
        assert!(is_listed, "nothing provokes {}", alert.name);
    }
    let shown = dashboards::expressions().into_iter().map(|one| one.text);
    let ruled = rules.iter().map(|rule| rule.expression.clone());
    let asked: Vec<String> = shown.chain(ruled).collect();
    let listed = SHOWN_BY_FAILURES.map(|(selector, _)| selector);
    for selector in listed.into_iter().chain([SHOWN_BY_CHANCE]) {
        let is_asked_for = asked.iter().any(|text| text.contains(selector));
        assert!(is_asked_for, "nothing asks for {selector}");
    }
    let alerts = PROVOKED.iter().map(|(name, step, how)| {
        let alert = rules.iter().find(|rule| rule.name == *name);
        let alert = alert.unwrap_or_else(|| panic!("no alert {name}"));
        (*step, format!("{name}, as {how}"), alert.expression.clone())
    });
    let series = SHOWN_BY_FAILURES.iter().map(|(selector, step)| {
        let place = "counted of failures".to_owned();
        (*step, place, (*selector).to_owned())
    });
    let all = alerts.chain(series);
    all.map(|(step, place, text)| (step, Expression { place, text }))
        .collect()
}
