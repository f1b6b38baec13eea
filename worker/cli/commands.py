"""The commands that need the sandbox or a worker: `lethe doctor`, `libraries`, `replay`, `worker`."""

from typing import Annotated
from urllib.parse import urlsplit

import typer

from lethe.errors import HostFault, InvalidInput
from worker.cli import replay

LOOPBACK = ("localhost", "127.0.0.1", "::1")
group = typer.Typer(no_args_is_help=True, help="Sets of older libraries for sandboxes, which a competition may name.")


def register_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(doctor)
    app.add_typer(group, name="libraries")
    app.command("replay")(replay.replay)
    app.command("worker")(run_worker)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead of a table.")] = False,
) -> None:
    """Check settings, services, disk, clock, GPU and sandbox, with fixes. Exit status 1: something is wrong."""
    from worker.cli.doctor import examine_host  # a second of imports that `lethe --help` need not pay

    examine_host(as_json=as_json)


@group.command("list")
def list_sets() -> None:
    """List the sets, and which of them are installed here."""
    from sandbox.environments import find_environment, known_sets, missing_set
    from server.private_files import instance_settings

    folder = instance_settings().library_sets
    for name in known_sets():
        problem = missing_set(name, folder)
        typer.echo(f"{name}: {problem or find_environment(name, folder).in_words}")


@group.command("install")
def install_set(
    name: Annotated[str, typer.Argument(help="The set, as in a competition's submissions.libraries.")],
    python: Annotated[str | None, typer.Option("--python", help="The Python 3.11 to install it with.")] = None,
) -> None:
    """Install a set for the sandboxes of this host: about 6 GB, from where pip gets packages. Restart workers then."""
    from sandbox.environments import install
    from sandbox.errors import BackendUnavailable
    from server.private_files import instance_settings

    folder = instance_settings().library_sets
    typer.echo(f"Installing {name} into {folder / name}: about 6 GB, a few minutes.")
    try:
        installed = install(name, folder, python=python)
    except BackendUnavailable as error:
        raise HostFault(str(error)) from error
    typer.echo(f"Installed: {installed.in_words}. Workers use it once they are restarted.")


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
