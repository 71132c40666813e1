//! Changes to payloads: bytes, lines and values that mean something to YAML or to the payloads, put anywhere.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// One change to a payload.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Flip(Index, u8),
    Insert(Index, &'static str),
    Delete(Index),
    SwapLines(Index, Index),
    CopyLine(Index, Index),
    DropLine(Index),
    Indent(Index, usize),
    Outdent(Index, usize),
    Value(Index, &'static str),
    Cut(Index),
}

/// Bytes and words that mean something to YAML, or to the payloads.
const PIECES: &[&str] = &[
    " ",
    "  ",
    "\n",
    "\n\n",
    "\t",
    "\r\n",
    ":",
    ": ",
    "-",
    "- ",
    "- - ",
    "#",
    " # x",
    "\n# c\n",
    "\n# c, d: [\n",
    "\"",
    "'",
    "[]",
    "{}",
    "[",
    "]",
    "{",
    "}",
    ",",
    "&a ",
    "*a",
    "!x ",
    "!!str ",
    "|",
    ">",
    "|\n",
    "%",
    "@",
    "`",
    "?",
    "? ",
    "~",
    "null",
    "Null",
    "true",
    "yes",
    "off",
    "010",
    "0x1f",
    "1_000",
    "2.0",
    "2.5",
    "-1",
    "-",
    "1e3",
    "99999999999999999999",
    "9223372036854775807",
    "\\",
    "é",
    "\u{feff}",
    "\0",
    "...\n",
    "---\n",
    "\n...\n",
    "\n---\n",
    "...",
    "<<: ",
    "=",
    "start:\n",
    "a: b\n",
    "\"\"",
    "\"a\": ",
    "mem_mb: 1\n",
    "local: true\n",
    "instances:\n",
    "storage:\n",
    "requested:\n",
    "resources:\n",
    "x:\n",
    ", ",
    "(",
    ")",
    "(a, b)",
    " = ",
    " >= 3",
    " not in (",
    "[a, b]",
    "{id: b, policy: affinity}",
    "scheduling:\n",
    "scheduling: {}\n",
    "group:\n",
    "near:\n",
    "dry_run: true\n",
    "count: 0\n",
    "lease: 30s\n",
    "lease_seq: 7\n",
    "suspended: true\n",
    "on_node_loss: restart\n",
    "restart:\n",
    "when: always\n",
    "backoff: 1s..5m\n",
    "  more_images: [sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae]\n",
    "  image: \"\"\n",
];

/// Things to put in the place of a value.
pub(crate) const VALUES: &[&str] = &[
    "",
    " ",
    " ~",
    " null",
    " \"null\"",
    " \"\"",
    " ''",
    " []",
    " {}",
    " [a, b]",
    " {a: b}",
    " a b",
    " a: b",
    " a:",
    " a#b",
    " a #b",
    " -",
    " -1",
    " --1",
    " 0",
    " 010",
    " 2.0",
    " yes",
    " \"yes\"",
    " \"5\"",
    " 99999999999999999999",
    " 9223372036854775807",
    " !!int 5",
    " &x 5",
    " *x",
    " |",
    " >-",
    " 5 ",
    " \t5",
    " .5",
    " ...",
    " ---",
    " =",
    " @a",
    " +5",
    " /a",
    " _",
    " :a",
    " a::",
    " é",
    " 'a'",
    " \"a b\"",
    " \"a\\n\"",
    "  5",
    ":",
    "5",
    " NULL",
    " nULL",
    " true",
    " True",
    " tRue",
    " -.inf",
    " 0x",
    " 1_0",
    " \"\" x",
    " a = b",
    " \"a = b\"",
    " 'a = b'",
    " \"a in (b, c)\"",
    " a in (b, c)",
    " \"a = \\\"b\\\"\"",
    " \"a  \"",
    " a - b",
    " \"a - b\"",
    " a: b c",
    " a b:",
    " a (b",
    " a, b",
    " a, b: c",
    " [\"a = b\", c exists]",
    " [\"a = b\",c exists]",
    " [a = b, ]",
    " [ a = b]",
    " [a = b ]",
    " [a: b]",
    " [a:b]",
    " [a, null]",
    " [a, ~]",
    " [-1, - 1]",
    " [[a], [b]]",
    " [a] x",
    " [a",
    " {a: b, a: c}",
    " {id: b, id: c}",
    " {id: b, count: 2}",
    " {id: b,count: 2}",
    " {id: b, count: 2, }",
    " {id: b}",
    " {id:b}",
    " {id: }",
    " {id: , count: 1}",
    " {id: b c, policy: soft-affinity}",
    " {\"id\": b}",
    " {label: a, hard: yes}",
    " [{label: a, hard: yes}, {label: \"b\"}]",
    " [{label: a}, {}]",
    " [{local: true, size: 9223372036854775807}]",
    " [{size: -1}]",
    " {gpu: -1}",
    " {gpu: 1, fpga: 2}",
    " {gpu: 1, fpga: 2, gpu: 1}",
    " {<<: {id: b}}",
    " {\"<<\": {id: b}}",
    " 2",
    " 101",
    " 0s",
    " 31d",
    " 721h",
    " 1ms",
    " 10",
    " 11",
    " restart",
    " 30s",
    " 18446744073709551615",
    " group",
    " affinity",
];

pub(crate) fn change() -> impl Strategy<Value = Change> {
    use Change::*;
    prop_oneof![
        2 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Flip(at, byte)),
        4 => (any::<Index>(), select(PIECES)).prop_map(|(at, piece)| Insert(at, piece)),
        2 => any::<Index>().prop_map(Delete),
        3 => (any::<Index>(), any::<Index>()).prop_map(|(a, b)| SwapLines(a, b)),
        2 => (any::<Index>(), any::<Index>()).prop_map(|(a, b)| CopyLine(a, b)),
        3 => any::<Index>().prop_map(DropLine),
        3 => (any::<Index>(), 1..5_usize).prop_map(|(at, by)| Indent(at, by)),
        3 => (any::<Index>(), 1..5_usize).prop_map(|(at, by)| Outdent(at, by)),
        4 => (any::<Index>(), select(VALUES)).prop_map(|(at, value)| Value(at, value)),
        1 => any::<Index>().prop_map(Cut),
    ]
}

