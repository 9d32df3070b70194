"""Every page of the admin, found by asking the admin for its addresses.

A new page is thus walked by each test that walks them all, without anybody's doing; an address
that shows nothing of its own is named here, with the reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db.models import Model
from django.urls import URLPattern, URLResolver, reverse

from runs.models import Approval

# Ends of the names of addresses that are no pages, and why.
NO_PAGES: Final[Mapping[str, str]] = {
    "_verdict": "takes a form, and leads back",
    "_answer": "takes a form, and leads back",
    "_history": "Django's own list of what its forms changed; nothing leads there",
    "_export": "is a file",
    "jsi18n": "words for a script",
    "autocomplete": "answers a script",
    "search": "answers a script",
    "view_on_site": "leads to a site that these rows are not on",
    "login": "for those who are not signed in",
    "logout": "takes a click, and ends the session",
    "agentops_apitoken_change": "leads to the list, which says all there is to say",
    "runs_rollup_change": "leads to the service levels, which say all there is to say",
}
# Whose rows Django's own forms make and delete; it is refused for all others.
FORMS: Final = (User, Group)
# Where not the newest row of a kind has the page with most to say: what it is narrowed to.
NARROWED: Final[Mapping[str, Mapping[str, Any]]] = {
    "runs_tooloperation_resolve": {"status": "UNKNOWN"},
    "runs_approval_change": {"status": "pending"},
    "runs_approval_propose": {"status": "pending"},
    "runs_question_change": {"status": "open"},
    "agentops_delivery_resend": {"status": "failed"},
}


def every_page() -> dict[str, str]:
    """The address of each page by its name, those of one row with the newest row of its kind."""
    pages: dict[str, str] = {}
    for model, pattern in _named(admin.site.get_urls()):
        name = str(pattern.name)
        if name.endswith(tuple(NO_PAGES)) or _is_refused(model, pattern):
            continue
        if name == "app_list":
            for app in sorted({known._meta.app_label for known in admin.site._registry}):
                pages[f"{name}_{app}"] = reverse(f"admin:{name}", args=[app])
        elif "<" not in str(pattern.pattern):
            pages[name] = reverse(f"admin:{name}", query=_asked_of(name))
        else:
            assert model is not None, f"{name}: the page of which row?"
            pages[name] = reverse(f"admin:{name}", args=[_newest(model, name).pk])
    return pages


def _named(
    patterns: Sequence[URLPattern | URLResolver], model: type[Model] | None = None
) -> Iterator[tuple[type[Model] | None, URLPattern]]:
    """Each address that has a name, with the model whose admin it belongs to."""
    below = {f"{m._meta.app_label}/{m._meta.model_name}/": m for m in admin.site._registry}
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from _named(pattern.url_patterns, below[str(pattern.pattern)])
        elif pattern.name is not None:
            yield model, pattern


def _is_refused(model: type[Model] | None, pattern: URLPattern) -> bool:
    """Whether it is one of the forms by which Django would write rows that nobody may."""
    is_djangos = str(pattern.pattern) in {"add/", "<path:object_id>/delete/"}
    return is_djangos and model not in FORMS


def _asked_of(name: str) -> dict[str, Any]:
    """What a page without a row of its own has to be told."""
    if name == "runs_approval_batch":
        pending = Approval.objects.filter(status=Approval.Status.PENDING)
        return {"pick": list(pending.values_list("pk", flat=True))}
    return {}


def _newest(model: type[Model], name: str) -> Model:
    rows = model._default_manager.filter(**NARROWED.get(name, {}))
    # What has no number of its own is made in order all the same.
    return rows.order_by(*(["-created_at"] if hasattr(model, "created_at") else []), "-pk")[0]
