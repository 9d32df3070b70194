"""When the pages of the admin are loaded: for whoever serves or checks them.

Guarantees that the web process and `manage.py check` find the pages of every app. Workers and
beat, which show none, do not load them: that would be a fifth of their start.
"""

from typing import Any

from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core.checks import CheckMessage, Tags, register


class AdminConfig(SimpleAdminConfig):
    """Django's admin with the theme's site. Pages are discovered by `urls.py` and by the check."""

    default_site = "unfold.sites.UnfoldAdminSite"

    def ready(self) -> None:
        register(check_dependencies, Tags.admin)
        register(check_pages, Tags.admin)


def check_pages(**given: Any) -> list[CheckMessage]:
    """Django's check of the pages, of all of them whichever check comes first."""
    admin.autodiscover()
    found: list[CheckMessage] = check_admin_app(**given)
    return found
