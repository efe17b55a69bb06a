"""The partitions of this broker: leader state, high watermark, delayed requests waiting on them."""
