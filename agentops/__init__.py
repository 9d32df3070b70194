"""The front door: settings, the Celery app, URLs, access tokens, embedded servers.

Importing it sets nothing up: `agentops.client` is for programs that have neither Django nor
Celery set up. `agentops.apps` makes the Celery app the current one in every Django process.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentops.celery import app as celery_app

__all__ = ["celery_app"]


def __getattr__(name: str) -> Any:
    if name != "celery_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from agentops.celery import app

    return app
