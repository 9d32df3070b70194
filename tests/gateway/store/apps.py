from django.apps import AppConfig


class StoreConfig(AppConfig):
    name = "tests.gateway.store"
    label = "store"
