"""Notifications in the admin: what went to whom, what was given up, and sending it again.

Guarantees: a row is changed by one thing alone, a POST after a question that makes it due
again under its old event id, by those who may change notifications. An address on the web is
shown by its host, as the rest may hold a secret. When nothing can be sent, the page says why
and what to set.

Does not show what a notification says: the link of its notice leads to the thing itself.
"""

from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentops.models import Delivery
from agentops.notifications.receivers import is_receiver
from agentops.notifications.resending import can_be_resent, resend
from runs.admin import filters
from runs.admin.readonly import Action, Cell, Fact, Notice, ReadOnlyAdmin, Record
from runs.admin.show import Tone, badge, line, operation_link, run_link, when

Status = Delivery.Status

TONES: Final[dict[str, Tone]] = {
    Status.PENDING: "info",
    Status.SENT: "success",
    Status.FAILED: "danger",
    Status.DROPPED: "neutral",
}
MEANINGS: Final[dict[str, str]] = {
    Status.PENDING: "It is sent by a sweep when its time comes.",
    Status.SENT: "Its receiver took it.",
    Status.FAILED: "It is not tried again unless somebody asks for it.",
    Status.DROPPED: "The question was decided before it could be asked.",
}
HOW_TO_EMAIL: Final = (
    "No e-mail is sent: set AGENTOPS_EMAIL_HOST and AGENTOPS_EMAIL_FROM, and give people an "
    "e-mail address under Users."
)
HOW_TO_WEBHOOK: Final = "No webhook is sent: set AGENTOPS_WEBHOOK_URLS and AGENTOPS_WEBHOOK_SECRET."


class OfStatus(filters.Choice):
    title = parameter_name = field = "status"
    indexed = {str(Status.FAILED): Q(status=Status.FAILED)}

    def options(self) -> filters.Choices:
        return [(status.value, str(status.label)) for status in Status]


class OfChannel(filters.Choice):
    title = parameter_name = field = "channel"

    def options(self) -> filters.Choices:
        return [(channel.value, str(channel.label)) for channel in Delivery.Channel]


