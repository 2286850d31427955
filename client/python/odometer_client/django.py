"""For Django: `id = models.BigIntegerField(primary_key=True, default=Sequence("orders"))`."""

from __future__ import annotations

from typing import Any

from .default import Default


class Sequence(Default):
    """A default of a field. Migrations can write it."""

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Says how a migration makes it again."""
        options: dict[str, Any] = {}
        if self.printed:
            options["printed"] = True
        if self.kind is not None:
            options["kind"] = self.kind
        return "odometer_client.django.Sequence", [self.name], options
