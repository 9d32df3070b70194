"""`AGENTOPS_APPS=tests.browser.desk` gives the web process the tools of these tests."""

from django.apps import AppConfig


class DeskConfig(AppConfig):
    name = "tests.browser.desk"
    label = "desk"
