"""The settings of the Django project. SHOP_URL names the database, for the orders and for the queue."""

import os
from urllib.parse import unquote, urlsplit

SHOP_URL = os.environ.get("SHOP_URL", "postgres://localhost:5432/shop")
_parts = urlsplit(SHOP_URL)

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _parts.path.lstrip("/"),
        "USER": unquote(_parts.username or ""),
        "PASSWORD": unquote(_parts.password or ""),
        "HOST": _parts.hostname or "",
        "PORT": _parts.port or "",
    }
}
INSTALLED_APPS = ["examples.django_shop"]
ROOT_URLCONF = "examples.django_shop.views"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
SECRET_KEY = "an example has no secrets"
USE_TZ = True
