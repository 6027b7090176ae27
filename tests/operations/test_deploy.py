"""What deploys and watches mcpd: the chart renders to what it promises, alerts and dashboard speak of what there is.

Helm and a parser of PromQL come from PyPI. `promtool` does not: ``make pytest`` takes it from Debian's package.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from mcpd import Settings
from tests.harness.process import process
from tests.operations.pages import Page
from tests.operations.promql import Reader

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "mcpd"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "mcpd.json"
NAMED = re.compile(r"\$labels\.(\w+)|\{\{\s*(\w+)\s*\}\}")
REPLICAS = ["replicas=3", "redis.urlSecret=redis", "stateKeys.secret=seal"]


# ----- Alerts and dashboard


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def targets() -> list[dict[str, Any]]:
    return [target for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel.get("targets", ())]


def labels_in(template: str) -> set[str]:
    """The labels that an annotation or a legend wants to show."""
    return {name for names in NAMED.findall(template) for name in names if name}


async def test_alerts_and_dashboard_speak_of_what_a_running_server_counts():
    """Of each expression: its metrics, labels and their values are there, its sides match, and so does its legend."""
    with process("tests.operations.logging_app:server", allow_traceback=True) as served:
        session = await served.initialize()
        await session.call("fail", {"text": "x"})
        await session.post("no/method")
        page = Page((await served.request("GET", "/metrics")).body.decode())
    reader = Reader(page)
    for rule in rules():
        if "record" in rule:
            reader.record(rule["record"], rule["expr"])
        else:
            assert labels_in(" ".join(rule["annotations"].values())) <= reader.read(rule["expr"]), rule["alert"]
    for target in targets():
        assert labels_in(target.get("legendFormat", "")) <= reader.read(target["expr"]), target["expr"]
    from tests.operations.test_metrics import NAMES

    ours = {name for name in NAMES if not name.endswith(("_bucket", "_count", "_sum"))}
    assert ours <= reader.named, "every metric of ours is on the dashboard or in an alert"


def test_the_alerts_of_the_report_are_there():
    """Memory by session, the store, refusals: what would have told the author of the report on the first day."""
    alerts = {rule["alert"]: rule for rule in rules() if "alert" in rule}
    assert {"McpdMemoryGrowsWithSessions", "McpdStoreDown", "McpdSessionsRejected"} <= alerts.keys()
    for name, rule in alerts.items():
        assert rule["labels"]["severity"] in {"warning", "critical"}, name
        assert rule["annotations"]["summary"], name


PAST = """
rule_files: [alerts.yml]
evaluation_interval: 1m
tests:
  # The report's own figures: 12.4 MiB and 1300 sessions a day, for ever.
  - interval: 1m
    input_series:
      - series: 'process_resident_memory_bytes{job="mcpd", instance="a"}'
        values: '20000000+9030x1440'
      - series: 'mcpd_sessions_created_total{job="mcpd", instance="a"}'
        values: '0+0.9028x1440'
      - series: 'mcpd_store_up{job="mcpd", instance="a"}'
        values: '1x720 0x720'
      - series: 'mcpd_sessions_rejected_total{job="mcpd", instance="a", reason="full"}'
        values: '0+1x1440'
      # The same sessions, and memory that only moves.
      - series: 'process_resident_memory_bytes{job="mcpd", instance="b"}'
        values: '40000000 40100000 40050000 40000000+0x1437'
      - series: 'mcpd_sessions_created_total{job="mcpd", instance="b"}'
        values: '0+0.9028x1440'
      - series: 'mcpd_store_up{job="mcpd", instance="b"}'
        values: '1x1440'
      - series: 'mcpd_sessions_rejected_total{job="mcpd", instance="b", reason="full"}'
        values: '0x1440'
    promql_expr_test:
      - {eval_time: 16h, expr: 'count by (alertname, instance) (ALERTS{alertstate="firing"})', exp_samples: [
          {labels: '{alertname="McpdMemoryGrowsWithSessions", instance="a"}', value: 1},
          {labels: '{alertname="McpdStoreDown", instance="a"}', value: 1},
          {labels: '{alertname="McpdSessionsRejected", instance="a"}', value: 1}]}
