//! The peeks say what the full parser says, errors included, whatever the payload.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use proto_frames::payload::peek::{self, ReadyPeek, StartPeek, StatsPeek};
use proto_frames::payload::{Ready, Start, Stats};

const START: &str = "---
start:
  tenant_uuid: 2491851d-dce9-48d6-b83a-a717417072ce
  instance_uuid: 0c7a5f7e-55f1-4f0c-9a53-6f9b7d2f3a01
  docker_image: \"\"
  fw_type: legacy
  persistence: host
  vm_type: qemu
  networking:
    vnic_mac: 02:00:7c:0c:ad:88
    subnet: 172.16.0.0/24
    subnet_key: \"8\"
    public_ip: false
  storage:
  - id: 67d86208-b46c-4465-9018-e14187d4010
    boot: true
    ephemeral: true
  - local: true
    size: 20
    tag: scratch
  requirements:
    mem_mb: 512
    vcpus: 2
    node_id: 4cb19522-1e18-439a-883a-f9b2a3a95f5e
    hostname: host1
    network_node: false
  restart: false
  command:
  - sleep
  - 10
  env:
    A: b
  unknown:
    deep:
    - er: 1
      x: []
  scheduling:
    version: 1
    require: []
...
#cloud-config
- [ {a: b}
";

const READY: &str = "node_uuid: 4cb19522-1e18-439a-883a-f9b2a3a95f5e
mem_total_mb: 141312
mem_available_mb: 141312
disk_total_mb: 500000
disk_available_mb: -1
load: 0
cpus_online: 4
networks:
- ip: 192.168.1.1
  mac: 02:00:15:03:6f:49
- ip: 10.168.1.1
  mac: 02:00:8c:ba:f9:45
hostname: host1
labels:
  zone: eu-1
  rack: r7
resources:
  gpu: 4
capabilities:
- suspend
- migrate
starts_seen: 1071
";

const STATS: &str = "node_uuid: 4cb19522-1e18-439a-883a-f9b2a3a95f5e
status: READY
mem_total_mb: 3896
mem_available_mb: 3896
disk_total_mb: 500000
disk_available_mb: 256000
load: 0
cpus_online: 4
hostname: test
networks:
- ip: 192.168.1.1
  mac: 02:00:15:03:6f:49
instances:
- instance_uuid: fe2970fa-7b36-460b-8b79-9eb4745e62f2
  state: active
  ssh_ip: \"\"
  ssh_port: 0
  memory_usage_mb: 40
  disk_usage_mb: 2
  cpu_usage: 90
  volumes: []
  requested:
    mem_mb: 64
    vcpus: 1
    disk_mb: 0
    resources:
      gpu: 1
- instance_uuid: 1f5b2fe6-4493-4561-904a-8f4e956218d9
  state: exited
  ssh_ip: 172.168.2.2
  ssh_port: 0
  memory_usage_mb: -1
  disk_usage_mb: 2
  cpu_usage: -1
  volumes:
  - 67d86208-b46c-4465-9018-e14187d4010
starts_seen: 3
";

fn agree(payload: &[u8]) -> Result<(), TestCaseError> {
    let text = String::from_utf8_lossy(payload);
    let full = Start::decode(payload).map(StartPeek::from);
    prop_assert_eq!(peek::start(payload), full, "START\n{}", text);
    let full = Ready::decode(payload).map(ReadyPeek::from);
    prop_assert_eq!(peek::ready(payload), full, "READY\n{}", text);
    let full = Stats::decode(payload).map(StatsPeek::from);
    prop_assert_eq!(peek::stats(payload), full, "STATS\n{}", text);
    Ok(())
}

/// One change to a payload.
#[derive(Debug, Clone)]
enum Change {
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
];

/// Things to put in the place of a value.
const VALUES: &[&str] = &[
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
];

fn change() -> impl Strategy<Value = Change> {
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

fn apply(payload: &mut Vec<u8>, change: &Change) {
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

/// A short document put together from lines that fit, half fit or do not fit each other.
fn line_soup() -> impl Strategy<Value = String> {
    let content = select(
        &[
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
            "command:",
            "hostname: g",
            "networking:",
            "public_ip: no",
            "starts_seen: 4",
            "starts_seen: -4",
            "mem_mb: 1 # h",
            "\"x\": y",
            "? x",
            ": y",
        ][..],
    );
    vec((0..4_usize, any::<bool>(), content), 0..12).prop_map(|lines| {
        let mut text = String::new();
        for (level, odd, content) in lines {
            text.push_str(&" ".repeat(level * 2 + usize::from(odd && level == 3)));
            text.push_str(content);
            text.push('\n');
        }
        text
    })
}

/// So many cases, or more if `PROPTEST_CASES` says so.
fn at_least(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: cases.max(default.cases),
        ..default
    }
}

proptest! {
    #![proptest_config(at_least(1500))]

    #[test]
    fn peeks_agree_with_the_full_parser_on_changed_payloads(
        which in select(&[START, READY, STATS][..]),
        changes in vec(change(), 0..4),
    ) {
        let mut payload = which.as_bytes().to_vec();
        for change in &changes {
            apply(&mut payload, change);
        }
        agree(&payload)?;
    }

    #[test]
    fn peeks_agree_with_the_full_parser_on_lines_put_together_at_random(text in line_soup()) {
        agree(text.as_bytes())?;
        agree(format!("start:\n  instance_uuid: a\n{text}").as_bytes())?;
    }
}

#[test]
fn peeks_agree_with_the_full_parser_on_every_single_value() {
    for payload in [START, READY, STATS] {
        let lines = payload.split_inclusive('\n').count();
        for at in 0..lines {
            for value in VALUES {
                let mut changed: Vec<String> =
                    payload.split_inclusive('\n').map(str::to_owned).collect();
                let Some((key, _)) = changed[at]
                    .split_once(": ")
                    .or_else(|| changed[at].split_once(":\n"))
                else {
                    continue;
                };
                changed[at] = format!("{key}:{value}\n");
                agree(changed.concat().as_bytes()).unwrap();
            }
        }
    }
}

#[test]
fn only_the_first_document_of_a_start_counts() {
    let payload = include_bytes!("golden/start-three-documents.yaml");
    let start = peek::start(payload).unwrap();
    assert_eq!(start.instance_uuid, "0c7a5f7e-55f1-4f0c-9a53-6f9b7d2f3a01");
    assert_eq!(
        (start.mem_mb, start.vcpus, start.disk_mib),
        (512, 2, 20 * 1024)
    );
    assert_eq!(
        (
            start.node_id,
            start.hostname,
            start.network_node,
            start.restart
        ),
        (None, None, false, false)
    );
    assert_eq!(
        Start::decode(payload).unwrap().storage[0].id,
        "67d86208-b46c-4465-9018-e14187d4010"
    );
}
