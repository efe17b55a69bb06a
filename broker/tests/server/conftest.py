"""What holds for all tests of the server."""

import pytest

from barnabas_core.loop_turns import LOOP_SHARE


@pytest.fixture(autouse=True)
def loop_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the share of a turn after a test that measures turns; a share that has ended delays all later brokers."""
    monkeypatch.setattr(LOOP_SHARE, "ends_s", LOOP_SHARE.ends_s)
    monkeypatch.setattr(LOOP_SHARE, "now_s", LOOP_SHARE.now_s)
