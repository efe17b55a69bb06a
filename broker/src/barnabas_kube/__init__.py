"""An asyncio client of the Kubernetes API, which broker and operator share."""
