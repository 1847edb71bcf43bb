"""An outbox with SQLAlchemy and PostgreSQL: an order and its message are committed together."""
