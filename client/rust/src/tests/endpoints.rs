//! Tests which replica is called, and after which pause.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{highest, lowest};
use crate::{
    backoff::pause,
    endpoints::{Endpoints, Turn},
    random::{Uniform, uniform},
};

/// Endpoints with a clock that the test sets.
struct Scene {
    endpoints: Endpoints,
    now: Instant,
}

impl Scene {
    fn of(urls: &str, uniform: Uniform) -> Self {
        let urls = urls.chars().map(|url| Arc::from(url.to_string().as_str()));
        Self {
            endpoints: Endpoints::new(urls.collect(), uniform),
            now: Instant::now(),
        }
    }

    fn choose(&self) -> Turn {
        self.endpoints.choose(self.now).unwrap()
    }

    fn url(&self) -> String {
        let turn = self.choose();
        self.endpoints.abandoned(&turn);
        turn.url.to_string()
    }

    fn fail_next(&self) -> String {
        let turn = self.choose();
        self.endpoints.failed(&turn, self.now);
        turn.url.to_string()
    }

    /// Makes a call that gets no reply in 400 ms.
    fn hurry(&mut self) -> String {
        let turn = self.choose();
        self.pass(0.4);
        self.endpoints.hurried(&turn, self.now);
        turn.url.to_string()
    }

    fn move_on(&self) -> String {
        let turn = self.choose();
        self.endpoints.moved_on(&turn);
        turn.url.to_string()
    }

    fn pass(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
    }
}

#[test]
fn the_first_endpoint_is_random() {
    assert_eq!(Scene::of("abc", highest).url(), "c");
    let found: BTreeSet<String> = (0..200).map(|_| Scene::of("abc", uniform).url()).collect();
    assert_eq!(found.len(), 3);
}

#[test]
fn an_endpoint_is_kept_until_it_fails() {
    let mut scene = Scene::of("abc", lowest);
    for _ in 0..3 {
        let turn = scene.choose();
        assert_eq!(&*turn.url, "a");
        scene.endpoints.succeeded(&turn);
    }
    assert_eq!(scene.fail_next(), "a");
    scene.pass(100.0);
    assert_eq!([scene.url(), scene.url()], ["b", "b"]);
}

#[test]
fn a_second_of_hurried_calls_without_a_reply_is_one_failure() {
    let mut scene = Scene::of("ab", lowest);
    let found = [scene.hurry(), scene.hurry(), scene.hurry(), scene.hurry()];
    assert_eq!(found, ["a", "a", "a", "b"]);
    scene.pass(0.5);
    assert_eq!(scene.move_on(), "b");
    assert_eq!(scene.url(), "b", "the silent one rests");
}

#[test]
fn a_reply_between_hurried_calls_is_no_silence() {
    let mut scene = Scene::of("ab", lowest);
    for _ in 0..3 {
        assert_eq!([scene.hurry(), scene.hurry()], ["a", "a"]);
        let turn = scene.choose();
        scene.endpoints.succeeded(&turn);
    }
    assert_eq!(scene.url(), "a");
}

#[test]
fn rests_double_to_thirty_seconds() {
    let mut scene = Scene::of("ab", lowest);
    for rest in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
        assert_eq!(scene.fail_next(), "a");
        scene.pass(rest - 0.01);
        assert_eq!(scene.move_on(), "b", "{rest}");
        assert_eq!(scene.url(), "b", "{rest}");
        scene.pass(0.02);
        assert_eq!(scene.move_on(), "b");
    }
}

#[test]
fn one_call_alone_probes() {
    let mut scene = Scene::of("abc", lowest);
    scene.fail_next();
    scene.pass(2.0);
    assert_eq!([scene.move_on(), scene.move_on()], ["b", "c"]);
    let probe = scene.choose();
    assert_eq!((&*probe.url, probe.is_probe), ("a", true));
    assert_eq!(scene.url(), "b");
    scene.endpoints.succeeded(&probe);
    assert_eq!([scene.move_on(), scene.move_on()], ["b", "c"]);
    let again = scene.choose();
    assert_eq!((&*again.url, again.is_probe), ("a", false));
}

#[test]
fn if_all_rest_the_one_that_rested_longest_is_called() {
    let mut scene = Scene::of("abc", lowest);
    for expected in ["a", "b", "c", "a", "b", "c"] {
        assert_eq!(scene.fail_next(), expected);
        scene.pass(0.01);
    }
}

#[test]
fn calls_that_fail_together_count_once() {
    let mut scene = Scene::of("abc", lowest);
    let turns: Vec<Turn> = (0..5).map(|_| scene.choose()).collect();
    scene.pass(1.0);
    for turn in &turns {
        scene.endpoints.failed(turn, scene.now);
    }
    assert_eq!([scene.move_on(), scene.move_on()], ["b", "c"]);
    scene.pass(1.01);
    assert_eq!(scene.url(), "a");
}

#[test]
fn a_success_from_before_a_failure_ends_no_rest() {
    let mut scene = Scene::of("ab", lowest);
    let early = scene.choose();
    scene.pass(0.1);
    assert_eq!(scene.fail_next(), "a");
    scene.endpoints.succeeded(&early);
    assert_eq!([scene.move_on(), scene.url()], ["b", "b"]);
}

#[test]
fn moving_on_is_no_rest() {
    let scene = Scene::of("abc", lowest);
    let found = [
        scene.move_on(),
        scene.move_on(),
        scene.move_on(),
        scene.url(),
    ];
    assert_eq!(found, ["a", "b", "c", "a"]);
}

#[test]
fn pauses_double_from_fifty_milliseconds_to_two_seconds() {
    let found = [1, 2, 3, 6, 7, 1000].map(|n| pause(n, None, highest).as_millis());
    assert_eq!(found, [50, 100, 200, 1600, 2000, 2000]);
    assert_eq!(pause(5, None, lowest), Duration::ZERO);
}

#[test]
fn retry_after_is_waited_out_and_bounded() {
    let asked = Some(Duration::from_secs(3));
    assert_eq!(pause(1, asked, lowest), Duration::from_secs(3));
    assert_eq!(pause(1, asked, highest), Duration::from_millis(3050));
    let far = Some(Duration::from_secs(1_000_000_000));
    assert_eq!(pause(1, far, lowest), Duration::from_secs(60));
}
