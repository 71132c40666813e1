#!/usr/bin/env python3
"""Times the Placement API of ciao-scheduler against OpenStack's own service, side by side on this machine.

    benches/placement_api.py [NODES]        1000 nodes unless given

Needs Python 3 with venv, and PyPI, from which it installs openstack-placement under target/. Builds the release programs,
simulates the nodes with ciao-launcher, gives OpenStack's service (SQLite, one thread) as many providers, and prints the median
of what the same requests take, in milliseconds, from the first byte sent to the last one received.
"""

import http.client
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASE = ROOT / "target" / "release"
VENV = ROOT / "target" / "placement-bench"
PACKAGE = "openstack-placement==16.0.0"

TOKEN = "admin"
MEM_MB, VCPUS, DISK_GB = 1 << 20, 1024, 1 << 14
ASKED = "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512"
REQUESTS = [
    ("resource_providers", "/resource_providers"),
    ("candidates, limit=1", ASKED + "&limit=1"),
    ("candidates, limit=1000", ASKED + "&limit=1000"),
]
TIMES = 11
READY_WITHIN_S = 60
PAUSE_S = 0.05

# The service on a free port, whose number it prints.
SERVER = """
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server
from placement.wsgi.api import application
class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
with make_server("127.0.0.1", 0, application, handler_class=Quiet) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
"""

CONFIGURATION = """
[DEFAULT]
log_file = {directory}/placement.log
[api]
auth_strategy = noauth2
[placement_database]
connection = sqlite:///{directory}/placement.db
sync_on_startup = True
"""


def call(port, method, path, body=None):
    """The answer's status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READY_WITHIN_S)
    headers = {"X-Auth-Token": TOKEN, "OpenStack-API-Version": "placement 1.39"}
    if body is not None:
        headers["Content-Type"] = "application/json"
        body = json.dumps(body)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    read = answer.read()
    connection.close()
    return answer.status, read


def median_ms(port, path):
    """What a request takes, after one that is not counted, and how many bytes its answer has."""
    took, length = [], 0
    for at in range(TIMES + 1):
        begun = time.perf_counter()
        status, body = call(port, "GET", path)
        if status != 200:
            sys.exit(f"GET {path}: {status}: {body.decode(errors='replace')}")
        if at > 0:
            took.append((time.perf_counter() - begun) * 1000)
        length = len(body)
    return statistics.median(took), length


def start(directory, name, command, **more):
    """A process that prints to a file of this name: the process and the file."""
    path = directory / f"{name}.log"
    with path.open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, **more), path


def line_with(started, pattern):
    """The first group of the first line that matches, of what a process prints."""
    process, path = started
    while True:
        is_over = process.poll() is not None
        found = re.search(pattern, path.read_text(), re.MULTILINE)
        if found:
            return found.group(1)
        if is_over:
            sys.exit(f"{process.args[0]} has ended: {path.read_text()}")
        time.sleep(PAUSE_S)


def openstack(directory, nodes):
    """OpenStack's service with so many providers: the process and its port."""
    if not (VENV / "bin" / "placement-manage").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([VENV / "bin" / "pip", "install", "--quiet", PACKAGE], check=True)
    (directory / "placement.conf").write_text(CONFIGURATION.format(directory=directory))
    environment = os.environ | {"OS_PLACEMENT_CONFIG_DIR": str(directory)}
    started = start(directory, "service", [VENV / "bin" / "python", "-c", SERVER], env=environment)
    port = int(line_with(started, r"^(\d+)$"))
    for at in range(nodes):
        status, body = call(port, "POST", "/resource_providers", {"name": f"node-{at}"})
        if status != 200:
            sys.exit(f"OpenStack's service refuses a provider: {status}: {body.decode()}")
        uuid = json.loads(body)["uuid"]
        totals = {"VCPU": VCPUS, "MEMORY_MB": MEM_MB, "DISK_GB": DISK_GB}
        inventories = {name: {"total": total} for name, total in totals.items()}
        path = f"/resource_providers/{uuid}/inventories"
        body = {"resource_provider_generation": 0, "inventories": inventories}
        status, body = call(port, "PUT", path, body)
        if status != 200:
            sys.exit(f"OpenStack's service refuses an inventory: {status}: {body.decode()}")
    return [started[0]], port


def ciao(directory, nodes):
    """The scheduler with so many simulated nodes: the processes and the port."""
    certificates = directory / "certificates"
    certificates.mkdir()
    command = [RELEASE / "ciao-cert", "-all", "-directory", certificates]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    tokens = directory / "tokens"
    tokens.write_text(TOKEN + "\n")
    tokens.chmod(0o600)
    anchor = ["-cacert", certificates / "CAcert-localhost.pem"]
    # fmt: off
    scheduler = start(directory, "scheduler", [
        RELEASE / "ciao-scheduler", "-cert", certificates / "cert-Scheduler-localhost.pem", *anchor,
        "-listen", "127.0.0.1:0", "-placement", "127.0.0.1:0", "-placement-tokens", tokens, "-logtostderr",
    ])
    # fmt: on
    frames = line_with(scheduler, r"listens on (\S+)$")
    port = int(line_with(scheduler, r"Placement API on 127\.0\.0\.1:(\d+)$"))
    # fmt: off
    launcher, log = start(directory, "launcher", [
        RELEASE / "ciao-launcher", "-server", frames, "-cert", certificates / "cert-CNAgent-localhost.pem", *anchor,
        "-simulate", f"mem={MEM_MB},cpus={VCPUS},disk={DISK_GB * 1024}", "-count", str(nodes),
    ])
    # fmt: on
    until = time.monotonic() + READY_WITHIN_S
    while len(json.loads(call(port, "GET", ASKED)[1]).get("provider_summaries", {})) < nodes:
        if time.monotonic() > until:
            sys.exit(f"not all of {nodes} nodes are there after {READY_WITHIN_S} s: {log.read_text()}")
        time.sleep(PAUSE_S)
    return [launcher, scheduler[0]], port


def main():
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    subprocess.run(["cargo", "build", "--release", "--locked", "--bins"], cwd=ROOT, check=True)
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, serve in [("ciao", ciao), ("openstack", openstack)]:
            own = pathlib.Path(directory) / name
            own.mkdir()
            processes, port = serve(own, nodes)
            try:
                found[name] = [median_ms(port, path) for _, path in REQUESTS]
            finally:
                for process in processes:
                    process.kill()
                    process.wait()
    print(f"{nodes} nodes; median of {TIMES}, ms (bytes of the answer)")
    print(f"{'request':<24}{'ciao-scheduler':>24}{'OpenStack, SQLite':>24}{'times':>8}")
    for (label, _), ours, theirs in zip(REQUESTS, found["ciao"], found["openstack"]):
        cells = [f"{took:.2f} ({length})" for took, length in (ours, theirs)]
        print(f"{label:<24}{cells[0]:>24}{cells[1]:>24}{theirs[0] / ours[0]:>8.0f}")


if __name__ == "__main__":
    main()
