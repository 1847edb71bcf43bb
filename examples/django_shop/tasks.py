"""The queue and its task, in the project's own database."""

from django.conf import settings
from django.db import close_old_connections, connection, transaction
from django.db.models import F

from bide import Queue, current

from .models import Order

queue = Queue(settings.SHOP_URL)


@queue.task("order.pack", max_attempts=10)
def pack(order: int) -> None:
    close_old_connections()  # as Django does before a request: the worker's threads keep theirs
    with transaction.atomic():
        Order.objects.filter(id=order).update(packed=F("packed") + 1)
        # The work and its ack are committed together. So it is done once, also if this process is killed at any time.
        current().ack(connection=connection)
