"""Models whose keys are numbers of Odometer."""

from __future__ import annotations

from django.db import models
from odometer_client import Default


class Order(models.Model):
    """Its key is a number."""

    id = models.BigIntegerField(primary_key=True, default=Default("orders"), editable=False)


class Invoice(models.Model):
    """Its key is a printed id."""

    id = models.CharField(
        primary_key=True, max_length=40, default=Default("invoices", printed=True), editable=False
    )
