"""For `bide worker examples.django_shop.worker:queue`: Django is set up before its models are imported."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_shop.settings")
django.setup()

from .tasks import queue  # noqa: E402

__all__ = ["queue"]
