"""Tests of the default of models, and of the client that they use."""

import asyncio
import os
import threading
import unittest
from unittest import mock

import odometer_client
from odometer_client import Client, Default, Empty, default_client, set_default_client

from .case import StubCase


class DefaultTest(StubCase):
    def setUp(self) -> None:
        super().setUp()
        set_default_client(self.client)
        self.addCleanup(set_default_client, None)

    def test_a_default_gives_the_next_number_or_id(self) -> None:
        self.assertEqual((Default("orders")(), Default("orders", printed=True)()), (1, "2"))

    def test_a_default_can_be_written_into_a_migration(self) -> None:
        default = Default("orders", printed=True, kind="buffered")
        path, names, options = default.deconstruct()
        self.assertIs(getattr(odometer_client, path.rpartition(".")[2]), Default)
        self.assertEqual(Default(*names, **options), default)
        others = (Default("orders"), Default("other", printed=True, kind="buffered"), "orders")
        self.assertNotIn(default, others)
        self.assertEqual(len({default, Default(*names, **options)}), 1)

    def test_in_an_event_loop_a_default_never_waits(self) -> None:
        async def run() -> list[int | str]:
            for default in (Default("orders"), Default("orders", printed=True)):
                with self.assertRaises(Empty) as caught:
                    default()
                self.assertIs(type(caught.exception), Empty)
            await default_client().sequence("orders").awarm(10)
            return [Default("orders")(), Default("orders", printed=True)()]

        self.assertEqual(asyncio.run(run()), [1, "2"])


class DefaultClientTest(unittest.TestCase):
    def setUp(self) -> None:
        set_default_client(None)
        self.addCleanup(set_default_client, None)

    def test_the_client_of_the_environment_is_made_once(self) -> None:
        gate = threading.Barrier(4)
        found: list[Client] = []
        make = Client.from_environment

        def make_together() -> Client:
            gate.wait(20)
            return make()

        environment = {"ODOMETER_URL": "http://a:1, http://b:2"}
        with mock.patch.dict(os.environ, environment):
            with mock.patch.object(Client, "from_environment", make_together):
                threads = [
                    threading.Thread(target=lambda: found.append(default_client()))
                    for _ in range(4)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        self.assertEqual((len(found), len(set(map(id, found)))), (4, 1))
        self.assertEqual(found[0]._urls, ["http://a:1", "http://b:2"])

    def test_the_version_is_that_of_the_project(self) -> None:
        project = os.path.join(os.path.dirname(__file__), "..", "pyproject.toml")
        with open(project) as file:
            self.assertIn(f'version = "{odometer_client.__version__}"\n', file.read())
