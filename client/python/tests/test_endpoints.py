"""Tests of which replica is called."""

import threading
import unittest

from odometer_client.backoff import pause_seconds
from odometer_client.endpoints import Endpoints


def lowest(low: float, high: float) -> float:
    return low


def highest(low: float, high: float) -> float:
    return high


class EndpointsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.now = 100.0
        self.endpoints = Endpoints("abc", clock=lambda: self.now, uniform=lowest)

    def url(self) -> str:
        turn = self.endpoints.choose()
        self.endpoints.abandoned(turn)
        return turn.url

    def fail_next(self) -> str:
        turn = self.endpoints.choose()
        self.endpoints.failed(turn)
        return turn.url

    def test_the_first_endpoint_is_random(self) -> None:
        self.assertEqual(Endpoints("abc", uniform=highest).choose().url, "c")
        found = {Endpoints("abc").choose().url for _ in range(200)}
        self.assertEqual(found, set("abc"))

    def test_an_endpoint_is_kept_until_it_fails(self) -> None:
        for _ in range(3):
            turn = self.endpoints.choose()
            self.assertEqual(turn.url, "a")
            self.endpoints.succeeded(turn)
        self.assertEqual(self.fail_next(), "a")
        self.now += 100
        self.assertEqual([self.url(), self.url()], ["b", "b"])

    def test_rests_double_to_thirty_seconds(self) -> None:
        endpoints = Endpoints("ab", clock=lambda: self.now, uniform=lowest)
        for rest in (1, 2, 4, 8, 16, 30, 30):
            turn = endpoints.choose()
            self.assertEqual(turn.url, "a")
            endpoints.failed(turn)
            self.now += rest - 0.01
            other = endpoints.choose()
            self.assertEqual(other.url, "b", rest)
            endpoints.moved_on(other)
            self.assertEqual(endpoints.choose().url, "b", rest)
            self.now += 0.02
            endpoints.moved_on(other)

    def test_one_call_alone_probes(self) -> None:
        self.fail_next()
        self.now += 2
        for _ in "bc":
            self.endpoints.moved_on(self.endpoints.choose())
        probe = self.endpoints.choose()
        self.assertEqual((probe.url, probe.is_probe), ("a", True))
        self.assertEqual(self.url(), "b")
        self.endpoints.succeeded(probe)
        self.endpoints.moved_on(self.endpoints.choose())
        self.endpoints.moved_on(self.endpoints.choose())
        again = self.endpoints.choose()
        self.assertEqual((again.url, again.is_probe), ("a", False))

    def test_if_all_rest_the_one_that_rested_longest_is_called(self) -> None:
        for expected in "abcabc":
            self.assertEqual(self.fail_next(), expected)
            self.now += 0.01

    def test_calls_that_fail_together_count_once(self) -> None:
        turns = [self.endpoints.choose() for _ in range(5)]
        self.now += 1
        for turn in turns:
            self.endpoints.failed(turn)
        for url in "bc":
            turn = self.endpoints.choose()
            self.assertEqual(turn.url, url)
            self.endpoints.moved_on(turn)
        self.now += 1.01
        self.assertEqual(self.url(), "a")

    def test_a_success_from_before_a_failure_ends_no_rest(self) -> None:
        early = self.endpoints.choose()
        self.now += 0.1
        self.assertEqual(self.fail_next(), "a")
        self.endpoints.succeeded(early)
        for _ in "bc":
            self.endpoints.moved_on(self.endpoints.choose())
        self.assertEqual(self.url(), "b")

    def test_a_probe_whose_end_nobody_tells_is_over_after_a_time(self) -> None:
        self.fail_next()
        self.now += 2
        for _ in "bc":
            self.endpoints.moved_on(self.endpoints.choose())
        # Its caller is interrupted.
        self.assertEqual(self.endpoints.choose().url, "a")
        for _ in "bc":
            self.endpoints.moved_on(self.endpoints.choose())
        self.assertEqual(self.url(), "b")
        self.now += 31
        for _ in "bc":
            self.endpoints.moved_on(self.endpoints.choose())
        self.assertEqual(self.url(), "a")

    def test_a_signal_handler_may_call_while_its_thread_chooses(self) -> None:
        chosen: list[str] = []

        def clock() -> float:
            self.endpoints._clock = lambda: self.now
            chosen.append(self.endpoints.choose().url)
            return self.now

        def choose() -> None:
            self.endpoints._clock = clock
            chosen.append(self.endpoints.choose().url)

        thread = threading.Thread(target=choose, daemon=True)
        thread.start()
        thread.join(10)
        self.assertEqual(chosen, ["a", "a"])

    def hurry(self) -> str:
        turn = self.endpoints.choose()
        self.now += 0.4
        self.endpoints.hurried(turn)
        return turn.url

    def test_a_row_of_hurried_calls_without_a_reply_is_one_failure(self) -> None:
        self.endpoints = Endpoints("ab", clock=lambda: self.now, uniform=lowest)
        # Each rests meanwhile, and its next failure needs another row.
        self.assertEqual([self.hurry() for _ in range(9)], [*"aaa", *"bbb", *"aaa"])

    def test_a_reply_ends_a_row_of_hurried_calls(self) -> None:
        self.assertEqual([self.hurry() for _ in range(2)], ["a", "a"])
        self.endpoints.succeeded(self.endpoints.choose())
        self.assertEqual([self.hurry() for _ in range(4)], ["a", "a", "a", "b"])
        self.assertEqual(self.fail_next(), "b")
        self.assertEqual([self.hurry() for _ in range(4)], ["c", "c", "c", "a"])

    def test_moving_on_is_no_rest(self) -> None:
        self.endpoints.moved_on(self.endpoints.choose())
        self.assertEqual(self.url(), "b")
        for _ in "bc":
            self.endpoints.moved_on(self.endpoints.choose())
        self.assertEqual(self.url(), "a")


class PauseTest(unittest.TestCase):
    def test_pauses_double_from_fifty_milliseconds_to_two_seconds(self) -> None:
        found = [pause_seconds(n, None, highest) for n in (1, 2, 3, 6, 7, 1000)]
        self.assertEqual(found, [0.05, 0.1, 0.2, 1.6, 2.0, 2.0])
        self.assertEqual(pause_seconds(5, None, lowest), 0)

    def test_retry_after_is_waited_out_and_bounded(self) -> None:
        self.assertEqual(pause_seconds(1, 3.0, lowest), 3.0)
        self.assertEqual(pause_seconds(1, 3.0, highest), 3.05)
        self.assertEqual(pause_seconds(1, 1e9, lowest), 60.0)
