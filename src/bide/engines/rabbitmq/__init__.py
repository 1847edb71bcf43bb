"""Messages on RabbitMQ: a ladder of queues whose messages expire, on the stock broker."""
