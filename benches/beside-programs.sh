#!/bin/sh
# What a closed loop of STARTs waits while ten launchers fetch a program of 100 MB each, and what it waits alone, in turn.
#
#   benches/beside-programs.sh                  # 7 rounds of two runs each, some five minutes
#   ROUNDS=2 MB=20 benches/beside-programs.sh
#
# ROUNDS  rounds, each alone and beside, with a fresh daemon and fresh launchers for both (7)
# STARTS  STARTs of a run, two runs one after the other                                   (60000)
# NODES   launchers that fetch; as many of `ciaoctl load` take the STARTs                 (10)
# MB      bytes of the program, in millions: more than is fetched during two runs         (100)
# BIN     where the programs are; set, nothing is built                                   (target/release)
#
# Everything runs on this machine. Needs python3.
set -eu

cd "$(dirname "$0")/.."
ROUNDS=${ROUNDS:-7}
STARTS=${STARTS:-60000}
NODES=${NODES:-10}
MB=${MB:-100}

if ! command -v python3 >/dev/null; then
    echo "beside-programs.sh needs python3 for medians" >&2
    exit 1
fi
if [ -z "${BIN:-}" ]; then
    cargo build --release --locked --bins
    BIN=${CARGO_TARGET_DIR:-target}/release
fi

work=$(mktemp -d)
running=
cleanup() {
    [ -z "$running" ] || kill $running 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

"$BIN/ciao-cert" -all -directory "$work/certs" >/dev/null
{ printf '#!/bin/sh\nexit 0\n' && head -c "${MB}000000" /dev/urandom; } >"$work/program"
export CIAO_CERTS="$work/certs"

# until_it_says WHAT: waits for that text in the daemon's log; prints the first line that has it.
until_it_says() {
    tries=0
    while ! grep -m 1 "$1" "$work/log"; do
        tries=$((tries + 1))
        if [ $tries -gt 200 ] || ! kill -0 "$server" 2>/dev/null; then
            cat "$work/log" >&2
            exit 1
        fi
        sleep 0.05
    done
}

# A daemon that ships programs, and launchers that are connected to it.
start_cluster() {
    rm -rf "$work/nodes" "$work/blobs"
    : >"$work/log"
    "$BIN/ciao-scheduler" -cert "$work/certs/cert-Scheduler-localhost.pem" -cacert "$work/certs/CAcert-localhost.pem" \
        -listen 127.0.0.1:0 -blob-dir "$work/blobs" -logtostderr 2>"$work/log" &
    server=$!
    running=$server
    CIAO_SERVER=$(until_it_says 'listens on 127' | grep -o '127[0-9.:]*')
    export CIAO_SERVER
    for node in $(seq "$NODES"); do
        "$BIN/ciao-launcher" -cert "$work/certs/cert-CNAgent-localhost.pem" \
            -cacert "$work/certs/CAcert-localhost.pem" --server "$CIAO_SERVER" --hostname "node-$node" \
            --state-dir "$work/nodes/$node" --blob-cache "$work/nodes/$node/cache" --mem 256 --cpus 1 \
            >/dev/null 2>&1 &
        running="$running $!"
    done
    tries=0
    while [ "$("$BIN/ciaoctl" nodes 2>/dev/null | grep -c 'node-.*READY')" -lt "$NODES" ]; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { echo "the launchers do not connect" >&2 && exit 1; }
        sleep 0.1
    done
    program=$("$BIN/ciaoctl" push "$work/program" | grep -o 'sha256:[0-9a-f]*' | head -n 1)
}

stop_cluster() {
    kill $running 2>/dev/null || true
    wait 2>/dev/null || true
    running=
}

# load NAME: two runs, a report each.
load() {
    for run in 1 2; do
        "$BIN/ciaoctl" load --launchers "$NODES" --starts "$STARTS" --force --json >"$work/$1-$run.json"
    done
}

for round in $(seq "$ROUNDS"); do
    echo "round $round of $ROUNDS" >&2
    start_cluster
    load "alone-$round"
    stop_cluster
    start_cluster
    for node in $(seq "$NODES"); do
        "$BIN/ciaoctl" run --mem 16 --cpus 1 --node "node-$node" --image "$program" -- x >/dev/null 2>&1 &
        running="$running $!"
    done
    load "beside-$round"
    fetched=$(du -sm "$work/nodes" | cut -f 1)
    echo "$fetched MB fetched" >&2
    if [ "$fetched" -lt 1 ]; then
        echo "no launcher fetched anything" >&2
        exit 1
    fi
    if [ "$fetched" -ge $((NODES * MB * 95 / 100)) ]; then
        echo "the program was there before the runs were over; take a larger one (MB)" >&2
        exit 1
    fi
    stop_cluster
done

python3 - "$work" <<'PYTHON'
import glob, json, statistics, sys

print("| | p50 | p99 | p99 of each run |\n| --- | --: | --: | --- |")
for name in ("alone", "beside"):
    reports = [json.load(open(path))["latency_us"] for path in glob.glob(f"{sys.argv[1]}/{name}-*.json")]
    p50, p99 = ([report[key] for report in reports] for key in ("p50", "p99"))
    each = ", ".join(f"{it:.0f}" for it in sorted(p99))
    print(f"| {name} | {statistics.median(p50):.0f} µs | {statistics.median(p99):.0f} µs | {each} |")
PYTHON
