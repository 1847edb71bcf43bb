"""The orders, in PostgreSQL, by SQLAlchemy."""

import os

from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

URL = os.environ.get("SHOP_URL", "postgres://localhost:5432/shop")

engine = create_async_engine(URL.replace("postgres://", "postgresql+psycopg://"))
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    packed: Mapped[int] = mapped_column(default=0)  # how often: it must be once


async def prepare() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
