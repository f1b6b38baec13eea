"""What the files for operators name is there: metrics and their labels, settings, probes, commands, remedies."""

import configparser
import importlib
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Counter, Histogram
from prometheus_client.metrics import MetricWrapperBase

from server.config import Settings
from server.prometheus import router
from server.prometheus.exposition import _Instance, _Process
from server.prometheus.figures_repository import Figures
from tests.support.instance import Instance
from worker.host import prometheus as of_workers

ROOT = Path(__file__).parents[2]
RULES = [
    rule
    for group in yaml.safe_load((ROOT / "docker" / "monitoring" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
PANELS = json.loads((ROOT / "docker" / "monitoring" / "dashboard.json").read_text())["panels"]
EXPRESSIONS = [rule["expr"] for rule in RULES] + [target["expr"] for panel in PANELS for target in panel["targets"]]
OBJECTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((ROOT / "docs" / "operators" / "deploy" / "kubernetes.yaml").read_text())
)
TEMPLATES = {
    f"{one['kind']} {one['metadata']['name']}": one["spec"].get("jobTemplate", one)["spec"]["template"]
    for one in OBJECTS
    if {"template", "jobTemplate"} & one.get("spec", {}).keys()
}
CONTAINERS = [
    (name, container)
    for name, template in TEMPLATES.items()
    for container in template["spec"]["containers"]
    if "args" in container
]
KNOWN_SETTINGS = {f"LETHE_{field}".upper() for field in Settings.model_fields}
GIVEN_BY_PROMETHEUS = {"up": {"job"}}


def exposed() -> dict[str, set[str]]:
    """Return the labels of each series that a web server or a worker shows, by the series' name."""
    found = {name: set(labels) for name, labels in GIVEN_BY_PROMETHEUS.items()}
    for module in (router, of_workers):
        for metric in vars(module).values():
            if isinstance(metric, MetricWrapperBase):
                found |= dict(list_series(metric))
    figures = Figures(
        waiting_by_device={"cpu": 1},
        workers={("cpu", "active"): 1},
        overdue_s={"mail": 0.0},
        upkeep_age_s={"sweep": 1.0},
    )
    for family in (*_Instance(figures).collect(), *_Process(0.0, {"home": 1.0}, {"database": True}).collect()):
        found[family.name] = {label for sample in family.samples for label in sample.labels}
    return found


def list_series(metric: MetricWrapperBase) -> Iterator[tuple[str, set[str]]]:
    labels = set(metric._labelnames)
    if isinstance(metric, Counter):
        yield f"{metric._name}_total", labels
    elif isinstance(metric, Histogram):
        yield f"{metric._name}_bucket", labels | {"le"}
        yield from ((f"{metric._name}_{end}", labels) for end in ("count", "sum"))


def test_expressions_name_series_and_labels_that_are_shown() -> None:
    known = exposed()
    for expression in EXPRESSIONS:
        named = re.findall(r"\b(lethe_\w+|up)\b(?:\{([^}]*)\})?", expression)
        assert named, expression
        grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
        for series, selector in named:
            assert series in known
            assert grouped | set(re.findall(r"(\w+)\s*=", selector)) <= known[series], expression


def test_figures_of_the_instance_are_in_its_answer(server: Instance) -> None:
    shown = set(re.findall(r"^# TYPE (lethe_\w+) ", server.client.get("/metrics").text, flags=re.MULTILINE))
    figures = {family.name for family in _Instance(Figures()).collect()}
    assert figures <= shown


def test_each_alert_has_a_section_of_the_runbook_with_a_command() -> None:
    text = (ROOT / "docs" / "operators" / "runbook.md").read_text()
    sections = {
        name: body for name, _, body in (part.partition("\n") for part in re.split(r"^## ", text, flags=re.M)[1:])
    }
    assert sections.keys() == {rule["alert"] for rule in RULES}
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"docs/operators/runbook.md#{rule['alert'].lower()}"
        assert re.search(r"`(lethe|docker compose|curl|psql|dmesg) ", sections[rule["alert"]]), (
            "a command to begin with"
        )


def test_each_alert_fires_and_ends() -> None:
    """By promtool (Debian: package prometheus), as far as it is there; that each has a test is checked in any case."""
    tests = (ROOT / "docker" / "monitoring" / "alerts_test.yml").read_text()
    values = re.findall(r'alertname="(\w+)".*?value: (\d)', tests, flags=re.DOTALL)
    assert {(rule["alert"], value) for rule in RULES for value in "01"} <= set(values)
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on PATH (Debian: package prometheus)")
    arguments = [promtool, "test", "rules", str(ROOT / "docker" / "monitoring" / "alerts_test.yml")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_containers_run_something_of_the_project() -> None:
    for _, container in CONTAINERS:
        program, *arguments = container["args"]
        check_command(program, arguments)
        own = {each["name"] for each in container["env"]}
        assert own <= KNOWN_SETTINGS
        assert "LETHE_ENVIRONMENT" in own
    text = (ROOT / "docs" / "operators" / "deploy" / "kubernetes.yaml").read_text()
    assert set(re.findall(r"LETHE_[A-Z_]+[A-Z]", " ".join(re.findall(r"#(.*)", text)))) <= KNOWN_SETTINGS


def check_command(program: str, arguments: list[str]) -> None:
    if program == "python":
        if arguments[0] == "-m":
            assert importlib.util.find_spec(f"{arguments[1]}.__main__") is not None
        else:
            compile(arguments[1], "command", "exec")
        return
    assert program in {entry.name for entry in entry_points(group="console_scripts")}
    if "--factory" in arguments:
        module, _, factory = arguments[arguments.index("--factory") + 1].partition(":")
        assert callable(getattr(importlib.import_module(module), factory))


def test_probes_ask_what_the_server_answers(server: Instance) -> None:
    probes = [
        container[probe]["httpGet"]
        for _, container in CONTAINERS
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
        if "httpGet" in container.get(probe, {})
    ]
    assert {probe["path"] for probe in probes} == {"/healthz", "/readyz"}
    for probe in probes:
        # As a probe asks: by the pod's address, and with no other header.
        answer = server.client.get(probe["path"], headers={"Host": "10.0.0.7:8000"})
        assert answer.status_code in (200, 503)
        assert answer.headers["content-type"].startswith("application/")


PODS = {name.split()[1]: template["spec"] for name, template in TEMPLATES.items()}


@pytest.mark.parametrize("name", PODS)
def test_pod_has_no_needless_power(name: str) -> None:
    """As a container of docker-compose.yml: an ordinary user, a read-only root, no capability, a limit of memory."""
    pod = PODS[name]
    assert pod["automountServiceAccountToken"] is False
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
    for container in pod["containers"]:
        own = container["securityContext"]
        assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
    mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    [container] = [one for one in pod["containers"] if "args" in one]
    [home] = [each["value"] for each in container["env"] if each["name"] == "LETHE_HOME"]
    # Not a volume itself: those are the group's, and others than its user may enter no home.
    assert {str(Path(home).parent), "/tmp"} <= {mount["mountPath"] for mount in container["volumeMounts"]}


def test_pod_of_the_worker_can_make_sandboxes() -> None:
    """In a user namespace, with what bubblewrap mounts unmasked, and neither the runtime's filter nor its AppArmor."""
    pod = PODS["lethe-worker-cuda"]
    assert pod["hostUsers"] is False
    own = pod["containers"][0]["securityContext"]
    assert own["procMount"] == "Unmasked"
    assert own["seccompProfile"] == {"type": "Localhost", "localhostProfile": "lethe/seccomp-worker.json"}
    assert own["appArmorProfile"] == {"type": "Unconfined"}
    assert {name for name, other in PODS.items() if "procMount" in other["containers"][0]["securityContext"]} == {
        "lethe-worker-cuda"
    }


def test_pods_are_the_processes_of_compose() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    takes = {service["environment"].get("LETHE_WORKER_TAKES") for service in services.values() if "build" in service}
    here = {each["value"] for _, one in CONTAINERS for each in one["env"] if each["name"] == "LETHE_WORKER_TAKES"}
    assert here == takes - {None}
    roles = {"migrate", "web", "messages", "beat", "backup", "worker-cuda"}
    assert set(PODS) == {f"lethe-{role}" for role in roles}


def test_service_and_scaler_point_at_what_there_is() -> None:
    by_kind = {(one["kind"], one["metadata"]["name"]): one for one in OBJECTS}
    for (kind, _), one in by_kind.items():
        if kind == "Service":
            labels = [
                each["spec"]["template"]["metadata"]["labels"] for each in OBJECTS if each["kind"] == "Deployment"
            ]
            assert one["spec"]["selector"] in labels
        if kind == "HorizontalPodAutoscaler":
            target = one["spec"]["scaleTargetRef"]
            assert (target["kind"], target["name"]) in by_kind
            assert {metric["external"]["metric"]["name"] for metric in one["spec"]["metrics"]} <= exposed().keys()
        if kind == "Deployment":
            labels = one["spec"]["template"]["metadata"]["labels"]
            assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_policies_name_pods_there_are_and_none_is_left_out() -> None:
    apps = {f"lethe-{role}" for role in ("web", "messages", "beat", "backup", "worker-cuda")}
    named: list[str] = []
    for one in OBJECTS:
        if one["kind"] == "NetworkPolicy":
            selector = one["spec"]["podSelector"]
            named += selector.get("matchLabels", {}).values()
            named += [value for each in selector.get("matchExpressions", []) for value in each["values"]]
        if one["kind"] == "PodDisruptionBudget":
            assert one["spec"]["selector"]["matchLabels"]["app"] in apps
    assert sorted(named) == sorted(apps)


def test_unit_of_systemd_starts_a_worker_with_settings_there_are() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    text = (ROOT / "docs" / "operators" / "deploy" / "lethe-worker.service").read_text()
    unit.read_string(text)
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    check_command(Path(program).name, arguments)
    assert service["KillMode"] == "mixed"  # docs/operators/workers.md: the main process alone is signalled
    assert set(re.findall(r"Environment=(LETHE_\w+)=", text)) <= KNOWN_SETTINGS
