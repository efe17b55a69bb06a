"""The watchers that a partition notifies of changes, so that waiting fetches of followers are answered."""

from typing import Protocol


class AppendWatcher(Protocol):
    """An object with methods that a partition calls at each change; the object serves one follower.

    Changes are frequent, so the methods must be cheap.
    """

    def changed(self) -> None:
        """Note that records were appended to the partition, or that the leader of the partition changed."""
        ...

    def high_watermark_advanced(self) -> None:
        """Note that the high watermark or the log start offset of the partition advanced."""
        ...


class AppendWatchers:
    """The watchers of one partition: at most one for each follower, by the follower's broker id."""

    __slots__ = ("by_follower",)

    def __init__(self) -> None:
        self.by_follower: dict[int, AppendWatcher] = {}

    def watch(self, follower_id: int, watcher: AppendWatcher) -> None:
        """Register a follower's watcher, which gets a call for each change of the partition.

        The new watcher replaces an earlier watcher of the same follower.
        """
        self.by_follower[follower_id] = watcher

    def unwatch(self, follower_id: int, watcher: AppendWatcher) -> None:
        """Unregister the watcher of a follower, unless the follower has another watcher now."""
        if self.by_follower.get(follower_id) is watcher:
            del self.by_follower[follower_id]

    def changed(self) -> None:
        """Note in all watchers that records were appended, or that the leader changed."""
        for watcher in self.by_follower.values():
            watcher.changed()

    def high_watermark_advanced(self) -> None:
        """Note in all watchers that the high watermark or the log start offset advanced."""
        for watcher in self.by_follower.values():
            watcher.high_watermark_advanced()
