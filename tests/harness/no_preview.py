"""For webhooks in tests that are about no reset."""


async def no_preview(*_: object) -> tuple[str, ...]:
    """A `webhook.Preview` that asks no brokers."""
    return ()
