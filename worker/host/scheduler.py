"""The scheduler of `python -m worker beat`: it sends no sweep where sweeps wait that nobody takes."""

from typing import Any

from celery.beat import PersistentScheduler

from server.queue import BROKER_FAILURES, CONTROL_QUEUE, max_waiting, waiting


class Scheduler(PersistentScheduler):
    """Celery's own, with a bound on what waits."""

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **options: Any) -> Any:
        """Send the entry's message unless enough wait. What the broker refuses is sent at the next turn."""
        try:
            is_enough = producer is not None and waiting(producer.channel, CONTROL_QUEUE) >= max_waiting(entry.task)
        except BROKER_FAILURES:
            is_enough = False  # sending it meets the same, and is reported
        if is_enough:
            if advance:
                self.reserve(entry)
            return None
        return super().apply_async(entry, producer=producer, advance=advance, **options)
