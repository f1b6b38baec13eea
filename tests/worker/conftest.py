"""An instance, and a competition in a migrated database of each kind, as the server's tests have them."""

from tests.server.conftest import server
from tests.server.evaluations.conftest import competition, database, sent

__all__ = ["competition", "database", "sent", "server"]
