//! Payloads that the peeks read without the full parser, to be changed at random.

/// All of them.
pub(crate) const DOCUMENTS: &[&str] = &[START, EARLIER, SCHEDULING, FLOW, READY, STATS];

/// Those that are STARTs.
pub(crate) const STARTS: &[&str] = &[START, EARLIER, SCHEDULING, FLOW];

/// What the scheduler tells controllers and others.
pub(crate) const ANSWERS: &[&str] = &[LISTED, CHANGED];

const LISTED: &str = "query_result:
  id: 7
  what: instances
  instances:
  - instance_uuid: 5f0c1e2a-0000-4000-8000-000000000001
    node_uuid: 4cb19522-1e18-439a-883a-f9b2a3a95f5e
    hostname: node-1
    state: running
    mem_mb: 128
    vcpus: 1
    name: \"web 1: \\\"\\u2028é\\n\"
    exit_code: -1
  - instance_uuid: 5f0c1e2a-0000-4000-8000-000000000002
    state: waiting
    mem_mb: -1
    waits_for: memory on 3 nodes
    resources:
      gpu: 2
      fpga/a: 1
    exit_code: null
  controllers: []
  next: more
";

const CHANGED: &str = "instance_state:
  instance_uuid: 5f0c1e2a-0000-4000-8000-000000000001
  node_uuid: 4cb19522-1e18-439a-883a-f9b2a3a95f5e
  state: suspended
  detail: requested by operator
  priority: 75
  target_node_uuid: \"\"
";

const START: &str = "---
start:
  tenant_uuid: 2491851d-dce9-48d6-b83a-a717417072ce
  instance_uuid: 0c7a5f7e-55f1-4f0c-9a53-6f9b7d2f3a01
  docker_image: \"\"
  image: sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
  more_images:
  - sha256:fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9
  - sha256:baa5a0964d3320fbc0c6a922140453c8513ea24ab8fd0577034804a967248096
  time_used: 90s
  fw_type: legacy
  persistence: host
  vm_type: qemu
  networking:
    vnic_mac: 02:00:7c:0c:ad:88
    vnic_uuid: 67d86208-b46c-0000-9018-e14187d4010
    concentrator_uuid: 67d86208-b46c-4465-9018-fe14087d415f
    concentrator_ip: 192.168.42.21
    subnet: 172.16.0.0/24
    subnet_key: \"8\"
    subnet_uuid: 67d86208-b46c-4465-0000-e14187d4010
    private_ip: 172.16.0.2
    public_ip: false
  storage:
  - id: 67d86208-b46c-4465-9018-e14187d4010
    boot: true
    boot_index: 1
    ephemeral: true
  - local: true
    size: 20
    swap: true
    tag: scratch
  requirements:
    mem_mb: 512
    vcpus: 2
    node_id: 4cb19522-1e18-439a-883a-f9b2a3a95f5e
    hostname: host1
    network_node: false
    privileged: true
  restart: false
  command:
  - sleep
  - 10
  env:
    A: b
  working_dir: /tmp
  unknown:
    deep:
    - er: 1
      x: []
  scheduling:
