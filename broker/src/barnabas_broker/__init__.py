"""The broker, in layers that import only the layers below. broker/DESIGN.md describes the layers, as "floors"."""