pub(crate) fn apply(payload: &mut Vec<u8>, change: &Change) {
    if payload.is_empty() {
        return;
    }
    let mut lines: Vec<Vec<u8>> = payload
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    match change {
        Change::Flip(at, byte) => {
            let at = at.index(payload.len());
            payload[at] = *byte;
            return;
        }
        Change::Insert(at, piece) => {
            let at = at.index(payload.len());
            payload.splice(at..at, piece.bytes());
            return;
        }
        Change::Delete(at) => {
            payload.remove(at.index(payload.len()));
            return;
        }
        Change::Cut(at) => {
            payload.truncate(at.index(payload.len()));
            return;
        }
        Change::SwapLines(a, b) => {
            let (a, b) = (a.index(lines.len()), b.index(lines.len()));
            lines.swap(a, b);
        }
        Change::CopyLine(from, to) => {
            let line = lines[from.index(lines.len())].clone();
            lines.insert(to.index(lines.len()), line);
        }
        Change::DropLine(at) => {
            lines.remove(at.index(lines.len()));
        }
        Change::Indent(at, by) => {
            let at = at.index(lines.len());
            lines[at].splice(0..0, vec![b' '; *by]);
        }
        Change::Outdent(at, by) => {
            let at = at.index(lines.len());
            let spaces = lines[at].iter().take_while(|byte| **byte == b' ').count();
            lines[at].drain(..spaces.min(*by));
        }
        Change::Value(at, value) => {
            let at = at.index(lines.len());
            if let Some(colon) = lines[at]
                .windows(2)
                .position(|pair| matches!(pair, b": " | b":\n"))
            {
                lines[at].truncate(colon + 1);
                lines[at].extend_from_slice(value.as_bytes());
                lines[at].push(b'\n');
            }
        }
    }
    *payload = lines.concat();
}

