"""The changes of metadata, which every broker can make, and the background work of the controller."""
