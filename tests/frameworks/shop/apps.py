"""`AGENTOPS_APPS=tests.frameworks.shop`."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "tests.frameworks.shop"
    label = "frameworks_shop"