...
#cloud-config
- [ {a: b}
";

/// As STARTs said until November 2017 what they need.
const EARLIER: &str = "start:
  instance_uuid: a
  requested_resources:
  - type: mem_mb
    value: 512
    mandatory: true
  - type: network_node
    value: 0
    value_string: eth0
    mandatory: false
";

pub(crate) const READY: &str = "node_uuid: 4cb19522-1e18-439a-883a-f9b2a3a95f5e
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
incarnation: 67d86208-b46c-4465-9018-e14187d4010e
shares: fe2970fa-7b36-460b-8b79-9eb4745e62f2
shared_by:
- 1f5b2fe6-4493-4561-904a-8f4e956218d9
vm_types:
- process
volumes:
- 67d86208-b46c-4465-9018-e14187d4010
fault: 'the disk: full'
pressure: false
lease: 30s
lease_seq: 0
report_seq: 8
";

pub(crate) const STATS: &str = "node_uuid: 4cb19522-1e18-439a-883a-f9b2a3a95f5e
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
  group: web
  suspended: true
  run:
    restarts: 4
    last_exit_code: -9
    next_try_ms: 15000
    time_used_ms: 95500
    time_limit_ms: 600000
    cpus: 0-3,8
    unpinned: true
- instance_uuid: 1f5b2fe6-4493-4561-904a-8f4e956218d9
  state: exited
  ssh_ip: 172.168.2.2
  ssh_port: 0
  memory_usage_mb: -1
  disk_usage_mb: 2
  cpu_usage: -1
  volumes:
  - 67d86208-b46c-4465-9018-e14187d4010
labels:
  zone: eu-1
resources:
  gpu: 4
capabilities:
- lease
starts_seen: 3
incarnation: 67d86208-b46c-4465-9018-e14187d4010e
shares: fe2970fa-7b36-460b-8b79-9eb4745e62f2
shared_by:
- 67d86208-b46c-4465-9018-e14187d4010
vm_types:
- process
volumes:
- 67d86208-b46c-4465-9018-e14187d4010
fault: ''
pressure: true
report_seq: 7
lease: 1500ms
lease_seq: 1071
ends_incarnation: 1f5b2fe6-4493-4561-904a-8f4e956218d9
ends_seq: 4294967298
ended:
- seq: 4294967297
  instance_uuid: 67d86208-b46c-4465-9018-e14187d4010
  how: stopped
  exit_code: -9
  age_ms: 5400
  facts:
    ran_ms: 90500
    why: time_limit
    peak_kib: 262144
    cpu_ms: 61230
    output_bytes: 4096
    restarts: 2
    time_used_ms: 95500
    program: sim --all
    labels:
      team: render
- seq: 4294967298
  instance_uuid: fe2970fa-7b36-460b-8b79-9eb4745e62f2
  how: failed
  reason: image_failure
  detail: no such program
  restart: true
";

/// How a START is to be placed, a value a line, as encoders write it.
pub(crate) const SCHEDULING: &str = "start:
  instance_uuid: a
  requirements:
    mem_mb: 512
  scheduling:
    version: 1
    must_understand:
    - group
    - batch
    priority: 50
    queue: 30s
    require:
    - zone = eu-1
    - \"cpu.model in (zen4, zen5)\"
    - cores >= 32
    - \"ssd not exists\"
    prefer:
    - rack = 'r 7'
    resources:
      gpu: 1
      pci.8086: 2
    group:
      id: web
      policy: anti-affinity
      scope: rack
      max: 2
    near:
    - label: volume-7
      scope: rack
      hard: true
    - label: port/3
    same_node:
    - 67d86208-b46c-4465-9018-e14187d4010e
    different_node:
    - fe2970fa-7b36-460b-8b79-9eb4745e62f2
    - 1f5b2fe6-4493-4561-904a-8f4e956218d9
    batch:
      id: b1
      count: 8
    attempts: 3
    relocate: true
    on_node_loss: restart
    time_limit: 10m
    stop:
      signal: INT
      grace: 30s
    restart:
      when: on-failure
      max: 5
      backoff: 1s..5m
      window: 1h
    retry:
      on:
        - 75
        - 100-120
        - signal
      max: 3
    after:
      - instance: prepare
        end: any
      - instance: 5f0c2a4e-8d5e-4a0b-9c43-0d9f3a0f6c11
    image: ubuntu:24.04
    name: web-1
    dry_run: true
    count: 100
    alternates: 2
";

/// The same as people write it.
pub(crate) const FLOW: &str = "start:
  instance_uuid: a
  scheduling:
    version: 1
    must_understand: [group]
    priority: 50
    queue: 30s
    require: [\"zone = eu-1\", \"cpu.model in (zen4, zen5)\", cores >= 32]
    prefer:  [\"rack = r7\"]
    resources: {gpu: 1, fpga: 0}
    group: {id: web, policy: anti-affinity, scope: node, max: 1}
    near: [{label: volume-7, scope: rack, hard: false}, {label: port-3}]
    batch: {id: b1, count: 8}
    attempts: 3
    relocate: false
    split_output: true
    labels: {project: apollo, run: seven}
    on_node_loss: report
    time_limit: 90s
    stop: {signal: HUP, grace: 0}
    restart: {when: always, backoff: 10s}
    retry: {on: [75, 100-120, node_failure], max: 3}
    after: [{instance: a, end: failed}, {instance: b}]
  storage: [{local: true, size: 3}, {size: 4}]
  command: [sleep, 10]
";
