"""Settings and limits that a process starts with: what is wrong is named once, with what is meant."""

import os
import resource
import socket
import subprocess
import sys

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.errors import HostFault, InvalidInput
from server.config import Settings, get_settings
from server.embedded.instance import _listen
from server.environment import ENOUGH_FILES, describe_wrong_values, raise_open_files_limit, unknown_variables


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("LETHE_PROT", "LETHE_PORT"),
        ("LETHE_WORKER_CONCURENCY", "LETHE_WORKER_CONCURRENCY"),
        ("lethe_databse_url", "LETHE_DATABASE_URL"),
        ("LETHE_TOKN", "LETHE_TOKEN"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_nearest_one(variable, meant):
    (said,) = unknown_variables({variable: "1"}, Settings.model_fields)
    assert said == f"{variable} is no setting and changes nothing: did you mean {meant}?"


def test_what_is_read_elsewhere_and_other_programs_variables_are_not_named():
    fine = {"LETHE_PORT": "1", "lethe_home": "/x", "LETHE_URL": "u", "LETHE_TEST_DATA": "d", "PATH": "p", "LETHES": "1"}
    assert unknown_variables(fine, Settings.model_fields) == []


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"LETHE_PORT": "abc"}, "LETHE_PORT=abc: Input should be a valid integer"),
        ({"LETHE_PORT": "70000"}, "LETHE_PORT=70000: Input should be less than or equal to 65535"),
        ({"LETHE_ENVIRONMENT": "prod"}, "LETHE_ENVIRONMENT=prod: Input should be 'embedded' or 'production'"),
        ({"LETHE_LEASE_S": "0"}, "LETHE_LEASE_S=0: Input should be greater than 0"),
        (
            {"LETHE_DATABASE_URL": "nonsense"},
            "LETHE_DATABASE_URL: must begin with sqlite://, postgresql://, postgresql+psycopg://",
        ),
        ({"LETHE_DATABASE_URL": "postgresql+psycopg://h:x/y"}, "LETHE_DATABASE_URL: is no URL such as postgresql"),
        ({"LETHE_STORAGE_URL": "nope://x"}, "LETHE_STORAGE_URL: must begin with file://, s3://"),
        ({"LETHE_REDIS_URL": "localhost:6379"}, "LETHE_REDIS_URL: must begin with redis://"),
        ({"LETHE_ENVIRONMENT": "production"}, "LETHE_ENVIRONMENT=production needs LETHE_DATABASE_URL"),
    ],
)
def test_a_wrong_value_is_one_sentence_with_its_variable(monkeypatch, variables, said):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    get_settings.cache_clear()
    with pytest.raises(InvalidInput) as found:
        get_settings()
    get_settings.cache_clear()
    assert said in found.value.detail
    assert "\n" not in found.value.detail


@pytest.mark.parametrize("module", ["server", "worker"])
def test_processes_end_with_the_sentence_and_no_traceback(module, tmp_path):
    environment = os.environ | {"LETHE_HOME": str(tmp_path / "home"), "LETHE_PORT": "x"}
    done = subprocess.run(
        [sys.executable, "-m", module], check=False, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert done.stderr.strip().startswith("error: LETHE_PORT=x: Input should be a valid integer")
    assert "Traceback" not in done.stderr


def test_a_chosen_port_that_is_taken_is_an_error_and_another_habit_is_not(monkeypatch, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(HostFault, match=f"cannot listen on 127.0.0.1: port {port} is taken"):
            _listen(Settings(port=port))
        with _listen(Settings.model_construct(_fields_set=set(), **Settings(port=port).model_dump())) as found:
            assert found.getsockname()[1] != port


@pytest.mark.parametrize("command", ["demo", "up"])
def test_commands_take_home_host_and_port(command):
    shown = CliRunner().invoke(build_app(), [command, "--help"], env={"COLUMNS": "200"}).output
    for option in ("--home", "--host", "--port"):
        assert option in shown
    refused = CliRunner().invoke(build_app(), [command, "--port", "99999"])
    assert refused.exit_code == 2


def test_back_end_that_is_gone_is_refused_with_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_SANDBOX_BACKEND", "runsc")
    with pytest.raises(ValidationError) as refused:
        Settings()
    expected = "LETHE_SANDBOX_BACKEND=runsc: Input should be 'bubblewrap' or 'plain'"
    assert describe_wrong_values(refused.value) == expected


UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [
        (1024, 20_000, 20_000),
        (1024, 1 << 20, 65_536),
        (1024, UNLIMITED, 65_536),
        (1024, 1024, None),
        (1 << 20, 1 << 20, None),
        (UNLIMITED, UNLIMITED, None),
    ],
)
def test_soft_limit_becomes_what_the_system_allows(monkeypatch, soft, hard, after):
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    raise_open_files_limit()
    assert asked == ([] if after is None else [(after, hard)])


def test_tests_have_more_files_than_most_shells_allow() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == min(hard, ENOUGH_FILES) or hard == UNLIMITED
