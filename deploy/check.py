"""Checks what is in this directory as far as that is possible without a cluster.

- The Kubernetes base is rendered by kustomize (kubectl), and each object is validated against the schema.
- What has to fit together does: labels, ports, names, and the configuration, which `bowline check` reads.
- The alert rules pass promtool, and their tests.
- Queries of rules, dashboard and documentation use metrics and labels that the code declares. `docs/reference.md`
  lists those, and a test of the command line fails if it does not.

Usage: check.py BOWLINE
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BASE = HERE / "kubernetes"
# What the Secret has to hold; see docs/guides/kubernetes.md.
SECRETS = ("BOWLINE_SEAL_KEYS", "PEERS_SECRET", "REDIS_PASSWORD", "TEAM_KEY")
# Labels that Prometheus adds.
ADDED = {"instance", "job", "le", "namespace", "pod"}


class Failure(Exception):
    """Something that fails the run and needs no traceback."""


def check(truth, what):
    if not truth:
        raise Failure(what)


def said(what):
    print(f"  ok {what}", flush=True)


def run(*command, **options):
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    check(done.returncode == 0, f"{' '.join(words)}\n{done.stdout}")
    return done.stdout


def objects():
    """What a cluster would get."""
    if shutil.which("kubectl"):
        rendered = list(yaml.safe_load_all(run("kubectl", "kustomize", BASE)))
        said(f"kustomize renders {len(rendered)} objects")
        return rendered
    print("!! no kubectl: the Kubernetes base is NOT rendered, only its files are read", flush=True)
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    return [one for name in listed for one in yaml.safe_load_all((BASE / name).read_text())]


def kubernetes(bowline):
    found = objects()
    version = kubernetes_validate.latest_version()
    for one in found:
        try:
            kubernetes_validate.validate(one, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            raise Failure(f"{one['kind']} {one['metadata']['name']}: {error.message}") from None
    said(f"all are valid for Kubernetes {version}")
    by_kind = {(one["kind"], one["metadata"]["name"]): one for one in found}
    deployment = by_kind["Deployment", "bowline"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    selectors = {
        "the Deployment": deployment["selector"]["matchLabels"],
        "the Service": by_kind["Service", "bowline"]["spec"]["selector"],
        "the PodDisruptionBudget": by_kind["PodDisruptionBudget", "bowline"]["spec"]["selector"]["matchLabels"],
        "the NetworkPolicy": by_kind["NetworkPolicy", "bowline"]["spec"]["podSelector"]["matchLabels"],
    }
    for name, selector in selectors.items():
        check(selector.items() <= labels.items(), f"{name} selects no pod: {selector}")
    check(by_kind["Service", "mcp-server"]["spec"]["clusterIP"] == "None", "mcp-server is not headless")
    [container] = deployment["template"]["spec"]["containers"]
    ports(bowline, by_kind, container)


def ports(bowline, by_kind, container):
    """The configuration, the pod, the Service and the policy name the same ports."""
    declared = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        check(container[probe]["httpGet"]["port"] == "admin", f"{probe} asks another port")
    service = by_kind["Service", "bowline"]["spec"]["ports"]
    check([port["targetPort"] for port in service] == ["mcp"], "the Service offers more than MCP")
    policy = by_kind["NetworkPolicy", "bowline"]["spec"]
    allowed = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    check(allowed == set(declared.values()), f"the policy lets {allowed} in")
    text = (BASE / "bowline.toml").read_text()
    secrets = dict.fromkeys(SECRETS, "0123456789abcdef0123456789abcdef")
    secrets["BOWLINE_SEAL_KEYS"] = run(bowline, "keygen").strip()
    variables = {one["name"] for one in container["env"]} | secrets.keys()
    used = set(re.findall(r"\$\{(\w+)\}", text))
    check(used <= variables, f"nobody sets {used - variables}")
    env = {"PATH": os.environ["PATH"], "POD_IP": "10.0.0.7", "POD_NAMESPACE": "default", **secrets}
    understood = run(bowline, "check", "--config", BASE / "bowline.toml", env=env)
    for port in declared.values():
        check(f":{port}" in understood, f"the configuration does not use port {port}:\n{understood}")
    said("labels, ports and variables fit, and the configuration is understood")


def alerts():
    if not shutil.which("promtool"):
        print("!! no promtool: the alert rules are NOT checked", flush=True)
        return
    here = HERE / "monitoring"
    run("promtool", "check", "rules", "alerts.yaml", cwd=here)
    run("promtool", "test", "rules", "alerts.test.yaml", cwd=here)
    said("promtool: the alert rules, and their tests")


def catalog():
    """Every metric, with its labels; a histogram is three."""
    page = (ROOT / "docs/reference.md").read_text()
    section = page.split("<!-- generated: metrics -->")[1].split("<!-- end -->")[0]
    metrics = {}
    for name, kind, labels in re.findall(r"\| `(bowline_\w+)` \| (\w+) \| ([^|]*)\|", section):
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        metrics |= dict.fromkeys((name + end for end in ends), set(re.findall(r"`(\w+)`", labels)))
    check(len(metrics) > 20, "docs/reference.md has no metrics")
    return metrics


def judge(query, metrics, where):
    """Fails on a metric or a label that there is not."""
    names = set(re.findall(r"\bbowline_\w+", query))
    check(names, f"{where}: no metric in {query}")
    check(names <= metrics.keys(), f"{where}: there is no {names - metrics.keys()}")
    matched = re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", query)
    grouped = [word.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for word in group.split(",")]
    known = set.union(*(metrics[name] for name in names)) | ADDED
    check({*matched, *grouped} <= known, f"{where}: labels {({*matched, *grouped}) - known} in {query}")


def queries():
    metrics = catalog()
    rules = yaml.safe_load((HERE / "monitoring/alerts.yaml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    for rule in alerts:
        judge(rule["expr"], metrics, rule["alert"])
    dashboard = json.loads((HERE / "monitoring/dashboard.json").read_text())
    panels = dashboard["panels"]
    for panel in panels:
        for target in panel["targets"]:
            judge(target["expr"], metrics, panel["title"])
    check(len({panel["id"] for panel in panels}) == len(panels), "two panels have one id")
    guide = (ROOT / "docs/guides/operations.md").read_text()
    table = guide.split("Useful alerts:")[1].split("\n## ")[0]
    shown = [text for text in re.findall(r"`([^`]+)`", table) if "bowline_" in text]
    for text in shown:
        judge(text, metrics, "operations.md")
    drawn = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in metrics} - {"bowline_build"}
    missing = sorted(name for name in bases if name not in drawn)
    check(not missing, f"no panel shows {missing}")
    said(f"{len(alerts)} rules, {len(panels)} panels and {len(shown)} documented queries use declared metrics")


def main():
    kubernetes(Path(sys.argv[1]).resolve())
    alerts()
    queries()


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"failed: {failure}")
