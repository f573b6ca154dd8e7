"""What is in `deploy/`: each file is what it should be, and names only metrics that a real server has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

import tstreams
from tstreams.cli.sources import resolve
from tstreams.config import SETTINGS

from .discovery.doors import door, wait_for

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\btstreams_[a-z0-9_]+")
SERIES = re.compile(r"^(\w+)(?:\{| )", re.MULTILINE)

pytestmark = pytest.mark.xdist_group("cli-operating")


HOW = {"promtool": ": make promtool, or the package prometheus of Debian"}


def tool(name: str) -> str:
    """A tool of others, beside this interpreter or in the path; without it the test is skipped."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed{HOW.get(name, '')}")
    return found


def passes(*words: str | Path, text: str = "") -> str:
    """What a tool says that must find nothing wrong."""
    done = subprocess.run(words, input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of /metrics of a server that something was written to and read from."""
    folder = tmp_path_factory.mktemp("deploy")
    with door(folder / "data") as made, tstreams.connect(made.tcp) as client:
        client.create_stream("s")
        with client.producer("s") as producer, client.consumer("s", name="c") as consumer:
            producer.instant([b"one"])
            assert consumer.get(partition=0, timeout=30) is not None
            consumer.checkpoint()

            def text() -> str:
                found = made("GET", "/metrics").body.decode()
                seen = ('stream="s"', 'consumer="c"', "tstreams_http_requests_total{")
                return found if all(it in found for it in seen) else ""

            found: str = wait_for(text)
            return found


@pytest.fixture(scope="module")
def names(metrics: str) -> set[str]:
    return set(SERIES.findall(metrics))


# Prometheus.


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def test_alerts_name_only_metrics_that_there_are(names: set[str]) -> None:
    used = {name for rule in alerts() for name in METRIC.findall(rule["expr"])}
    assert len(used) > 10
    assert used - names == set()


def test_each_alert_says_what_to_do_and_is_explained() -> None:
    page = (ROOT / "docs" / "operating" / "monitor.md").read_text()
    for rule in alerts():
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["annotations"]["description"], rule["alert"]
        assert f"`{rule['alert']}`" in page


def test_promtool_finds_nothing_wrong_with_the_rules_and_the_alerts_fire() -> None:
    promtool = tool("promtool")
    folder = DEPLOY / "prometheus"
    passes(promtool, "check", "rules", folder / "alerts.yml")
    passes(promtool, "check", "config", folder / "prometheus.yml")
    passes(promtool, "test", "rules", folder / "alerts.test.yml")


def test_promtool_finds_nothing_wrong_with_the_metrics(metrics: str) -> None:
    assert passes(tool("promtool"), "check", "metrics", text=metrics) == ""


def test_each_metric_is_explained(metrics: str) -> None:
    page = (ROOT / "docs" / "operating" / "monitor.md").read_text()
    there = set(re.findall(r"^# TYPE (tstreams_\w+) ", metrics, re.MULTILINE))
    assert len(there) > 50
    explained = set(METRIC.findall(page))
    assert there - explained == set()


# Grafana.


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "tstreams.json").read_text())
    return found


def asked() -> list[str]:
    """What the panels ask Prometheus."""
    panels = [it for it in board()["panels"] if it["type"] != "row"]
    return [target["expr"] for it in panels for target in it["targets"]]


def test_the_dashboard_names_only_metrics_that_there_are(names: set[str]) -> None:
    used = {name for it in asked() for name in METRIC.findall(it)}
    assert len(used) > 40
    assert used - names == set()


def test_promtool_finds_nothing_wrong_with_what_the_dashboard_asks(tmp_path: Path) -> None:
    promtool = tool("promtool")
    plain = [it.replace("$__rate_interval", "5m").replace("$instance", ".*") for it in asked()]
    rules = [{"record": f"panel:{at}", "expr": it} for at, it in enumerate(plain)]
    file = tmp_path / "asked.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    passes(promtool, "check", "rules", "--lint=none", file)


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = board()["panels"]
    assert len({it["id"] for it in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_grafana_finds_its_dashboard_where_compose_puts_it() -> None:
    provided = yaml.safe_load(
        (DEPLOY / "grafana/provisioning/dashboards/tstreams.yaml").read_text()
    )
    folder = provided["providers"][0]["options"]["path"]
    compose = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
    assert any(f":{folder}/" in it for it in compose["services"]["grafana"]["volumes"])


# systemd.


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    text = (DEPLOY / "systemd" / "tstreams.service").read_text()
    command = "/opt/tstreams/bin/tstreams"
    assert text.count(command) == 1
    unit = tmp_path / "tstreams.service"
    unit.write_text(text.replace(command, "/bin/true"))
    assert "tstreams.service" not in passes(analyze, "verify", unit)


def test_the_unit_is_hardened_and_serves_a_good_configuration() -> None:
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((DEPLOY / "systemd" / "tstreams.service").read_text())
    service = dict(unit["Service"])
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices"):
        assert service[name] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["User"] == "tstreams"
    path = DEPLOY / "systemd" / "tstreams.toml"
    found = resolve({}, {}, tomllib.loads(path.read_text()), path)
    assert (found.problems, found.warnings) == ([], [])
    assert str(found.values["data"]).startswith(f"/var/lib/{service['StateDirectory']}/")
    assert int(service["LimitNOFILE"]) > found.values["clients_max"] + 64 + 128


# Containers.


def test_hadolint_finds_nothing_wrong_with_the_dockerfile() -> None:
    passes(tool("hadolint"), DEPLOY / "docker" / "Dockerfile")


def test_the_dockerfile_copies_only_what_there_is() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    copied = [
        word
        for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)
        for word in line.split()[:-1]
    ]
    assert "src" in copied
    ignored = (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignored
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = re.findall(r"'\.\[([a-z,]+)\]'", text)
    assert set(wanted.split(",")) <= set(extras["optional-dependencies"])


def test_compose_takes_the_file() -> None:
    docker = tool("docker")
    has = subprocess.run([docker, "compose", "version"], capture_output=True, check=False)
    if has.returncode != 0:
        pytest.skip("docker has no compose: the package docker-compose-plugin")
    file = DEPLOY / "docker" / "compose.yaml"
    passes(docker, "compose", "--file", file, "--profile", "monitoring", "config", "--quiet")


def test_compose_publishes_only_on_this_machine_and_sets_only_what_there_is() -> None:
    compose = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        assert all(it.startswith("127.0.0.1:") for it in service["ports"]), name
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / "docker" / source).exists(), mount
            else:
                assert source in compose["volumes"], mount
    served = compose["services"]["tstreams"]
    assert (DEPLOY / "docker" / served["build"]["context"]).resolve() == ROOT
    assert (ROOT / served["build"]["dockerfile"]).exists()
    environment = {"TSTREAMS_DATA": "data", **served["environment"]}
    assert {it.removeprefix("TSTREAMS_").lower() for it in environment} <= set(SETTINGS)
    assert resolve({}, environment).problems == []