class OfRun(filters.OfRun):
    path: ClassVar[str] = "notice__run_id"


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    change_list_template = "admin/agentops/notifications.html"
    list_display = ("notification", "standing", "to", "run", "tries", "next", "error", "at")
    list_filter = (OfStatus, OfChannel, OfRun)
    list_select_related = ("notice",)
    list_only = (
        *("notice__kind", "notice__event_id", "notice__run_id"),
        *("channel", "address", "status", "attempts", "next_try_at", "leased_until"),
        *("last_error", "made_at", "sent_at"),
    )
    record_related = ("notice",)
    ordering = ("-id",)
    empty = (
        "No notification yet: one is made when a person is needed, an effect is uncertain or a run "
        "ends, for people with an e-mail address and for the webhooks that are set."
    )

    @admin.display(description="notification")
    def notification(self, delivery: Delivery) -> Cell:
        return format_html(
            '<a class="ao-link" href="{}">{}</a>', _page(delivery), delivery.notice.kind
        )

    @admin.display(description="status")
    def standing(self, delivery: Delivery) -> Cell:
        return _badge(delivery)

    @admin.display(description="to")
    def to(self, delivery: Delivery) -> Cell:
        return _shown_address(delivery)

    @admin.display(description="run")
    def run(self, delivery: Delivery) -> Cell:
        return run_link(delivery.notice.run_id)

    @admin.display(description="tries")
    def tries(self, delivery: Delivery) -> Cell:
        return str(delivery.attempts)

    @admin.display(description="next")
    def next(self, delivery: Delivery) -> Cell:
        return _next(delivery)

    @admin.display(description="last error")
    def error(self, delivery: Delivery) -> Cell:
        return line(delivery.last_error, 100)

    @admin.display(description="made")
    def at(self, delivery: Delivery) -> Cell:
        return when(delivery.made_at)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().changelist_view(request, {"hints": _hints(), **(extra_context or {})})

    def record(self, request: HttpRequest, delivery: Delivery) -> Record:
        notice = delivery.notice
        return Record(
            title=f"{delivery.get_channel_display()}: {notice.kind}",
            state=_badge(delivery),
            meaning=MEANINGS[delivery.status],
            facts=[
                Fact("What", str(notice.get_kind_display())),
                Fact("To", _shown_address(delivery)),
                Fact("Event", line(notice.event_id)),
                Fact("Run", run_link(notice.run_id)),
                Fact("Operation", operation_link(notice.operation_id or None)),
                Fact("Next try", _next(delivery)),
                Fact("Tries", str(delivery.attempts)),
                Fact("Last error", line(delivery.last_error, 300)),
                Fact("Made", when(delivery.made_at)),
                Fact("Taken", when(delivery.sent_at)),
            ],
            parts=[Notice("warning", "Off", _hints())] if _waits_for_settings(delivery) else [],
            action=self._resend_link(request, delivery),
        )

    def get_urls(self) -> list[URLPattern]:
        ask = path(
            "<int:delivery_id>/resend/",
            self.admin_site.admin_view(self.resend_view),
            name="agentops_delivery_resend",
        )
        return [ask, *super().get_urls()]

    def resend_view(self, request: HttpRequest, delivery_id: int) -> HttpResponse:
        """GET asks; POST makes it due now."""
        if not _may_resend(request):
            raise PermissionDenied
        if request.method not in {"GET", "HEAD", "POST"}:
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        delivery = self.find(str(delivery_id))
        if delivery is None:
            return self.not_found(request, str(delivery_id))
        if request.method == "POST":
            if resend(Delivery.objects.filter(pk=delivery_id)):
                messages.success(request, "It is sent again with the next sweep.")
            else:
                messages.warning(request, "It is on its way already, or was dropped.")
            return HttpResponseRedirect(_page(delivery))
        context = self.page_context(request, title="Send again") | {
            "delivery": delivery,
            "state": _badge(delivery),
            "to": _shown_address(delivery),
            "back": _page(delivery),
            "possible": can_be_resent(delivery),
        }
        return TemplateResponse(request, "admin/agentops/resend_notification.html", context)

    def not_found(self, request: HttpRequest, key: str) -> HttpResponse:
        messages.warning(
            request, f"There is no notification {line(key, 80)}. It may have been purged."
        )
        return HttpResponseRedirect(reverse("admin:agentops_delivery_changelist"))

    def _resend_link(self, request: HttpRequest, delivery: Delivery) -> Action | None:
        if not (_may_resend(request) and can_be_resent(delivery)):
            return None
        url = reverse("admin:agentops_delivery_resend", args=[delivery.pk])
        return Action(url, "Send again…")


def _may_resend(request: HttpRequest) -> bool:
    return request.user.has_perm("agentops.change_delivery")


def _page(delivery: Delivery) -> str:
    return reverse("admin:agentops_delivery_change", args=[delivery.pk])


def _badge(delivery: Delivery) -> SafeString:
    return badge(delivery.get_status_display(), TONES[delivery.status])


def _shown_address(delivery: Delivery) -> Cell:
    if delivery.channel == Delivery.Channel.EMAIL:
        return line(delivery.address, 100)
    return line(f"{urlsplit(delivery.address).netloc}/…", 100)


def _next(delivery: Delivery) -> Cell:
    if delivery.status != Status.PENDING:
        return line("")
    if _waits_for_settings(delivery):
        return "not before its receiver is set again"
    if delivery.leased_until is not None:
        return format_html("being sent; else {}", when(delivery.next_try_at))
    return when(delivery.next_try_at)


def _waits_for_settings(delivery: Delivery) -> bool:
    """Whether no sweep would send it as the settings are."""
    if delivery.status != Status.PENDING:
        return False
    if delivery.channel == Delivery.Channel.EMAIL:
        return not settings.AGENTOPS_EMAIL_HOST
    named = delivery.address in settings.AGENTOPS_WEBHOOK_URLS
    return not named and not is_receiver(delivery.address)


def _hints() -> list[str]:
    found = [] if settings.AGENTOPS_EMAIL_HOST else [HOW_TO_EMAIL]
    return found if settings.AGENTOPS_WEBHOOK_URLS else [*found, HOW_TO_WEBHOOK]
