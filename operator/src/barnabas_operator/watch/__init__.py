"""The watches of resources and of the objects that Clusters own; also starts and stops the operator with kopf."""
