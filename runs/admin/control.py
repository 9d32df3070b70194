"""Requests and signals: what was asked of runs and told to them, one page each."""

from django.contrib import admin
from django.http import HttpRequest

from runs.admin import filters
from runs.admin.readonly import Cell, Fact, ReadOnlyAdmin, Record
from runs.admin.show import (
    NOTHING,
    PARAGRAPH,
    json_block,
    line,
    link,
    record_url,
    run_link,
    when,
)
from runs.models import ControlRequest, Signal
from runs.sensitive import names_of_run
from tools.redaction import scrub


@admin.register(ControlRequest)
class ControlRequestAdmin(ReadOnlyAdmin):
    list_display = ("kind", "run", "by", "at")
    list_filter = (filters.OfRun,)
    list_only = ("run_id", "kind", "by", "at")
    empty = "No request yet: the buttons on a run's page ask for a pause, its end and so on."

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-at", "-id") if "run" in request.GET else ("-id",)

    @admin.display(description="request")
    def kind(self, asked: ControlRequest) -> Cell:
        return link(record_url(ControlRequest, asked.pk), asked.kind.capitalize())

    @admin.display(description="run")
    def run(self, asked: ControlRequest) -> Cell:
        return run_link(asked.run_id)

    @admin.display(description="asked by")
    def by(self, asked: ControlRequest) -> Cell:
        return line(asked.by, 60)

    @admin.display(description="at")
    def at(self, asked: ControlRequest) -> Cell:
        return when(asked.at)

    def record(self, request: HttpRequest, asked: ControlRequest) -> Record:
        hidden = names_of_run(run_id=asked.run_id, agent=asked.run.agent)
        reason = scrub(asked.reason, {"input": asked.run.input}, hidden)
        return Record(
            title=asked.kind.capitalize(),
            state=line(ControlRequest.Kind(asked.kind).label),
            meaning="Rows of requests are never changed.",
            facts=[
                Fact("Run", run_link(asked.run_id)),
                Fact("Asked by", line(asked.by)),
                Fact("Why", line(reason, PARAGRAPH)),
                Fact("At", when(asked.at)),
            ],
            parts=[json_block("Details", asked.details, hidden)],
        )


@admin.register(Signal)
class SignalAdmin(ReadOnlyAdmin):
    list_display = ("name", "run", "event", "sent_by", "sent", "delivered")
    list_filter = (filters.OfRun,)
    list_only = (
        "run_id",
        "name",
        "event_id",
        "sent_by",
        "sent_at",
        "delivered_at",
        "delivered_step",
    )
    empty = "No signal yet. Send one: python manage.py signal_run ID NAME."

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-id",)

    @admin.display(description="signal")
    def name(self, signal: Signal) -> Cell:
        return link(record_url(Signal, signal.pk), line(signal.name))

    @admin.display(description="run")
    def run(self, signal: Signal) -> Cell:
        return run_link(signal.run_id)

    @admin.display(description="event id")
    def event(self, signal: Signal) -> Cell:
        return line(signal.event_id, 60)

    @admin.display(description="sent by")
    def sent_by(self, signal: Signal) -> Cell:
        return line(signal.sent_by, 60)

    @admin.display(description="sent")
    def sent(self, signal: Signal) -> Cell:
        return when(signal.sent_at)

    @admin.display(description="delivered")
    def delivered(self, signal: Signal) -> Cell:
        return when(signal.delivered_at)

    def record(self, request: HttpRequest, signal: Signal) -> Record:
        hidden = names_of_run(run_id=signal.run_id, agent=signal.run.agent)
        step = "not yet" if signal.delivered_step is None else f"step {signal.delivered_step}"
        return Record(
            title=f"Signal {signal.name}",
            state=NOTHING if signal.delivered_at is None else "Delivered",
            meaning="It is delivered once, to the first wait for its name.",
            facts=[
                Fact("Run", run_link(signal.run_id)),
                Fact("Event id", line(signal.event_id, 255)),
                Fact("Sent by", line(signal.sent_by)),
                Fact("Sent", when(signal.sent_at)),
                Fact("Delivered", when(signal.delivered_at)),
                Fact("Delivered to", step),
            ],
            parts=[json_block("Payload", signal.payload, hidden)],
        )
