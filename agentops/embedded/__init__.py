"""PostgreSQL and Valkey from wheels, started and stopped by the project itself.

    with running(data_dir) as stack:
        stack.database_url, stack.broker_url

Guarantees what `server.py` says: start is idempotent, servers are shared between the
processes that use the same data directory, and the last one out stops them, also when it
is killed. Needs no root and no installed server, but does not mind root either.

Does not migrate, and is not meant for production: there DATABASE_URL and CELERY_BROKER_URL
name servers of your own.
"""

from agentops.embedded.errors import EmbeddedError
from agentops.embedded.stack import Stack, running, start

__all__ = ["EmbeddedError", "Stack", "running", "start"]
