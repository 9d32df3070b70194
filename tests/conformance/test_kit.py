from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.shop.provider_process import provider_process
from tests.conformance.kit_tools import Shop, arguments
from tools import EffectType
from tools.testing import assert_sound, check

pytestmark = [pytest.mark.crash, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with provider_process(tmp_path / "ledger.sqlite3") as running:
        yield Shop(running)


def test_a_sound_idempotent_write(shop: Shop) -> None:
    report = check(
        shop.refund(EffectType.IDEMPOTENT_WRITE), arguments=arguments, count_effects=shop.count
    )
    print(report)
    assert_sound(report)
