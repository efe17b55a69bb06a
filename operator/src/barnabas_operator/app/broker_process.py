"""One broker as a child process."""

import sys
from collections.abc import Callable
from pathlib import Path

from barnabas_operator.app.child_process import Child, ChildProcess, Say
from barnabas_operator.planning.brokers.server_properties import BrokerPlace


class BrokerProcess(ChildProcess):
    """A supervised broker, with its ports and its folder."""

    def __init__(self, place: BrokerPlace, properties_file: Path, say: Say, on_change: Callable[[], None]) -> None:
        """Create the broker without starting it; `on_change` is called when the broker has died or is ready again."""
        self.place = place
        child = Child(
            name=f"broker {place.broker_id}",
            folder=Path(place.folder),
            log_name="broker.log",
            http_port=place.http_port,
            ready_path="/startupz",
            command=(sys.executable, "-m", "barnabas", "broker", str(properties_file)),
            mark=str(properties_file),
        )
        super().__init__(child, say, on_change)
