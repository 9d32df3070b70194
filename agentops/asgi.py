"""The web process: `uvicorn agentops.asgi:application`."""

import os
import warnings

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentops.settings")

# Files are read in a thread; Django says of each one that it was not asynchronous.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")

_django = get_asgi_application()

from agentops.checks import require_sound  # noqa: E402  after Django is set up
from agentops.limits import Limits  # noqa: E402
from agentops.web import Web  # noqa: E402

require_sound()

application = Limits(Web(_django))
