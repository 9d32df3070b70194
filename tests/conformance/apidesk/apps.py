"""`AGENTOPS_APPS=tests.conformance.apidesk` gives a process these tools and agents."""

from django.apps import AppConfig


class ApiDeskConfig(AppConfig):
    name = "tests.conformance.apidesk"
    label = "apidesk"
