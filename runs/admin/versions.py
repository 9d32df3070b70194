"""Versions: what each deployment serves, and the content that each version stands for.

Guarantees: a version that a run, a decision or a request names leads to what it was.

Does not say which runs wait for a version that nobody serves: `doctor` and `migrate_runs` do.
"""

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from runs.admin import filters
from runs.admin.readonly import Cell, Fact, ReadOnlyAdmin, Record
from runs.admin.show import (
    Block,
    badge,
    json_block,
    line,
    link,
    list_url,
    record_url,
    text_block,
    when,
)
from runs.models import Definition, Release, Worker


class OfKind(filters.Choice):
    title = "kind"
    parameter_name = field = "kind"
    indexed = {str(kind): Q(kind=kind) for kind in Definition.Kind}

    def options(self) -> filters.Choices:
        return [(str(kind), kind.value.capitalize()) for kind in Definition.Kind]


@admin.register(Definition)
class DefinitionAdmin(ReadOnlyAdmin):
    list_display = ("definition", "kind", "version", "seen")
    list_filter = (OfKind,)
    search_fields = ("version",)
    search_help_text = "a version, exactly"
    list_only = ("kind", "name", "version", "first_seen_at")
    empty = "No version yet: workers note what they serve when they start."
    empty_link = ("admin:runs_worker_changelist", "See the workers")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-id",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Definition], search_term: str
    ) -> tuple[QuerySet[Definition], bool]:
        term = search_term.strip()
        return (queryset.filter(version=term) if term else queryset), False

    @admin.display(description="of")
    def definition(self, definition: Definition) -> Cell:
        return link(record_url(Definition, definition.pk), line(definition.name))

    @admin.display(description="kind")
    def kind(self, definition: Definition) -> Cell:
        return definition.kind

    @admin.display(description="version")
    def version(self, definition: Definition) -> Cell:
        return line(definition.version, 64)

    @admin.display(description="first served")
    def seen(self, definition: Definition) -> Cell:
        return when(definition.first_seen_at)

    def record(self, request: HttpRequest, definition: Definition) -> Record:
        return Record(
            title=f"Version {definition.version} of {definition.name}",
            state=badge(definition.kind, "info"),
            meaning=Definition.Kind(definition.kind).label,
            facts=[
                Fact("Name", line(definition.name)),
                Fact("Version", line(definition.version, 64)),
                Fact("First served", when(definition.first_seen_at)),
            ],
            parts=[_content_of(definition)],
        )


def _content_of(definition: Definition) -> Block:
    match definition.body:
        case {"text": str(text)} if definition.kind == Definition.Kind.PROMPT:
            return text_block("Content", text)
    return json_block("Content", definition.body, ())


@admin.register(Release)
class ReleaseAdmin(ReadOnlyAdmin):
    list_display = ("release", "seen")
    list_only = ("id", "first_seen_at")
    empty = "No release yet: the first worker that starts notes what it serves."
    empty_link = ("admin:runs_worker_changelist", "See the workers")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-first_seen_at", "-id")

    @admin.display(description="release")
    def release(self, release: Release) -> Cell:
        return link(record_url(Release, release.pk), line(release.pk, 64))

    @admin.display(description="first seen")
    def seen(self, release: Release) -> Cell:
        return when(release.first_seen_at)

    def record(self, request: HttpRequest, release: Release) -> Record:
        return Record(
            title=f"Release {release.pk}",
            state=badge("Recorded", "info"),
            meaning="What one deployment serves, by content.",
            facts=[Fact("First seen", when(release.first_seen_at))],
            parts=[
                *self.section(
                    request,
                    Worker,
                    Worker.objects.filter(release=release.pk).order_by("-started_at", "name"),
                    title="Workers that serve it",
                    more_url=list_url(Worker),
                    empty="None is known any more.",
                ),
                json_block("Agents", release.agents, ()),
                json_block("Tools", release.tools, ()),
            ],
        )
