"""The endpoints, and their URLs."""

import json

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path

from .models import Order
from .tasks import pack


class CardRefused(Exception):
    """It rolls the transaction back."""


def create(request: HttpRequest) -> JsonResponse:
    asked = json.loads(request.body)
    try:
        # The order and its message are one transaction: there is no order that nobody packs, and no parcel without an order.
        with transaction.atomic():
            order = Order.objects.create(email=asked["email"])
            pack.options(connection=connection).send(order.id)
            if asked["card"] == "refused":
                raise CardRefused
    except CardRefused:
        detail = f"The card was refused. Order {order.id} is rolled back, and its message with it."
        return JsonResponse({"detail": detail}, status=402)
    return JsonResponse({"order": order.id}, status=201)


def show(request: HttpRequest, order: int) -> JsonResponse:
    found = get_object_or_404(Order, id=order)
    return JsonResponse({"order": found.id, "packed": found.packed})


urlpatterns = [path("orders", create), path("orders/<int:order>", show)]
