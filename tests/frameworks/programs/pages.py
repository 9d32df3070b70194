"""The code of the how-to pages, as modules."""

import re
from pathlib import Path
from types import ModuleType

HOW_TO = Path(__file__).resolve().parents[3] / "docs" / "how-to"


def blocks(page: str, language: str) -> str:
    """What the page shows in a language, one after the other."""
    text = (HOW_TO / f"{page}.md").read_text()
    found = re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)
    assert found, f"{page} shows no {language}"
    return "\n\n".join(found)


def module_of(page: str) -> ModuleType:
    """The page's Python, executed."""
    made = ModuleType(page.replace("-", "_"))
    code = compile(blocks(page, "python"), f"{page}.md", "exec", dont_inherit=True)
    exec(code, made.__dict__)
    return made
