"""`lethe libraries`: sets of older libraries for the sandboxes of this host."""

from typing import Annotated

import typer

from lethe.errors import HostFault

group = typer.Typer(no_args_is_help=True, help="Sets of older libraries for sandboxes, which a competition may name.")


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
