"""A list without rows says what to do next."""

import re

import pytest
from django.contrib import admin
from django.urls import reverse

from runs.admin.readonly import ReadOnlyAdmin
from tests.database.admin_pages import browser_of, person

pytestmark = pytest.mark.django_db

admin.autodiscover()
LISTS = {
    f"{model._meta.app_label}_{model._meta.model_name}": page
    for model, page in admin.site._registry.items()
    if isinstance(page, ReadOnlyAdmin)
}
# One paragraph, or several in a box.
EMPTY = re.compile(r'<(p|div) class="ao-empty">(.*?)</\1>', re.DOTALL)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_without_rows_says_what_to_do_next(name: str) -> None:
    model = LISTS[name].model
    model._default_manager.all().delete()
    page = browser_of(person(superuser=True)).get(reverse(f"admin:{name}_changelist"))
    found = EMPTY.search(page.content.decode())
    assert found is not None
    assert re.search(r"href=|manage\.py|POST /api|No incident", found[2]), found[2]


def test_no_row_by_that_name_leads_to_the_list_of_its_kind() -> None:
    client = browser_of(person(superuser=True))
    for name, page in LISTS.items():
        key = "0" * 32 if page.opts.pk.get_internal_type() == "UUIDField" else "999999999"
        answer = client.get(reverse(f"admin:{name}_change", args=[key]), follow=True)
        [(address, _), *_] = answer.redirect_chain
        assert address == reverse(f"admin:{name}_changelist"), name
