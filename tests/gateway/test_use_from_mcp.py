"""What docs/how-to/use-from-mcp.md and the README show works as it stands there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentops.mcp.listing import STATUSES
from tests.gateway import mcp_client
from tests.gateway.conftest import Gateway
from tests.gateway.provider import StoreProvider

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "use-from-mcp.md"


@pytest.mark.parametrize("page", [PAGE, ROOT / "README.md"], ids=["how-to", "README"])
def test_the_configuration_leads_to_the_tools(page: Path, gateway: Gateway, new_token: Any) -> None:
    [block] = [one for one in _blocks(page, "json") if "mcpServers" in one]
    assert len(block.splitlines()) == 5
    [server] = json.loads(block)["mcpServers"].values()
    token = new_token("operations:call:look_up_order", "operations:call:refund_customer")
    header = server["headers"]["Authorization"].replace("${AGENTOPS_TOKEN}", token)
    assert (server["type"], header) == ("http", f"Bearer {token}")
    url = server["url"].replace("http://127.0.0.1:8000", gateway.one).removesuffix("/mcp")
    shown = mcp_client.tools(url, header.removeprefix("Bearer "))
    assert set(shown) == {"look_up_order", "refund_customer", "get_operation"}


def test_the_program_is_answered_with_the_record_when_it_is_started_again(
    gateway: Gateway, new_token: Any, provider: StoreProvider, tmp_path: Path
) -> None:
    program = tmp_path / "agent.py"
    [code] = _blocks(PAGE, "python")
    program.write_text(code)
    env = {**os.environ, "AGENTOPS_TOKEN": new_token()}
    said = [
        subprocess.run(
            [sys.executable, str(program)],
            env={**env, "AGENTOPS_URL": url},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for url in (gateway.one, gateway.two)
    ]
    assert said[0].startswith("COMMITTED {'effect': 1")
    assert said[1] == said[0]
    assert provider.effects == {("refund", "17"): 1}


def test_every_status_is_explained() -> None:
    told = PAGE.read_text()
    assert [status for status in STATUSES if f"`{status}`" not in told] == []


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)
