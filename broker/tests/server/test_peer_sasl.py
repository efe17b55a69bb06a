"""The login of a broker at another one."""

from unittest.mock import Mock

import pytest

from barnabas_broker.server import peer_link
from barnabas_broker.server.peer_link import authenticate


async def test_a_broker_that_does_not_answer_in_time_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_link, "LOGIN_S", 0.01)
    silent = Mock(send=len, receive=Mock(side_effect=BlockingIOError))
    with pytest.raises(OSError, match=r"^the SASL authentication at the other broker failed: no answer in time$"):
        await authenticate(silent, Mock(mechanism="PLAIN"))
