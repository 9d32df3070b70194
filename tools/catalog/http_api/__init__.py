"""Any HTTP API with JSON bodies, declared instead of programmed; see README.md."""

from tools.catalog.http_api.answers import Says
from tools.catalog.http_api.look_up import FindInList, FindOne
from tools.catalog.http_api.provider import HttpApi
from tools.catalog.http_api.tool import http_tool

__all__ = ["FindInList", "FindOne", "HttpApi", "Says", "http_tool"]
