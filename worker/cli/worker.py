"""`lethe worker`: run shards for a server that this host reaches over HTTPS alone."""

from typing import Annotated
from urllib.parse import urlsplit

import typer

from lethe.errors import HostFault, InvalidInput

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def run_worker(
    server: Annotated[str, typer.Option("--server", help="The server's address.")],
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Send the token over plain HTTP, on a network that you trust.")
    ] = False,
) -> None:
    """Run shards of a competition on this machine, with a worker token in LETHE_WORKER_TOKEN.

    Needs the server's address and the token, and neither database, Redis nor storage. The settings of workers say
    which device it uses and how many shards it runs at a time. SIGTERM returns its shards to the queue.
    """
    from server import logging
    from server.private_files import keep_private
    from worker.host.worker_info import missing_here
    from worker.remote.pool import RemoteSettings, take_token

    _check_address(server, insecure=insecure)
    token = take_token().get_secret_value()
    settings = RemoteSettings()
    keep_private(settings.home)
    if missing := missing_here(settings):
        raise HostFault(" ".join(missing))
    logging.configure(as_json=settings.log_json)
    if settings.worker_metrics_port:
        from worker.host import metrics_folder

        metrics_folder.share(settings.scratch / "metrics")
        metrics_folder.forget_others(settings.scratch / "metrics")
        from worker.host import prometheus

        prometheus.serve(settings.worker_metrics_port, settings.scratch / "metrics")
    from worker.remote.pool import Pool

    raise typer.Exit(Pool(settings, server, token).run())


def _check_address(server: str, *, insecure: bool) -> None:
    parts = urlsplit(server)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise InvalidInput(f"The server's address has the form https://host, was {server!r}")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK and not insecure:
        raise InvalidInput(
            f"{server} would carry the token and hidden data over the network unencrypted: use https://, or "
            "--insecure on a network that you trust"
        )