/// Lines that fit, half fit or do not fit each other.
const LINES: &[&str] = &[
    "start:",
    "instance_uuid: a",
    "requirements:",
    "mem_mb: 1",
    "vcpus: 2",
    "storage:",
    "- local: true",
    "- size: 3",
    "local: yes",
    "size: 1",
    "instances:",
    "- instance_uuid: b",
    "- state: active",
    "requested:",
    "networks:",
    "- ip: c",
    "labels:",
    "resources:",
    "gpu: 1",
    "capabilities:",
    "- d",
    "- 1",
    "x:",
    "- x:",
    "- - y",
    "-",
    "x: []",
    "x: {}",
    "volumes: []",
    "volumes:",
    "node_uuid: e",
    "load: 3",
    "scheduling:",
    "restart: true",
    "# f",
    "",
    "...",
    "---",
    "env:",
    "A: b",
    "A: c",
    "requested_resources:",
    "requested_resources: []",
    "requested_resources: [{type: mem_mb, value: 5}, {type: network_node, value: 1}]",
    "- type: vcpus",
    "value: 2",
    "mandatory: true",
    "B: d",
    "<<: {mem_mb: 7, vcpus: 3}",
    "<<: *a",
    "\"<<\": {mem_mb: 7}",
    "requirements: {mem_mb: 1, mem_mb: 2}",
    "requirements: &a {mem_mb: 5}",
    "env: {B: a, A: b, B: c}",
    "env: {B: a, A: b}",
    "command:",
    "hostname: g",
    "networking:",
    "public_ip: no",
    "starts_seen: 4",
    "starts_seen: -4",
    "ends_seq: 4",
    "ends_seq: -4",
    "ends_incarnation: h",
    "ended:",
    "seq: 7",
    "seq: -7",
    "how: stopped",
    "exit_code: -9",
    "reason: full_cn",
    "- {seq: 3, how: deleted}",
    "mem_mb: 1 # h",
    "\"x\": y",
    "? x",
    "version: 1",
    "require:",
    "- zone = a b",
    "- \"zone = 'a'\"",
    "require: [a = b]",
    "group: {id: a, policy: affinity}",
    "group:",
    "id: a",
    "policy: soft-anti-affinity",
    "near:",
    "- label: a",
    "- {label: b}",
    "batch:",
    "count: 3",
    "dry_run: true",
    "queue: 3s",
    "shares: a",
    "lease: 30s",
    "lease: 30",
    "lease: \"1h\"",
    "lease_seq: 4",
    "lease_seq: 9223372036854775808",
    "suspended: yes",
    "relocate: true",
    "on_node_loss: restart",
    "on_node_loss: perhaps",
    "time_limit: 1h",
    "time_limit: 0",
    "stop:",
    "stop: {signal: INT, grace: 1s}",
    "restart:",
    "restart: {when: always, max: 3}",
    "restart: true",
    "when: on-failure",
    "when: sometimes",
    "max: 0",
    "retry:",
    "retry: {on: [75, 100-120, signal], max: 3}",
    "on: [75, 0]",
    "on:",
    "- 75",
    "- node_failure",
    "after:",
    "after: [{instance: a, end: any}]",
    "- instance: a",
    "end: never",
    "window: 1h",
    "backoff: 5m..1s",
    "attempts: 3",
    "- a b",
    "prefer: [",
    "  a exists]",
    ": y",
];

/// A short document put together from lines that fit, half fit or do not fit each other.
pub(crate) fn line_soup() -> impl Strategy<Value = String> {
    vec((0..4_usize, any::<bool>(), select(LINES)), 0..12).prop_map(|lines| {
        let mut text = String::new();
        for (level, odd, content) in lines {
            text.push_str(&" ".repeat(level * 2 + usize::from(odd && level == 3)));
            text.push_str(content);
            text.push('\n');
        }
        text
    })
}
