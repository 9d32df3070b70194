"""Tools whose SDK is not installed say so, and send nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.calls import Operation
from tests.processes import ROOT
from tools import Call, EffectType, tool
from tools.catalog.extras import need
from tools.outcome import Unsent

DECLARE_ALL = """
import sys
import tools.catalog.aws_efs, tools.catalog.aws_s3, tools.catalog.mcp_call
tools.catalog.aws_s3.put_object_tool(bucket="reports")
tools.catalog.aws_efs.create_file_system_tool()
print([name for name in ("boto3", "botocore", "mcp") if name in sys.modules])
"""


def test_a_missing_sdk_is_named_with_its_extra_and_counts_as_not_sent() -> None:
    @tool(name="act", effect_type=EffectType.NON_IDEMPOTENT_WRITE)
    def act(call: Call) -> None:
        """Needs what is not there."""
        need("no_such_sdk.client", extra="aws")

    outcome = Operation("act", {}).send()
    assert isinstance(outcome, Unsent)
    assert 'pip install "agentops[aws]"' in outcome.reason


def test_an_sdk_that_is_there_and_lacks_a_part_of_its_own_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_sdk.py").write_text("import no_such_part\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_part"):
        need("some_sdk", extra="aws")


def test_declaring_a_tool_imports_no_sdk() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", DECLARE_ALL], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.stdout.strip() == "[]", ran.stderr
