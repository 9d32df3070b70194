"""Events in a CalDAV calendar, created once; see README.md."""

from tools.catalog.caldav.provider import CALDAV
from tools.catalog.caldav.tool import Event, create_event_tool

__all__ = ["CALDAV", "Event", "create_event_tool"]
