//! Tests that every expression of the dashboards and of the rules gives data. A real Prometheus
//! scrapes two replicas on PostgreSQL under load. Expressions that show only failures must give
//! data when the failure happens.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::{
    dashboards,
    failures::{STEPS, Step, all_provoked, shows_only_failures},
    faulty::Faulty,
    stage::Stage,
};
use crate::support::{Client, Prometheus, prometheus::Rule, run, settings, wait};

/// The time within which every expression must have data. A rate needs two scrapes, and more on a
/// busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// The fewest expressions of the dashboards. If fewer are found, some were not read.
const MIN_EXPRESSIONS: usize = 90;
const MIN_RULES: usize = 40;
const RULES: [&str; 2] = ["alerts", "recording"];

/// An expression, and the panel or rule that has it.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub(super) place: String,
    pub(super) text: String,
}

impl Expression {
    fn of_rule(rule: &Rule, text: &str) -> Self {
        Self {
            place: rule.name.clone(),
            text: text.to_owned(),
        }
    }
}

/// Returns the expressions that gave no number within `limit`.
///
/// # Panics
/// If Prometheus refuses an expression.
async fn without_data(
    prometheus: &Prometheus,
    expressions: &[Expression],
    limit: Duration,
) -> Vec<Expression> {
    let started = Instant::now();
    let mut silent = expressions.to_vec();
    loop {
        let mut still = Vec::new();
        for expression in silent {
            let Expression { place, text } = &expression;
            let values = prometheus.query(text).await;
            let values = values.unwrap_or_else(|error| panic!("{place}: {text}: {error}"));
            if values.iter().all(|value| value.is_nan()) {
                still.push(expression);
            }
        }
        silent = still;
        if silent.is_empty() || started.elapsed() > limit {
            return silent;
        }
        tokio::time::sleep(Prometheus::SCRAPE_INTERVAL).await;
    }
}

/// Returns the expressions that give a number now.
async fn with_data(prometheus: &Prometheus, expressions: &[Expression]) -> Vec<Expression> {
    let silent = without_data(prometheus, expressions, Duration::ZERO).await;
    let is_silent = |one: &&Expression| silent.iter().any(|other| other.text == one.text);
    let speaking = expressions.iter().filter(|one| !is_silent(one));
    speaking.cloned().collect()
}

/// Returns the selectors of an expression that must find series while all is well. In an
/// expression, `or vector(0)` would hide a selector that finds nothing.
fn parts_of(place: &str, expression: &str) -> Vec<Expression> {
    selectors_of(expression)
        .into_iter()
        .filter(|selector| !shows_only_failures(selector))
        .map(|text| Expression {
            place: format!("{place}, a part"),
            text,
        })
        .collect()
}

/// Returns the selectors of an expression. A selector with a window is returned as a rate, which
/// needs two values in the window.
fn selectors_of(expression: &str) -> BTreeSet<String> {
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut found = BTreeSet::new();
    let mut rest = expression;
    while let Some(start) = rest.find(is_of_a_name) {
        let (_, name) = rest.split_at(start);
        let end = name.find(|c| !is_of_a_name(c)).unwrap_or(name.len());
        let (name, behind) = name.split_at(end);
        let (matchers, behind) = bracketed(behind, '{', '}');
        let (window, behind) = bracketed(behind, '[', ']');
        rest = behind;
        if !(name == "up" || name.starts_with("odometer_") || name.contains(':')) {
            continue;
        }
        let selector = format!("{name}{matchers}{window}");
        found.insert(if window.is_empty() {
            selector
        } else {
            format!("rate({selector})")
        });
    }
    found
}

/// Splits `text` behind a bracketed part at its start. Returns the part with its brackets, and the
/// rest.
fn bracketed(text: &str, open: char, close: char) -> (&str, &str) {
    let mut is_quoted = false;
    let end = text.find(|c| {
        is_quoted ^= c == '"';
        c == close && !is_quoted
    });
    match end {
        Some(end) if text.starts_with(open) => text.split_at(end + close.len_utf8()),
        Some(_) | None => ("", text),
    }
}

#[test]
fn selectors_are_found_with_what_they_match() {
    let expression = "sum by (job) (rate(odometer_a_total{x=\"{}\",y!=\"1\"}[5m] offset 1h)) \
                      > 0.1 unless on (job) min(up{job=\"odometer\"}) == 0 or a:odometer_b:sum";
    let found: Vec<String> = selectors_of(expression).into_iter().collect();
    assert_eq!(
        found,
        [
            "a:odometer_b:sum",
            "rate(odometer_a_total{x=\"{}\",y!=\"1\"}[5m])",
            "up{job=\"odometer\"}",
        ]
    );
}

#[test]
fn every_expression_gives_data_on_a_real_prometheus() {
    run(async {
        let stage = Stage::start().await;
        let files = RULES.map(|name| {
            let folder = settings::repository().join("dashboards/rules");
            folder.join(format!("{name}.yaml"))
        });
        let mut prometheus = Prometheus::start(&stage.replicas, &files).await;
        let rules = prometheus.rules().await;
        let provoked = all_provoked(&rules);
        while_all_is_well(&prometheus, &rules).await;
        a_silent_expression_is_found(&prometheus).await;
        when_something_happens(&mut prometheus, stage, &provoked).await;
        let mut failed = prometheus.rules().await;
        failed.retain(|rule| !rule.error.is_empty());
        assert!(failed.is_empty(), "not evaluated: {failed:#?}");
    });
}

