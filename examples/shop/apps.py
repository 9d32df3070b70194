"""`AGENTOPS_APPS=examples.shop` makes this app's tools and agents known."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "examples.shop"
    label = "shop"