"""


def test_promtool_takes_the_alerts_and_they_fire_on_the_reports_own_figures(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    shutil.copy(ALERTS, tmp_path)
    (tmp_path / "past.yml").write_text(PAST)
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "past.yml"]):
        done = subprocess.run([promtool, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


# ----- The chart


def helm(command: str, *values: str, fails: bool = False) -> Any:
    pytest.importorskip("helm_python", reason="helm-python-sdk is not installed; make does it where there is a wheel")
    program = [sys.executable, "-m", "tests.operations.chart", command, str(CHART), ",".join(values)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else json.loads(done.stdout)


def render(*values: str) -> dict[str, Any]:
    """The objects by kind, of which the services are two."""
    objects: dict[str, Any] = {}
    for name, text in helm("render", *values).items():
        for found in yaml.safe_load_all(text) if name.endswith(".yaml") else ():
            if found is not None:
                services = found["metadata"]["name"] == "r-mcpd-metrics" and found["kind"] == "Service"
                objects["MetricsService" if services else found["kind"]] = found
    return objects


def test_the_chart_is_without_fault():
    report = helm("lint", *REPLICAS, "autoscaling.enabled=true", "serviceMonitor.enabled=true")
    assert report["total_charts_linted"] == 1
    assert not report["errors"]
    assert [message for message in report["messages"] if message["severity"] > 1] == []


def test_alone_it_runs_safely_with_probes_and_bounds():
    objects = render()
    assert set(objects) == {"Deployment", "Service", "MetricsService", "ServiceAccount", "NetworkPolicy"}
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == container["startupProbe"]["httpGet"]["path"] == "/health"
    assert container["resources"]["limits"]["memory"] == "256Mi"
    assert objects["Service"]["spec"]["sessionAffinity"] == "None"
    # It is not killed while it drains.
    drain = next(each["value"] for each in container["env"] if each["name"] == "MCPD_DRAIN_TIMEOUT")
    assert pod["terminationGracePeriodSeconds"] > float(drain.removesuffix("s")) + 3
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for name in ("Service", "MetricsService"):
        assert objects[name]["spec"]["ports"][0]["targetPort"] in ports
        assert objects[name]["spec"]["selector"].items() <= _labels(objects).items()
    assert objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"].items() <= _labels(objects).items()


def test_what_it_tells_mcpd_are_settings_mcpd_has():
    objects = render(*REPLICAS, "allowedOrigins={https://a.example}")
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    fields = {field.name for field in msgspec.structs.fields(Settings)} | {"log_level", "log_format"}
    names = {each["name"].removeprefix("MCPD_").lower() for each in container["env"]}
    assert names <= fields
    assert {"store", "state_keys", "metrics_port", "allowed_host", "allowed_origin"} <= names
    given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    assert "r-mcpd.n.svc" in given["MCPD_ALLOWED_HOST"].split(",")
    secret = next(each["valueFrom"]["secretKeyRef"] for each in container["env"] if each["name"] == "MCPD_STORE")
    assert secret == {"name": "redis", "key": "url"}


def test_several_replicas_share_a_store_and_stay_while_nodes_are_drained():
    objects = render(*REPLICAS)
    assert objects["Deployment"]["spec"]["replicas"] == 3
    assert objects["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"].items() <= _labels(objects).items()
    assert "stateKeys.secret" in helm("render", "replicas=3", "redis.urlSecret=redis", fails=True)
    assert "redis.urlSecret" in helm("render", "autoscaling.enabled=true", fails=True)


def test_it_scales_and_is_scraped_when_told():
    objects = render(*REPLICAS, "autoscaling.enabled=true", "serviceMonitor.enabled=true")
    assert "replicas" not in objects["Deployment"]["spec"]
    scaler = objects["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == objects["Deployment"]["metadata"]["name"]
    assert scaler["metrics"][0]["resource"]["target"]["averageUtilization"] == 70
    wanted = objects["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    labels = objects["MetricsService"]["metadata"]["labels"]
    assert wanted.items() <= labels.items()
    assert not wanted.items() <= objects["Service"]["metadata"]["labels"].items()


def test_debug_pages_are_for_port_forward_alone():
    objects = render("debugEndpoints=true")
    assert "MetricsService" not in objects
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "MCPD_DEBUG_ENDPOINTS", "value": "true"} in container["env"]
    assert container["readinessProbe"]["httpGet"]["port"] == "http", "the metrics port is on loopback then"


def _labels(objects: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    return labels