/// Checks that every expression gives data, except the ones that show only failures.
async fn while_all_is_well(prometheus: &Prometheus, rules: &[Rule]) {
    assert!(rules.len() >= MIN_RULES, "{} rules", rules.len());
    let mut expressions = dashboards::expressions();
    let n_shown = expressions.len();
    assert!(n_shown >= MIN_EXPRESSIONS, "{n_shown}");
    let shown = expressions.clone();
    let selectors = shown.iter().flat_map(|one| parts_of(&one.place, &one.text));
    expressions.extend(selectors);
    for rule in rules {
        expressions.extend(parts_of(&rule.name, &rule.expression));
        if !rule.is_alert {
            expressions.push(Expression::of_rule(rule, &rule.expression));
            expressions.push(Expression::of_rule(rule, &rule.name));
        }
    }
    let silent = without_data(prometheus, &expressions, LIMIT).await;
    assert!(silent.is_empty(), "without data: {silent:#?}");
    only_replicas_are_counted(prometheus, &shown).await;
}

/// Checks that the third target, which is no replica, is not counted.
async fn only_replicas_are_counted(prometheus: &Prometheus, shown: &[Expression]) {
    assert_eq!(prometheus.query("count(up)").await, Ok(vec![3.0]));
    let counts: Vec<_> = shown
        .iter()
        .filter(|one| one.text.starts_with("count(up{"))
        .collect();
    assert_eq!(counts.len(), 1, "{counts:?}");
    for count in counts {
        let counted = prometheus.query(&count.text).await;
        assert_eq!(counted, Ok(vec![2.0]), "{count:?}");
    }
}

/// Waits until no expression of `step`, or of a later step, gives data.
///
/// On a busy machine a scrape may fail, which also looks like a failure. This must pass first.
async fn before(step: Step, prometheus: &Prometheus, provoked: &[(Step, Expression)]) {
    let to_come = STEPS.iter().skip_while(|other| **other != step);
    let to_come: Vec<Step> = to_come.copied().collect();
    let later = provoked.iter().filter(|(when, _)| to_come.contains(when));
    let later: Vec<_> = later.map(|(_, one)| one.clone()).collect();
    let started = Instant::now();
    loop {
        let speaking = with_data(prometheus, &later).await;
        if speaking.is_empty() {
            return;
        }
        let is_over = started.elapsed() > LIMIT;
        assert!(!is_over, "{step:?} has not happened: {speaking:#?}");
        tokio::time::sleep(Prometheus::SCRAPE_INTERVAL).await;
    }
}

/// Negative control: finds expressions that give nothing, expressions that give data, and invalid
/// expressions.
async fn a_silent_expression_is_found(prometheus: &Prometheus) {
    let control = |text: &str| Expression {
        place: "a control".to_owned(),
        text: text.to_owned(),
    };
    let misspelt = [
        "rate(odometer_numbers_isued_total[10s])",
        "odometer_build_info{job=\"odometr\"}",
        "0 / (odometer_store_up * 0)",
    ]
    .map(control);
    let silent = without_data(prometheus, &misspelt, Duration::ZERO).await;
    assert_eq!(silent.len(), misspelt.len(), "{silent:#?}");
    let always = [control("min(odometer_store_up) == 1")];
    let silent = without_data(prometheus, &always, LIMIT).await;
    assert!(silent.is_empty(), "{silent:#?}");
    let never = [control("up == 2")];
    let speaking = with_data(prometheus, &never).await;
    assert!(speaking.is_empty(), "{speaking:#?}");
    let unclosed = prometheus.query("sum(odometer_waiters").await;
    assert!(unclosed.is_err(), "{unclosed:?}");
}

/// Checks that the expressions that show only failures give data after each failure.
async fn when_something_happens(
    prometheus: &mut Prometheus,
    mut stage: Stage,
    provoked: &[(Step, Expression)],
) {
    let mut faulty = Faulty::start().await;
    for step in STEPS {
        before(step, prometheus, provoked).await;
        faulty.provoke(step, &mut stage, prometheus).await;
        let here = provoked.iter().filter(|(when, _)| *when == step);
        let here: Vec<_> = here.map(|(_, one)| one.clone()).collect();
        assert!(!here.is_empty(), "{step:?} provokes nothing");
        let silent = without_data(prometheus, &here, LIMIT).await;
        assert!(silent.is_empty(), "{step:?}: without data: {silent:#?}");
    }
}

#[test]
fn the_dashboards_show_the_metrics_that_there_are() {
    run(async {
        let stage = Stage::start().await;
        let client = stage.replicas[0].client();
        let expressions = dashboards::expressions();
        let shown: BTreeSet<String> = expressions
            .iter()
            .flat_map(|expression| metrics_in(&expression.text))
            .collect();
        // The metrics of a sequence exist after its first call.
        let exposed = wait::until("every metric that is shown is there", LIMIT, async || {
            let exposed = exposed(&client).await;
            shown.is_subset(&exposed).then_some(exposed)
        })
        .await;
        let unseen: Vec<_> = exposed.difference(&shown).collect();
        assert!(unseen.is_empty(), "on no panel: {unseen:?}");
        for asked in dashboards::queries_of_variables() {
            for name in metrics_in(&asked) {
                assert!(exposed.contains(&name), "{name} of {asked}");
            }
        }
    });
}

/// Returns the metrics of a scrape. A histogram is returned with `_bucket`, because expressions ask
/// for its buckets.
async fn exposed(client: &Client) -> BTreeSet<String> {
    let reply = client.get("/metrics").await.expect("a reply");
    let declared = reply
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    declared
        .map(|(name, kind)| {
            let part = if kind == "histogram" { "_bucket" } else { "" };
            format!("{name}{part}")
        })
        .collect()
}

/// Returns the metrics of Odometer that an expression names.
fn metrics_in(expression: &str) -> Vec<String> {
    expression
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("odometer_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_configuration_of_prometheus_is_one() {
    let root = settings::repository();
    crate::support::prometheus::check("config", &root.join("dashboards/prometheus.yaml"));
}
