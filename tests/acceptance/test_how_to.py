"""What the how-to pages show works as it stands there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tool_and_the_agent_of_the_how_to_pages_are_sound(tmp_path: Path) -> None:
    app = tmp_path / "shop"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "tools.py").write_text(_code("write-a-tool.md"))
    (app / "agents.py").write_text(_code("write-an-agent.md"))
    # Both commands look for what is wrong with the apps before they list anything.
    tools = json.loads(_manage("list_tools", "--json", app_path=tmp_path))
    agents = json.loads(_manage("list_agents", "--json", app_path=tmp_path))
    assert {tool["name"]: tool["effect_type"] for tool in tools} == {
        "close_account": "TRANSACTIONAL",
        "close_ticket": "IDEMPOTENT_WRITE",
        "lookup_balance": "READ",
        "open_ticket": "NON_IDEMPOTENT_WRITE",
        "post_letter": "IRREVERSIBLE",
        "read_result": "READ",
        "refund_customer": "IDEMPOTENT_WRITE",
    }
    assert [agent["name"] for agent in agents] == ["external", "refund_once", "refunder"]


def _code(page: str) -> str:
    text = (ROOT / "docs" / "how-to" / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    return "\n\n".join(blocks)


def _manage(*arguments: str, app_path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "AGENTOPS_APPS": "shop", "PYTHONPATH": str(app_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
