#!/bin/sh
# The daemon under load: builds it, starts it with throw-away certificates, drives it with `ciaoctl load`, prints a table.
#
#   benches/end-to-end.sh                        # 10, 1 000 and 10 000 launchers, both encodings, some minutes
#   SIZES="10 100" ENCODINGS=native RUNS=1 benches/end-to-end.sh
#
# SIZES      launchers, one run each                  (10 1000 10000)
# ENCODINGS  what all peers speak                     (native gob)
# RUNS       runs of each, of which the median counts (3)
# STARTS     STARTs of a pipelined run                (200000)
# CLOSED     STARTs of a run that waits for each      (20000)
# BIN        where the programs are; set, nothing is built (target/release)
# JSON       keep each run's whole report in this directory
#
# The generator runs on the same machine, so throughput includes its work; CPU per START is the server's alone. Needs
# python3 for medians, and 10 065 open files for 10 000 launchers.
set -eu

cd "$(dirname "$0")/.."
SIZES=${SIZES:-10 1000 10000}
ENCODINGS=${ENCODINGS:-native gob}
RUNS=${RUNS:-3}
STARTS=${STARTS:-200000}
CLOSED=${CLOSED:-20000}

if ! command -v python3 >/dev/null; then
    echo "end-to-end.sh needs python3 for medians" >&2
    exit 1
fi
if [ -z "${BIN:-}" ]; then
    cargo build --release --locked --bins
    BIN=${CARGO_TARGET_DIR:-target}/release
fi
ulimit -n "$(ulimit -H -n)"

work=$(mktemp -d)
reports=${JSON:-$work/reports}
mkdir -p "$reports"
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

"$BIN/ciao-cert" -all -directory "$work/certs" >/dev/null

# A fresh daemon for each run: what a connection takes is measured from its idle memory.
start_server() {
    : >"$work/log"
    "$BIN/ciao-scheduler" -cert "$work/certs/cert-Scheduler-localhost.pem" \
        -cacert "$work/certs/CAcert-localhost.pem" -listen 127.0.0.1:0 -logtostderr 2>"$work/log" &
    server=$!
    tries=0
    while ! address=$(grep -o 'listens on [0-9.:]*' "$work/log"); do
        tries=$((tries + 1))
        if [ $tries -gt 200 ] || ! kill -0 "$server" 2>/dev/null; then
            cat "$work/log" >&2
            exit 1
        fi
        sleep 0.05
    done
    address=${address#listens on }
}

stop_server() {
    kill "$server"
    wait "$server" || true
    server=
}

# run NAME ENCODING LAUNCHERS STARTS PIPELINE: one report in $reports/NAME.json. A run with losses is still a result.
run() {
    start_server
    "$BIN/ciaoctl" load --certs "$work/certs" --server "$address" --json --pid "$server" \
        --encoding "$2" --launchers "$3" --starts "$4" --pipeline="$5" >"$reports/$1.json" ||
        echo "$1 ended with exit code $?" >&2
    stop_server
}

for encoding in $ENCODINGS; do
    for size in $SIZES; do
        for number in $(seq "$RUNS"); do
            echo "$encoding, $size launchers, run $number of $RUNS" >&2
            run "$encoding-$size-pipelined-$number" "$encoding" "$size" "$STARTS" unlimited
            run "$encoding-$size-closed-$number" "$encoding" "$size" "$CLOSED" 1
        done
    done
done

python3 - "$reports" "$ENCODINGS" "$SIZES" "$RUNS" <<'PYTHON'
import json, statistics, sys

directory, encodings, sizes, runs = sys.argv[1], sys.argv[2].split(), sys.argv[3].split(), int(sys.argv[4])


def reports(encoding, size, mode):
    for number in range(1, runs + 1):
        try:
            with open(f"{directory}/{encoding}-{size}-{mode}-{number}.json") as file:
                yield json.load(file)
        except (OSError, ValueError):
            print(f"no report: {encoding}, {size}, {mode}, run {number}", file=sys.stderr)


def median(rows, *keys):
    def value(row):
        for key in keys:
            row = (row or {}).get(key)
        return row

    values = [value(row) for row in rows if value(row) is not None]
    return statistics.median(values) if values else float("nan")


print(
    "| encoding | launchers | START/s pipelined | server CPU per START | closed loop p50 / p99 |"
    " server CPU, closed loop | lost, twice, out of order | server CPU per connect | RSS per connection |"
)
print("| --- " + "| --: " * 8 + "|")
for encoding in encodings:
    for size in sizes:
        piped = list(reports(encoding, size, "pipelined"))
        closed = list(reports(encoding, size, "closed"))
        both = piped + closed
        wrong = [sum(row[key] for row in both) for key in ("lost", "duplicates", "inversions")]
        connections = f"{median(both, 'server', 'rss_kib_per_connection'):.1f} KiB" if int(size) >= 100 else ""
        print(
            f"| {encoding} | {int(size):,} | {median(piped, 'starts_per_s'):,.0f}"
            f" | {median(piped, 'server', 'cpu_us_per_start'):.1f} µs"
            f" | {median(closed, 'latency_us', 'p50'):.0f} / {median(closed, 'latency_us', 'p99'):.0f} µs"
            f" | {median(closed, 'server', 'cpu_us_per_start'):.1f} µs"
            f" | {wrong[0]}, {wrong[1]}, {wrong[2]}"
            f" | {median(both, 'server', 'cpu_us_per_connect') / 1000:.2f} ms"
            f" | {connections} |"
        )
PYTHON
