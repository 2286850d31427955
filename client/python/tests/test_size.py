"""Tests of the rate, the size of refills and the low-water mark."""

import unittest

from odometer_client.size import Rate, Size


class RateTest(unittest.TestCase):
    def test_a_steady_rate_is_measured(self) -> None:
        rate = Rate()
        for tick in range(3000):
            rate.note(tick / 100)
        self.assertAlmostEqual(rate.per_second(30.0), 100, delta=2)

    def test_a_rate_ends_with_its_numbers(self) -> None:
        rate = Rate()
        rate.note(0.0, 1000)
        self.assertEqual(rate.per_second(0.5), 999)
        self.assertAlmostEqual(rate.per_second(10.0), 99.9)
        self.assertEqual(rate.per_second(10.1), 0)

    def test_one_number_alone_is_no_rate(self) -> None:
        rate = Rate()
        rate.note(5.0)
        self.assertEqual(rate.per_second(5.0), 0)

    def test_a_burst_after_a_rest_counts_at_once(self) -> None:
        rate = Rate()
        rate.note(0.0)
        rate.note(3600.0, 81)
        self.assertEqual(rate.per_second(3600.1), 80)


class SizeTest(unittest.TestCase):
    def test_the_first_refill_has_the_initial_size(self) -> None:
        size = Size(100)
        size.rate.note(0.0, 50_000)
        self.assertEqual(size.next_size(1.0), 100)
        size.note_refill(0.01)
        self.assertEqual(size.next_size(1.0), 499_990)

    def test_a_rare_sequence_asks_for_one_number(self) -> None:
        size = Size(100)
        size.note_refill(0.01)
        self.assertEqual(size.next_size(1e6), 1)

    def test_the_low_water_mark_follows_the_slowest_of_sixteen_refills(self) -> None:
        size = Size(100)
        size.rate.note(0.0, 1001)
        self.assertEqual(size.low_water_mark(1.0, 100), 20)
        size.note_refill(3.0)
        for _ in range(15):
            size.note_refill(0.1)
        self.assertEqual(size.low_water_mark(1.0, 100), 6000)
        size.note_refill(0.1)
        self.assertEqual(size.low_water_mark(1.0, 100), 200)
