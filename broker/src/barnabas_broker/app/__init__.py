"""The processes of a broker: command line, wiring of the parts, and access to the machine."""
