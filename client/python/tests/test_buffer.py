"""Tests of the numbers in memory."""

import unittest

from odometer_client.buffer import Buffer, Item, Run


def taken(buffer: Buffer) -> list[Item]:
    items: list[Item] = []
    while (item := buffer.take()) is not None:
        items.append(item)
    return items


class BufferTest(unittest.TestCase):
    def test_numbers_come_in_the_order_of_their_replies(self) -> None:
        buffer = Buffer()
        buffer.add([Run(1, 1, 2), Run(11, 1, 1)], born=0)
        buffer.add([Run(5, 1, 2)], born=1)
        self.assertEqual([value for value, _ in taken(buffer)], [1, 2, 11, 5, 6])
        self.assertIsNone(buffer.take())

    def test_steps_and_the_highest_numbers_are_counted_right(self) -> None:
        buffer = Buffer()
        highest = 2**63 - 1
        buffer.add([Run(highest - 14, 7, 3), Run(3, -1, 3)], born=0)
        values = [value for value, _ in taken(buffer)]
        self.assertEqual(values, [highest - 14, highest - 7, highest, 3, 2, 1])

    def test_each_number_has_its_printed_form(self) -> None:
        buffer = Buffer()
        buffer.add([Run(1, 1, 4, ["a", "b", "c", "d"]), Run(9, 1, 1, ["e"])], born=0)
        self.assertEqual(buffer.take(), (1, "a"))
        self.assertEqual(buffer.take_range(2), range(2, 4))
        self.assertEqual(taken(buffer), [(4, "d"), (9, "e")])

    def test_a_range_that_does_not_fit_takes_nothing(self) -> None:
        buffer = Buffer()
        buffer.add([Run(1, 1, 5)], born=0)
        buffer.add([Run(6, 1, 5)], born=0)
        self.assertIsNone(buffer.take_range(6))
        self.assertEqual(buffer.left, 10)

    def test_a_range_leaves_the_rest_of_a_smaller_run(self) -> None:
        buffer = Buffer()
        buffer.add([Run(1, 2, 3), Run(101, 2, 8)], born=0)
        self.assertEqual(list(buffer.take_range(4) or ()), [101, 103, 105, 107])
        self.assertEqual(buffer.take_range(3), range(1, 7, 2))
        self.assertEqual([value for value, _ in taken(buffer)], [109, 111, 113, 115])

    def test_no_number_is_taken_twice_whatever_the_calls(self) -> None:
        buffer = Buffer()
        seen: list[int] = []
        for at in range(50):
            buffer.add([Run(at * 100, 1, 7), Run(at * 100 + 50, 3, 9)], born=at)
            for n in (3, 8, 1, 5):
                seen += buffer.take_range(n) or ()
            seen += [item[0] for item in (buffer.take(), buffer.take()) if item]
        seen += [value for value, _ in taken(buffer)]
        self.assertEqual(len(seen), 50 * 16)
        self.assertEqual(len(set(seen)), len(seen))

    def test_old_blocks_are_dropped_and_counted(self) -> None:
        buffer = Buffer()
        buffer.add([Run(1, 1, 5)], born=10)
        buffer.add([Run(6, 1, 5)], born=20)
        buffer.take()
        self.assertEqual(buffer.drop_older(10), 0)
        self.assertEqual(buffer.drop_older(11), 4)
        self.assertEqual((buffer.left, buffer.take()), (5, (6, None)))
