#!/usr/bin/env python3
"""Many short jobs here and in HyperQueue, on the same machine, in turn: jobs a second, processor time, memory.

    benches/beside_hyperqueue.py PATH/TO/hq
    benches/beside_hyperqueue.py PATH/TO/hq --jobs 1000 --rounds 1 --kind here --kind HyperQueue --case 'true:32'

HyperQueue is built outside of this repository, from its public source. Each run has a fresh server and one fresh worker.
Both keep what a job writes, in files. HyperQueue keeps nothing else on disk unless it is started with a journal, which is a
run of its own here; this scheduler has every end on record, synced. In a case JOB:SLOTS so many run at a time.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
# Longest wait for a program to be ready, in seconds.
READY = 30


def cpu_s(pid, children):
    """Processor time of a process, with that of the children it has waited for if so asked, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11 : 15 if children else 13])) / TICKS


def peak_mib(pid):
    """The most resident memory that a process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def anonymous_mib(root, job):
    """Memory of its own that a worker holds now together with all below it but the jobs themselves."""
    parents, held = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            status = Path(f"/proc/{entry}/status").read_text()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        parents[int(entry)] = int(fields["PPid"])
        if fields["Name"].strip() != job:
            held[int(entry)] = int(fields.get("RssAnon", "0").split()[0])

    def is_below(pid):
        while pid > 1 and pid != root:
            pid = parents.get(pid, 0)
        return pid == root

    return sum(kib for pid, kib in held.items() if is_below(pid)) / 1024


def until(what, condition):
    deadline = time.monotonic() + READY
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"{what} is not ready")
        time.sleep(0.05)


class Cluster:
    """A server and a worker, and what they took from the submission on."""

    def __init__(self, work):
        self.work = work
        self.log = open(work / "log", "wb")
        self.server = self.worker = None

    def spawn(self, *args, env=None):
        return subprocess.Popen(args, stdout=self.log, stderr=self.log, env=env, cwd=self.work)

    def measure(self, job, jobs, command):
        """Runs `command`, which returns once all jobs have ended."""
        before = cpu_s(self.server.pid, False), cpu_s(self.worker.pid, True)
        begun, held, looked = time.monotonic(), 0.0, time.monotonic()
        client = self.spawn(*command, env=self.env)
        while client.poll() is None:
            time.sleep(0.01)
            if time.monotonic() > looked + 2:
                held = max(held, anonymous_mib(self.worker.pid, job))
                looked = time.monotonic()
        took = time.monotonic() - begun
        if client.returncode != 0:
            sys.exit(f"{command[0]} ended with {client.returncode}: {(self.work / 'log').read_text()[-2000:]}")
        return {
            "jobs/s": jobs / took,
            "server µs/job": (cpu_s(self.server.pid, False) - before[0]) * 1e6 / jobs,
            "worker µs/job": (cpu_s(self.worker.pid, True) - before[1]) * 1e6 / jobs,
            "server MiB": peak_mib(self.server.pid),
            "worker MiB": peak_mib(self.worker.pid),
            "worker and its helpers, MiB": held,
        }

    def close(self):
        for process in (self.worker, self.server):
            if process is not None:
                process.terminate()
                process.wait()
        self.log.close()


class Here(Cluster):
    """ciao-scheduler and ciao-launcher."""

    def __init__(self, work, programs, slots):
        super().__init__(work)
        self.programs = programs
        self.env = dict(os.environ, CIAO_CERTS=str(work / "certs"))
        subprocess.run([programs / "ciao-cert", "-all", "-directory", "certs"], cwd=work, check=True, stdout=self.log)
        ca = ["--cacert", "certs/CAcert-localhost.pem"]
        self.server = self.spawn(
            programs / "ciao-scheduler", "--cert", "certs/cert-Scheduler-localhost.pem", *ca,
            "--listen", "127.0.0.1:0", "--state-dir", "state/scheduler", "--cpu-ratio", "1", "--logtostderr",
        )  # fmt: skip
        until("ciao-scheduler", lambda: "listens on" in (work / "log").read_text())
        address = (work / "log").read_text().split("listens on ")[1].split()[0]
        self.env["CIAO_SERVER"] = address
        self.worker = self.spawn(
            programs / "ciao-launcher", "--cert", "certs/cert-CNAgent-localhost.pem", *ca, "--server", address,
            "--state-dir", "state/node", "--hostname", "node", "--mem", str(slots * 32), "--cpus", str(slots),
        )  # fmt: skip
        until("ciao-launcher", lambda: "READY" in self.ctl("nodes"))

    def ctl(self, *args):
        run = subprocess.run([self.programs / "ciaoctl", *args], env=self.env, capture_output=True, text=True)
        return run.stdout

    def run(self, job, jobs):
        command = [self.programs / "ciaoctl", "run", "--array", f"0-{jobs - 1}", "--name", "many", "--mem", "16"]
        return self.measure(job.split()[0], jobs, [*command, "--cpus", "1", "--wait", "--", *job.split()])


class HyperQueue(Cluster):
    """A server and a worker of HyperQueue."""

    def __init__(self, work, hq, slots, journal):
        super().__init__(work)
        self.hq = hq
        self.env = dict(os.environ, HQ_SERVER_DIR=str(work / "server"))
        journal = ["--journal", "journal"] if journal else []
        self.server = self.spawn(hq, "server", "start", *journal, env=self.env)
        until("the server", lambda: self.ctl("server", "info"))
        self.worker = self.spawn(hq, "worker", "start", "--cpus", str(slots), env=self.env)
        until("the worker", lambda: "RUNNING" in self.ctl("worker", "list"))

    def ctl(self, *args):
        run = subprocess.run([self.hq, *args], env=self.env, capture_output=True, text=True, cwd=self.work)
        return run.stdout if run.returncode == 0 else ""

    def run(self, job, jobs):
        command = [self.hq, "submit", "--array", f"0-{jobs - 1}", "--cpus", "1", "--wait", "--", *job.split()]
        return self.measure(job.split()[0], jobs, command)


def one(kind, options, job, slots):
    """One run with a fresh server and worker."""
    work = Path(tempfile.mkdtemp())
    cluster = None
    try:
        if kind == "here":
            cluster = Here(work, options.bin.resolve(), slots)
        else:
            cluster = HyperQueue(work, options.hq.resolve(), slots, kind != "HyperQueue")
        return cluster.run(job, options.jobs)
    finally:
        if cluster is not None:
            cluster.close()
        shutil.rmtree(work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hq", type=Path, help="HyperQueue's program")
    parser.add_argument("--bin", type=Path, default=Path("target/release"), help="where the programs of this repository are")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", action="append", help="JOB:SLOTS; may be given more than once")
    parser.add_argument("--kind", action="append", help="here, HyperQueue or 'HyperQueue, journal'")
    options = parser.parse_args()
    kinds = options.kind or ["here", "HyperQueue", "HyperQueue, journal"]
    for case in options.case or ["true:32", "sleep 1:200"]:
        job, slots = case.rsplit(":", 1)
        runs = {kind: [] for kind in kinds}
        for _ in range(options.rounds):
            for kind in kinds:
                runs[kind].append(one(kind, options, job, int(slots)))
                load = os.getloadavg()[0]
                print(f"{job}, {slots} at a time, {kind}, load {load:.1f}:", runs[kind][-1], file=sys.stderr, flush=True)
        columns = list(runs[kinds[0]][0])
        print(f"\n{options.jobs} × `{job}`, {slots} at a time\n\n| | {' | '.join(columns)} |\n| --- |{' --: |' * len(columns)}")
        for kind, rows in runs.items():
            medians = (statistics.median(row[column] for row in rows) for column in columns)
            print(f"| {kind} |", " | ".join(f"{value:,.0f}" for value in medians), "|", flush=True)


if __name__ == "__main__":
    main()
