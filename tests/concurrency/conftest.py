"""The fixtures of the crash tests: both directories work with real processes."""

from tests.crash.conftest import celery, forks, new_log, provider, start_agent, work

__all__ = ["celery", "forks", "new_log", "provider", "start_agent", "work"]
