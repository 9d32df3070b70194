"""What the MCP tests share (one counting server, forgetful between tests), and a word at the end
about the real targets that could not be tested against.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.conformance.targets.fault_proxy import FaultProxy
from tests.conformance.targets.mcp_servers import Notes


@pytest.fixture(scope="session")
def notes_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notes]:
    with Notes(folder=tmp_path_factory.mktemp("notes")) as server:
        yield server


@pytest.fixture
def notes(notes_server: Notes) -> Notes:
    notes_server.forget()
    return notes_server


@pytest.fixture
def notes_proxy(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """Stands before the server, and in the environment as `NOTES_URL`."""
    with FaultProxy(notes.url) as proxy:
        monkeypatch.setenv("NOTES_URL", f"{proxy.url}/mcp")
        yield proxy


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(
        report.longrepr[2] for report in skipped if report.nodeid.startswith("tests/conformance/")
    )
    for reason, tests in sorted(reasons.items()):
        terminalreporter.write_line(f"{tests} conformance tests not run: {reason}")
