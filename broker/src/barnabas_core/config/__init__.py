"""The settings of brokers and topics: their definitions, the parsing of files, and typed values."""
