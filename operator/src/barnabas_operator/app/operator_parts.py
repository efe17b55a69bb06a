"""What the operator consists of, between kopf's start and stop."""

from kubernetes_asyncio import client, config
from kubernetes_asyncio.config.config_exception import ConfigException

from barnabas_operator.handlers.inventory import Inventory
from barnabas_operator.handlers.lanes import Lanes
from barnabas_operator.handlers.operator_metrics import OperatorMetrics
from barnabas_operator.handlers.operator_settings import OperatorSettings
from barnabas_operator.kube.api import KubeApi


class Operator:
    """What is between kopf's start and stop."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self.inventory = Inventory()
        self.metrics = OperatorMetrics(self.inventory)
        self.lanes: Lanes | None = None
        self._client: client.ApiClient | None = None

    async def start(self) -> Lanes:
        """Connects to the API server that the pod, or KUBECONFIG, names."""
        chosen = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=chosen)
        except ConfigException:
            await config.load_kube_config(client_configuration=chosen)
        self._client = client.ApiClient(chosen)
        self.lanes = Lanes(self.inventory, KubeApi(self._client), self._settings, self.metrics)
        return self.lanes

    async def stop(self) -> None:
        """Ends all lanes and connections."""
        if self.lanes is not None:
            await self.lanes.close()
        if self._client is not None:
            await self._client.close()
