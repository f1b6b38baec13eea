"""Hosts out of service, by an administrator: their workers take nothing new, and return what they hold if drained."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from lethe.errors import InvalidInput, NotFound
from server.audit import log as audit
from server.evaluations import leases
from server.models.account import Account
from server.models.worker import CordonedHost, Worker
from server.worker_facts import host_of
from server.workers import repository

hosts = repository.cordoned_hosts


def reason(session: Session, worker_name: str) -> str:
    """Return why the worker's host takes no work; empty if it does."""
    found = session.get(CordonedHost, host_of(worker_name), populate_existing=True)
    return f"cordoned: {found.reason}" if found else ""


def cordon(session: Session, host: str, *, why: str, actor: Account | None, drain: bool = False) -> int:
    """Cordon the host: no new work; preparations in progress end. Return the number of shards taken back.

    drain: take back the shards that they hold, too; this is nobody's failed attempt. Raises NotFound for a host that
    no worker came from, InvalidInput without a reason.
    """
    if not why.strip():
        raise InvalidInput("Say why the host is taken out of service: its reason is shown with its workers")
    names = [row.name for row in _workers(session, host)]
    row = session.get(CordonedHost, host) or CordonedHost(host=host)
    row.reason, row.ordered_by = why.strip(), actor.id if actor else None
    session.add(row)
    taken = leases.take_from(session, names, reason=f"{host} is drained: {why}") if drain else 0
    action = "host.drained" if drain else "host.cordoned"
    audit.record(session, actor, action, subject=host, reason=why, data={"host": host, "shards": taken})
    return taken


def uncordon(session: Session, host: str, *, actor: Account | None) -> None:
    """Uncordon the host. Raises NotFound if it is not cordoned."""
    row = session.get(CordonedHost, host)
    if row is None:
        raise NotFound(f"{host!r} is not cordoned")
    session.delete(row)
    audit.record(session, actor, "host.uncordoned", subject=host, data={"host": host})


def _workers(session: Session, host: str) -> Sequence[Worker]:
    known = repository.own_workers(session)
    found = [row for row in known if host_of(row.name) == host]
    if not found:
        names = sorted({host_of(row.name) for row in known})
        raise NotFound(f"No worker came from the host {host!r}; they came from: {', '.join(names) or 'none'}")
    return found
