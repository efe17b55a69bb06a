"""The addresses of one cluster and of the cables to its nodes: numbered, so that several clusters run side by side."""

from dataclasses import dataclass

from local_kubernetes.control_plane import Place

PODS_PER_NODE = 64  # As 26 bits of an address name a node.


@dataclass(frozen=True, slots=True)
class Cable:
    """A cable between this machine and one node; `index` counts from 0."""

    number: int
    index: int

    @property
    def device(self) -> str:
        """Return the name of the device at our end."""
        return f"e2e{self.number}-{self.index}"

    @property
    def host(self) -> str:
        """Return the address of our end."""
        return f"10.200.{self.number}.{4 * self.index + 1}"

    @property
    def node(self) -> str:
        """Return the address of the node's end, where node ports are open."""
        return f"10.200.{self.number}.{4 * self.index + 2}"

    @property
    def pods(self) -> str:
        """Return the range of the node's pods, reachable from this machine and from the other nodes."""
        return f"10.201.{self.number}.{PODS_PER_NODE * self.index}/26"


@dataclass(frozen=True, slots=True)
class Network:
    """The addresses of one cluster."""

    number: int

    def cable(self, index: int) -> Cable:
        """Return the cable to a node, counted from 0."""
        return Cable(self.number, index)

    @property
    def dns(self) -> str:
        """Return the address of DNS, on the first node."""
        return self.cable(0).node

    @property
    def pods(self) -> str:
        """Return the range of the pods of all nodes."""
        return f"10.201.{self.number}.0/24"

    @property
    def services(self) -> str:
        """Return the range of services, reachable from this machine, too, by the first node."""
        return f"10.202.{self.number}.0/24"

    @property
    def place(self) -> Place:
        """Return the place of the control plane: the API server listens at our end of the first cable."""
        return Place(self.cable(0).host, self.services, f"10.202.{self.number}.1")
