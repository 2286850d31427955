"""Saves models of SQLAlchemy, whose keys are numbers of Odometer."""

from __future__ import annotations

import os
import sys

from odometer_client import Default
from sqlalchemy import BigInteger, String, create_engine, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

N_EACH = 20


class Base(DeclarativeBase):
    """What the models have in common."""


class Order(Base):
    """Its key is a number."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, default=Default("orders"))


class Invoice(Base):
    """Its key is a printed id."""

    __tablename__ = "invoices"
    id: Mapped[str] = mapped_column(
        String(40), primary_key=True, default=Default("invoices", printed=True)
    )
    total: Mapped[int]


def main() -> None:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        orders = [Order() for _ in range(N_EACH)]
        session.add_all(orders)
        session.flush()
        for order in orders:
            print(os.getpid(), order.id)
        session.execute(insert(Invoice), [{"total": at} for at in range(N_EACH)])
        session.execute(insert(Order).values())
        found = session.scalars(select(Order.id).order_by(Order.id)).all()
        print(os.getpid(), found[-1])
        if found[:-1] != sorted(order.id for order in orders):
            sys.exit(f"{found} are not the keys that were given")
        invoices = session.scalars(select(Invoice.id)).all()
    if len(invoices) != N_EACH or any(not id.startswith("INV-") for id in invoices):
        sys.exit(f"{invoices} are no printed ids")


if __name__ == "__main__":
    main()
