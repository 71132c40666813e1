#!/usr/bin/env bash
# Instructions per START, counted by valgrind's callgrind, at one size of cluster. Prints a table; with --check compares
# it with benches/instructions.txt and fails where a figure has grown by more than a sixth (other compilers and C
# libraries differ by a few in a hundred); with --save writes that file.
set -euo pipefail
cd "$(dirname "$0")/.."

nodes=1000
few=512
many=1536
baseline=benches/instructions.txt
kinds="plain require_zone require_rack_of_zone require_fact prefer_rack resource anti_affinity spread"

command -v valgrind >/dev/null || { echo "valgrind is not installed (Debian: apt-get install valgrind)" >&2; exit 2; }
binary=$(cargo bench --locked --bench instructions --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*instructions-[^"]*\)".*/\1/p' | tail -1)

count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$binary" "$1" "$nodes" "$2" 2>&1 |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

figures() {
    for kind in $kinds; do
        local least most
        least=$(count "$kind" "$few")
        most=$(count "$kind" "$many")
        printf '%-24s %8d\n' "$kind" $(((most - least) / (many - few)))
    done
}

found=$(figures)
echo "instructions per START, its end included, $nodes nodes:"
echo "$found"
case "${1:-}" in
--save) echo "$found" >"$baseline" ;;
--check)
    echo "$found" | while read -r kind figure; do
        before=$(sed -n "s/^$kind  *//p" "$baseline")
        if [ -n "$before" ] && [ "$((figure * 6))" -gt "$((before * 7))" ]; then
            echo "$kind has grown from $before to $figure; if it has to, run $0 --save" >&2
            exit 1
        fi
    done
    ;;
esac
