"""People and their API tokens.

Guarantees: a token is never shown (only its prefix is stored in clear), and its row
is changed by one thing alone: revoking, a POST after a question, which ends it now
and keeps it listed. Users and groups are Django's own, in this admin's look.

Does not make tokens: `manage.py create_token` does, where the secret is seen once.
"""

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin import ShowFacets
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db.models import Model, Q
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from agentops import admin_notifications  # noqa: F401  registers its page
from agentops.models import ApiToken

if TYPE_CHECKING:
    # The same class with another look, and untyped.
    from django.contrib.admin import ModelAdmin

    BaseAdmin = ModelAdmin[Any]
    BaseUserAdmin = DjangoUserAdmin[User]
else:
    from unfold.admin import ModelAdmin as BaseAdmin

    class BaseUserAdmin(DjangoUserAdmin, BaseAdmin):
        pass


admin.site.unregister([User, Group])


@admin.register(User)
class UserAdmin(BaseUserAdmin):
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, BaseAdmin):
    pass


@admin.register(ApiToken)
class ApiTokenAdmin(BaseAdmin):
    """The list says all there is to say about a token, so a row leads nowhere but to Revoke."""

    list_display = ("name", "standing", "revoke", "shown_scopes", "user", "shown_prefix", "used")
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
        if token.expires_at is None:
            return "until it is revoked"
        over = token.expires_at <= timezone.now()
        return f"{'ended' if over else 'until'} {token.expires_at:%Y-%m-%d %H:%M:%S} UTC"

    @admin.display(description="last used")
    def used(self, token: ApiToken) -> str:
        at = token.last_used_at
        return "never" if at is None else f"{at:%Y-%m-%d %H:%M} UTC"

    @admin.display(description="")
    def revoke(self, token: ApiToken) -> SafeString | str:
        if _has_ended(token):
            return "–"
        url = reverse("admin:agentops_apitoken_revoke", args=[token.pk])
        return format_html('<a class="underline" href="{}">Revoke…</a>', url)

    def get_urls(self) -> list[URLPattern]:
        ask = path(
            "<int:token_id>/revoke/",
            self.admin_site.admin_view(self.revoke_view),
            name="agentops_apitoken_revoke",
        )
        return [ask, *super().get_urls()]

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
        if not request.user.has_perm("agentops.change_apitoken"):
            raise PermissionDenied
        if request.method not in {"GET", "HEAD", "POST"}:
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        back = reverse("admin:agentops_apitoken_changelist")
        token = ApiToken.objects.filter(pk=token_id).select_related("user").first()
        if token is None:
            messages.warning(request, "There is no such token.")
            return HttpResponseRedirect(back)
        if request.method == "POST":
            valid = Q(expires_at__isnull=True) | Q(expires_at__gt=Now())
            ApiToken.objects.filter(valid, pk=token_id).update(expires_at=Now())
            messages.success(request, f"{token} can no longer be used.")
            return HttpResponseRedirect(back)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Revoke token",
            "token": token,
            "ended": _has_ended(token),
            "back": back,
        }
        return TemplateResponse(request, "admin/agentops/revoke_token.html", context)


def _has_ended(token: ApiToken) -> bool:
    return token.expires_at is not None and token.expires_at <= timezone.now()
