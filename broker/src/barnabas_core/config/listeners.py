"""Listeners: the addresses a broker binds, and those it tells clients."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener: `name` as in the configuration, an empty `host` binds every interface, port 0 any free one."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{self.host}:{self.port}"
