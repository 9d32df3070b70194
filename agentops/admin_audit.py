"""The audit in the admin: who asked for which write, and how it was answered.

Guarantees: rows are shown as they are and changed by nobody; what strangers sent is bounded and
escaped. A token, or what was asked about, is looked for by an index, however old the entry is.
"""

from typing import Any, ClassVar, Final

from django.contrib import admin
from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from agentops.models import ApiToken, AuditEntry
from runs.admin import filters
from runs.admin.readonly import BIGGEST_ID, Cell, Fact, ReadOnlyAdmin, Record
from runs.admin.show import NOTHING, Tone, badge, line, operation_link, when

HTTP_REFUSED: Final = 400
SHOWN: Final = 90


class ByDoor(filters.Choice):
    title = parameter_name = field = "door"

    def options(self) -> filters.Choices:
        return [(door.value, str(door.label)) for door in AuditEntry.Door]


class OfAddress(SimpleListFilter):
    """Rows of one value that an address names: there is no list of all to choose from."""

    field: ClassVar[str]

    def lookups(self, request: HttpRequest, model_admin: Any) -> filters.Choices:
        value = request.GET.get(str(self.parameter_name))
        return [(value, line(value, SHOWN))] if value else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        return (
            queryset.filter(**{self.field: value}) if self.is_possible(value) else queryset.none()
        )

    def is_possible(self, value: str) -> bool:
        return "\0" not in value


class OfToken(OfAddress):
    title = parameter_name = field = "token"

    def is_possible(self, value: str) -> bool:
        return value.isascii() and value.isdecimal() and int(value) <= BIGGEST_ID


class About(OfAddress):
    title = parameter_name = field = "about"


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = ("what", "outcome", "about_what", "who", "shown_token", "came_by", "moment")
    list_filter = (ByDoor, OfToken, About)
    empty = "No write yet: whatever is asked for by the API, the admin or a command is listed here."
    empty_link = ("docs", "See the API")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-id",)

    @admin.display(description="asked for")
    def what(self, entry: AuditEntry) -> Cell:
        page = reverse("admin:agentops_auditentry_change", args=[entry.pk])
        return format_html('<a class="ao-link" href="{}">{}</a>', page, line(entry.action, SHOWN))

    @admin.display(description="answer")
    def outcome(self, entry: AuditEntry) -> Cell:
        tone, said = _outcome(entry)
        return badge(said, tone)

    @admin.display(description="about")
    def about_what(self, entry: AuditEntry) -> Cell:
        return line(entry.about, SHOWN) if entry.about else NOTHING

    @admin.display(description="by")
    def who(self, entry: AuditEntry) -> Cell:
        return line(entry.actor, 60)

    @admin.display(description="token")
    def shown_token(self, entry: AuditEntry) -> Cell:
        if entry.token is None:
            return NOTHING
        page = reverse("admin:agentops_auditentry_changelist", query={"token": entry.token})
        return format_html('<a class="ao-link" href="{}">{}</a>', page, entry.token)

    @admin.display(description="door")
    def came_by(self, entry: AuditEntry) -> Cell:
        door = AuditEntry.Door(entry.door).label
        return f"{door}, {line(entry.address, 64)}" if entry.address else str(door)

    @admin.display(description="at")
    def moment(self, entry: AuditEntry) -> Cell:
        return when(entry.at)

    def record(self, request: HttpRequest, entry: AuditEntry) -> Record:
        return Record(
            title=f"Audit entry {entry.pk}",
            state=self.outcome(entry),
            meaning="Entries are never changed.",
            facts=[
                Fact("Asked for", line(entry.action, 200)),
                Fact("About", self._linked(entry)),
                Fact("By", line(entry.actor, 150)),
                Fact("API token", _token_in_words(entry)),
                Fact("Door", self.came_by(entry)),
                Fact("Refused because", line(entry.reason, 100) if entry.reason else NOTHING),
                Fact("At", when(entry.at)),
            ],
        )

    def _linked(self, entry: AuditEntry) -> Cell:
        kind, _, key = entry.about.partition(" ")
        if kind == "operation" and key.isascii() and key.removeprefix("op_").isalnum():
            return operation_link(key)
        return self.about_what(entry)


def _outcome(entry: AuditEntry) -> tuple[Tone, str]:
    if entry.status is None:
        if entry.action.startswith("call "):
            return "info", "accepted"
        return "neutral", "no answer known"
    if entry.door == AuditEntry.Door.COMMAND:
        return ("danger", "failed") if entry.status else ("success", "done")
    return ("danger" if entry.status >= HTTP_REFUSED else "success"), str(entry.status)


def _token_in_words(entry: AuditEntry) -> Cell:
    if entry.token is None:
        return NOTHING
    token = ApiToken.objects.filter(pk=entry.token).first()
    return line(str(token), 160) if token is not None else f"{entry.token}, which is gone"
