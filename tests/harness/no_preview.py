"""A preview for webhooks in tests that have nothing to do with resets."""


async def no_preview(*_: object) -> tuple[str, ...]:
    """Return no warnings, and ask no brokers: a `webhook.Preview`."""
    return ()
