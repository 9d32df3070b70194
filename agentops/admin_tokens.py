"""API tokens: which there are, what ends them, and new secrets for them.

Guarantees: a secret is on one page, once, and in no address; that page is stored by nobody and
says to nobody where it was left from. A token's row is changed by a POST after a question alone:
revoking ends it now and keeps it listed, a new secret leaves all else as it is. Only its owner,
or a superuser, gets a new secret: whoever has it acts as the owner.

Does not make tokens: `manage.py create_token` does.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from django.contrib import admin, messages
from django.contrib.admin import ShowFacets
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from agentops.models import ApiToken
from agentops.tokens import AlreadyRotated, TokenEnded, revoke_token, rotate_token
from runs.admin.readonly import BIGGEST_ID

if TYPE_CHECKING:
    # The same class with another look, and untyped.
    from django.contrib.admin import ModelAdmin

    BaseAdmin = ModelAdmin[Any]
else:
    from unfold.admin import ModelAdmin as BaseAdmin

# How long the secret that is replaced works on; the first is what stands chosen.
GRACES: Final = {
    "3600": "for one hour: programs are given the new one meanwhile",
    "86400": "for one day",
    "604800": "for seven days",
    "0": "no longer: somebody has it who should not",
}
ASKS: Final = {"rotate": "New secret…", "revoke": "Revoke…"}
# Days until the token ends; empty leaves its end as it is.
ENDS: Final = {
    "": "as it is now",
    "30": "in 30 days",
    "90": "in 90 days",
    "365": "in a year",
}


@admin.register(ApiToken)
class ApiTokenAdmin(BaseAdmin):
    """The list says all there is to say about a token, so a row leads to what ends it alone."""

    list_display = (
        *("name", "standing", "changes", "shown_scopes", "user", "shown_prefix", "used"),
        "webhook",
    )
    list_display_links = None
    list_select_related = ("user",)
    ordering = ("-id",)
    sortable_by = ()
    actions = None
    show_facets = ShowFacets.NEVER

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        # Else an address could ask, one character at a time, for a digest.
        return False

    @admin.display(description="prefix")
    def shown_prefix(self, token: ApiToken) -> str:
        return f"{token.prefix}…"

    @admin.display(description="scopes")
    def shown_scopes(self, token: ApiToken) -> str:
        return ", ".join(token.scopes)

    @admin.display(description="valid")
    def standing(self, token: ApiToken) -> str:
        now = timezone.now()
        if token.expires_at is not None and token.expires_at <= now:
            return f"ended {token.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        said = "until it is revoked"
        if token.expires_at is not None:
            said = f"until {token.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        if token.previous_until is not None and token.previous_until > now:
            said += f"; its former secret until {token.previous_until:%Y-%m-%d %H:%M:%S} UTC"
        return said

    @admin.display(description="last used")
    def used(self, token: ApiToken) -> str:
        at = token.last_used_at
        return "never" if at is None else f"{at:%Y-%m-%d %H:%M} UTC"

    @admin.display(description="webhook")
    def webhook(self, token: ApiToken) -> str:
        # The rest of the address may hold a secret.
        return urlsplit(token.webhook_url).netloc or "–"

    @admin.display(description="")
    def changes(self, token: ApiToken) -> SafeString | str:
        if token.revoked_at is not None:
            return "–"
        # One that expired may be given a later end, until it is revoked.
        asks = {"revoke": "Revoke…"} if _has_ended(token) else ASKS
        return format_html_join(
            " ",
            '<a class="underline" href="{}">{}</a>',
            (
                (reverse(f"admin:agentops_apitoken_{name}", args=[token.pk]), text)
                for name, text in asks.items()
            ),
        )

    def get_urls(self) -> list[URLPattern]:
        pages = {"revoke": self.revoke_view, "rotate": self.rotate_view}
        return [
            *(
                path(
                    f"<int:token_id>/{name}/",
                    self.admin_site.admin_view(view),
                    name=f"agentops_apitoken_{name}",
                )
                for name, view in pages.items()
            ),
            *super().get_urls(),
        ]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        # Django's page would print every field, the digest too.
        return HttpResponseRedirect(reverse("admin:agentops_apitoken_changelist"))

    def revoke_view(self, request: HttpRequest, token_id: int) -> HttpResponse:
        """GET asks; POST ends the token now. Those who may change tokens may do it."""
        token = _find(request, token_id)
        if isinstance(token, HttpResponse):
            return token
        if request.method == "POST":
            revoke_token(token_id=token_id)
            messages.success(request, f"{token} can no longer be used.")
            return HttpResponseRedirect(_tokens())
        return self._page(request, "revoke_token", title="Revoke token", token=token)

    def rotate_view(self, request: HttpRequest, token_id: int) -> HttpResponse:
        """GET asks how; POST gives the token a new secret and shows it, this once."""
        token = _find(request, token_id)
        if isinstance(token, HttpResponse):
            return token
        if token.user_id != request.user.pk and not request.user.is_superuser:
            raise PermissionDenied
        possible_ends = _ends_for(request, token)
        if request.method != "POST":
            return self._page(
                request,
                "rotate_token",
                title="New secret",
                token=token,
                graces=GRACES,
                ends=possible_ends,
                default="3600",
            )
        grace, days = request.POST.get("grace", ""), request.POST.get("ends", "")
        if days in ENDS and days not in possible_ends:
            messages.warning(request, "Only a superuser may give it a later end; nothing was done.")
            return HttpResponseRedirect(request.path)
        if grace not in GRACES or days not in ENDS:
            messages.warning(request, "Choose how long the former secret works; nothing was done.")
            return HttpResponseRedirect(request.path)
        try:
            issued = rotate_token(
                token_id=token_id,
                grace=timedelta(seconds=int(grace)),
                expires_at=timezone.now() + timedelta(days=int(days)) if days else None,
                prefix=request.POST.get("prefix", ""),
            )
        except (AlreadyRotated, TokenEnded) as error:
            messages.warning(request, str(error))
            return HttpResponseRedirect(_tokens())
        shown = self._page(
            request, "rotated_token", title="New secret", token=issued.row, secret=issued.secret
        )
        shown["Referrer-Policy"] = "no-referrer"
        return shown

    def _page(
        self, request: HttpRequest, name: str, *, title: str, token: ApiToken, **more: Any
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": title,
            "token": token,
            "ended": _has_ended(token),
            "back": _tokens(),
            **more,
        }
        return TemplateResponse(request, f"admin/agentops/{name}.html", context)


def _find(request: HttpRequest, token_id: int) -> ApiToken | HttpResponse:
    """The token, for those who may change it; else where to go instead."""
    if not request.user.has_perm("agentops.change_apitoken"):
        raise PermissionDenied
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    token = None
    if token_id <= BIGGEST_ID:
        token = ApiToken.objects.filter(pk=token_id).select_related("user").first()
    if token is None:
        messages.warning(request, "There is no such token.")
        return HttpResponseRedirect(_tokens())
    return token


def _ends_for(request: HttpRequest, token: ApiToken) -> dict[str, str]:
    """How long the token may live on: an owner shortens what was given them, and no more."""
    end = token.expires_at
    if request.user.is_superuser or end is None:
        return ENDS
    now = timezone.now()
    return {
        days: said
        for days, said in ENDS.items()
        if not days or now + timedelta(days=int(days)) <= end
    }


def _tokens() -> str:
    return reverse("admin:agentops_apitoken_changelist")


def _has_ended(token: ApiToken) -> bool:
    return token.expires_at is not None and token.expires_at <= timezone.now()
