"""Saves models of Django, whose keys are numbers of Odometer."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

N_EACH = 20


def main(folder: Path) -> None:
    import django
    from django.conf import settings
    from django.core.management import call_command

    (folder / "steps").mkdir()
    (folder / "steps" / "__init__.py").touch()
    sys.path.append(str(folder))
    settings.configure(
        DATABASES={
            "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "shop.db")}
        },
        INSTALLED_APPS=["shop"],
        MIGRATION_MODULES={"shop": "steps"},
    )
    django.setup()
    call_command("makemigrations", verbosity=0)
    step = (folder / "steps" / "0001_initial.py").read_text()
    for default in ("Default('orders')", "Default('invoices', printed=True)"):
        if f"default=odometer_client.{default}" not in step:
            sys.exit(f"the migration has no {default}:\n{step}")
    # What a migration says is what the models say.
    call_command("makemigrations", check_changes=True, verbosity=0)
    call_command("migrate", verbosity=0)
    save()


def save() -> None:
    from odometer_client import default_client
    from shop.models import Invoice, Order

    created = [Order.objects.create() for _ in range(N_EACH)]
    created += Order.objects.bulk_create([Order() for _ in range(N_EACH)])
    created.append(asyncio.run(Order.objects.acreate()))
    found = sorted(Order.objects.values_list("id", flat=True))
    if found != sorted(order.id for order in created):
        sys.exit(f"{found} are not the keys that were given")
    if default_client().sequence("orders").left == 0:
        sys.exit("no number is in memory")
    for number in found:
        print(os.getpid(), number)
    invoices = Invoice.objects.bulk_create([Invoice() for _ in range(N_EACH)])
    if any(not invoice.id.startswith("INV-") for invoice in invoices):
        sys.exit(f"{invoices[0].id} is no printed id")
    if Invoice.objects.count() != N_EACH:
        sys.exit("invoices are missing")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
