"""Django's commands: `python -m examples.django_shop.manage migrate --run-syncdb` makes the table."""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_shop.settings")
    execute_from_command_line(sys.argv)
