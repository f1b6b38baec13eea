"""What a worker holds of Redis' messages: at most as many as it works on, also after Redis was silent.

kombu forgets a message once Redis has heard of its end, and asks for no further one meanwhile. Where Redis was silent
at that moment it kept the message for ever: the worker lived, answered pings, and took nothing more.
"""

from kombu.transport import redis
from kombu.transport.virtual import base


class ForgettingQoS(redis.QoS):
    """Forgets a message that is done. Redis brings it again after the visibility timeout: it only wakes a worker."""

    def ack(self, delivery_tag: str) -> None:
        try:
            super().ack(delivery_tag)
        except BaseException:
            base.QoS.ack(self, delivery_tag)
            raise


def install() -> None:
    """Have every connection of this process to Redis use it."""
    redis.Channel.QoS = ForgettingQoS
