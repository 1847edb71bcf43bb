"""A source on RabbitMQ: a queue in which messages wait for their TTL."""
