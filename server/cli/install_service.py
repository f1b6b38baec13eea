"""`lethe install-service`: an instance on this machine that starts with it, as systemd units of an ordinary user."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.errors import HostFault
from server.cli.instance_commands import HOME_HELP, Home, Host, Port, set_environment

if TYPE_CHECKING:
    from server.config import Settings

TARGET = "lethe.target"
UNITS = ("lethe-broker.service", "lethe-web.service", "lethe-worker.service", "lethe-beat.service", TARGET)
PORT = 8000


def register_commands(app: typer.Typer) -> None:
    app.command(help=f"Have systemd run the instance of this machine, as your own user. {HOME_HELP}")(install_service)


def install_service(
    *,
    show: Annotated[bool, typer.Option("--print", help="Print the units and change nothing.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Stop the service and remove its units; data stays.")
    ] = False,
    home: Home = None,
    host: Host = None,
    port: Port = None,
) -> None:
    from server.private_files import instance_settings

    set_environment(home=home, host=host, port=port)
    if remove:
        _remove()
        return
    settings = instance_settings()
    units = unit_texts(settings, code=Path(__file__).resolve().parents[2])
    if show:
        for name, text in units.items():
            typer.echo(f"# {unit_folder() / name}\n{text}")
        return
    _install(settings, units)


def unit_folder() -> Path:
    """Return where systemd looks for this user's units."""
    return Path.home() / ".config" / "systemd" / "user"


def unit_texts(settings: "Settings", *, code: Path) -> dict[str, str]:
    """Return each unit's text by its file name. code: the checkout. Raises HostFault where a program is missing."""
    from server.embedded.redis import redis_server_program

    home, python = settings.home.absolute(), sys.executable
    flock = shutil.which("flock")
    if flock is None:
        raise HostFault("flock is not installed (Debian's package util-linux has it): it keeps a second instance away")
    broker = " ".join(
        f"--{name} {value}"
        for name, value in {
            "port": "0",
            "unixsocket": _quoted(settings.redis_socket),
            "unixsocketperm": "700",
            "save": '""',
            "appendonly": "no",
            "dir": _quoted(home / "redis"),
        }.items()
    )
    environment = {
        "LETHE_HOME": str(home),
        "LETHE_PUBLIC_URL": settings.public_url or _url(settings),
        "OMP_NUM_THREADS": str(settings.worker_threads),
        "PYTHONPATH": str(code),  # of the packages, and not the folder that a service starts in
        "PYTHONSAFEPATH": "1",
    }
    common = [f"Environment={_in_quotes(f'{name}={value}')}" for name, value in environment.items()]
    common += [f"EnvironmentFile=-{str(home / 'service.env').replace('%', '%%')}", "Restart=on-failure", "RestartSec=5"]
    after = ("lethe-broker.service",)
    quiet = "--loglevel warning --without-gossip --without-mingle"
    worker = f"-m worker --concurrency {settings.worker_concurrency} {quiet}"
    # Only a worker's main process is asked to stop: it tells the others, which give their shards back at once.
    ends = ["KillMode=mixed", "TimeoutStopSec=60", "Delegate=yes"]
    run = {
        "lethe-broker.service": (
            "Lethe: wake-up messages between its processes",
            f"{flock} --nonblock {_quoted(home / 'instance.lock')} {_quoted(redis_server_program())} {broker}",
            ["Restart=on-failure", "RestartSec=5"],
        ),
        "lethe-web.service": (
            "Lethe: pages and API",
            f"{_quoted(python)} -m server --host {settings.host} --port {settings.port or PORT} --log-level warning",
            [*common, f"ExecStartPre={_quoted(python)} -m lethe.cli.main migrate"],
        ),
        "lethe-worker.service": ("Lethe: runs of submissions", f"{_quoted(python)} {worker}", [*common, *ends]),
        "lethe-beat.service": (
            "Lethe: what is done at set times",
            f"{_quoted(python)} -m worker beat --loglevel warning --schedule {_quoted(home / 'beat-schedule')}",
            common,
        ),
    }
    texts = {
        name: _service(description, command, lines, after=() if name == "lethe-broker.service" else after)
        for name, (description, command, lines) in run.items()
    }
    wants = " ".join(texts)
    texts[TARGET] = f"[Unit]\nDescription=Lethe\nWants={wants}\n\n[Install]\nWantedBy=default.target\n"
    return texts


def _service(description: str, command: str, lines: list[str], *, after: tuple[str, ...]) -> str:
    order = [f"Requires={' '.join(after)}", f"After={' '.join(after)}"] if after else []
    unit = ["[Unit]", f"Description={description}", f"PartOf={TARGET}", *order]
    return "\n".join([*unit, "", "[Service]", f"ExecStart={command}", *lines, ""])


def _quoted(value: object) -> str:
    """Return a word of a command, in which systemd expands nothing."""
    return _in_quotes(str(value).replace("$", "$$"))


def _in_quotes(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _url(settings: "Settings") -> str:
    return f"http://{settings.host}:{settings.port or PORT}"


def _install(settings: "Settings", units: dict[str, str]) -> None:
    """Write the units, make the database and the organiser's account, and start the service."""
    from server.cli.serve import log_in_lines, organiser_credentials
    from server.embedded.instance import is_running
    from server.migrate import upgrade

    if is_running(settings):
        raise HostFault(f"an instance runs in {settings.home} already: stop it, or choose another --home")
    (settings.home.absolute() / "redis").mkdir(exist_ok=True)
    settings.redis_socket.parent.mkdir(mode=0o700, exist_ok=True)
    upgrade(settings.resolved_database_url)
    organiser_credentials(settings)
    (settings.home.absolute() / "instance.json").write_text(json.dumps({"url": _url(settings)}))
    unit_folder().mkdir(parents=True, exist_ok=True)
    for name, text in units.items():
        (unit_folder() / name).write_text(text)
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", TARGET)
    typer.echo(f"Lethe serves {_url(settings)}: systemctl --user status {' '.join(units)}")
    typer.echo("It ends when you log out, unless you run once: loginctl enable-linger")
    for line in log_in_lines(settings):
        typer.echo(line)


def _remove() -> None:
    units = [unit_folder() / name for name in UNITS if (unit_folder() / name).exists()]
    if not units:
        raise HostFault(f"there is no service: {unit_folder()} has no {TARGET}")
    _systemctl("disable", "--now", TARGET, *UNITS[:-1])
    for path in units:
        path.unlink()
    _systemctl("daemon-reload")
    typer.echo("The service is removed; what the instance holds stays in its home folder.")


def _systemctl(*words: str) -> None:
    """Ask the user's systemd. Raises HostFault with what it said."""
    command = ("systemctl", "--user", *words)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise HostFault(
            "systemctl is not installed: this machine has no systemd; `lethe up` serves without it"
        ) from None
    if done.returncode:
        raise HostFault(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
