"""For SQLAlchemy: `mapped_column(BigInteger, primary_key=True, default=Sequence("orders"))`.

It is no `sqlalchemy.Sequence`, which is a sequence of the database.
"""

from __future__ import annotations

from .default import Default


class Sequence(Default):
    """A default of a column."""
