"""An outbox with Django and PostgreSQL: an order and its message are committed together."""
