"""The orders."""

from django.db import models


class Order(models.Model):
    email = models.EmailField()
    packed = models.IntegerField(default=0)  # how often: it must be once
