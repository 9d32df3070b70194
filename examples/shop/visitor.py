"""A person at the admin, without a browser: reads pages and submits their forms over HTTP.

Guarantees: only forms that a page really has are submitted, with the fields that it gave them
and nothing invented; a page that does not have what is looked for is an error that says so.

Does not run scripts: the admin works without.
"""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Self
from urllib.parse import urljoin

import httpx2


@dataclass
class Form:
    """One form of a page, and what its fields hold."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


class Visitor:
    """Somebody who is logged in. Use as a context manager."""

    def __init__(self, *, web: str, username: str, password: str) -> None:
        self._client = httpx2.Client(base_url=web, follow_redirects=True, timeout=30)
        page = self.read("/admin/login/?next=/admin/")
        self.submit(page, username=username, password=password)
        if "sessionid" not in self._client.cookies:
            raise AssertionError(f"{username} could not log in")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def read(self, path: str) -> httpx2.Response:
        """A page, as the browser that follows a link gets it."""
        return self._client.get(path).raise_for_status()

    def submit(self, page: httpx2.Response, **filled: str) -> httpx2.Response:
        """Fill in and send the first form of the page that has all of these fields.

        A field that is hidden, as `verdict` is, chooses the form by its value.
        """
        for form in read_forms(page.text):
            if form.method == "post" and _fits(form, filled):
                return self._client.post(
                    urljoin(str(page.url), form.action or str(page.url)),
                    data={**form.fields, **filled},
                    # As every browser says where a form was filled in.
                    headers={"Referer": str(page.url)},
                )
        raise AssertionError(f"{page.url} has no form with {', '.join(filled)}")


def read_forms(html: str) -> list[Form]:
    """Every form of a page."""
    reader = _FormReader()
    reader.feed(html)
    return reader.forms


def _fits(form: Form, filled: dict[str, str]) -> bool:
    given = form.fields
    return all(name in given and given[name] in ("", value) for name, value in filled.items())


class _FormReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._open: Form | None = None
        self._area = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._open = Form(given.get("action", ""), given.get("method", "get").lower())
            self.forms.append(self._open)
        elif self._open is not None and tag in ("input", "textarea") and given.get("name"):
            self._open.fields[given["name"]] = given.get("value", "")
            self._area = given["name"] if tag == "textarea" else ""

    def handle_data(self, data: str) -> None:
        if self._open is not None and self._area:
            # A browser drops the line break that a text area begins with.
            self._open.fields[self._area] += data.removeprefix("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None
        elif tag == "textarea":
            self._area = ""
