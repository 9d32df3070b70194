"""The web process: `uvicorn agentops.asgi:application`."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentops.settings")

django.setup(set_prefix=False)

from agentops.checks import require_sound  # noqa: E402  after Django is set up
from agentops.handler import ThreadedHandler  # noqa: E402
from agentops.limits import Limits  # noqa: E402
from agentops.telemetry import exporting  # noqa: E402
from agentops.web import Web  # noqa: E402

require_sound(pages=True)
# Before the middleware is made, which asks whether there is anything to do.
exporting.start()

application = Limits(Web(ThreadedHandler()))
