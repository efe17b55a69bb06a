"""Bytes to typed requests and back: framing, codec, record batches. No IO."""
