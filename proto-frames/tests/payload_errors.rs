//! What is refused, and in which words: the key, the place, the reason.

use proto_frames::payload::{
    Configuration, Delete, Payload, PayloadError, PayloadErrorKind, Query, Ready, Start, Stats,
    TenantAdded,
};

use PayloadErrorKind::{InvalidData, InvalidPayload};

#[track_caller]
fn refused<T: std::fmt::Debug>(
    result: Result<T, PayloadError>,
    kind: PayloadErrorKind,
    words: &str,
) {
    match result {
        Ok(value) => panic!("{value:?} was read"),
        Err(error) => assert_eq!((error.to_string().as_str(), error.kind()), (words, kind)),
    }
}

fn start(rest: &str) -> Result<Start, PayloadError> {
    Start::decode(format!("---\nstart:\n  instance_uuid: a\n{rest}").as_bytes())
}

#[test]
fn errors_name_the_key_the_line_and_what_is_wrong() {
    refused(Start::decode(b""), InvalidPayload, "the payload is empty");
    refused(
        Start::decode(b"# nothing\n"),
        InvalidPayload,
        "the payload is empty",
    );
    refused(
        Start::decode(b"a: 1\n"),
        InvalidData,
        "start, line 1 column 1: missing or empty",
    );
    refused(
        Start::decode(b"start:\n  vcpus: 1\n"),
        InvalidData,
        "start.instance_uuid, line 2 column 3: missing or empty",
    );
    refused(
        Start::decode(b"start:\n  vcpus: 1\n  instance_uuid: \"\"\n"),
        InvalidData,
        "start.instance_uuid, line 3 column 18: missing or empty",
    );
    refused(
        start("  requirements:\n    vcpus: 1\n    mem_mb: -1\n"),
        InvalidData,
        "start.requirements.mem_mb, line 6 column 13: negative: -1",
    );
    refused(
        start("  requirements:\n    mem_mb: lots\n"),
        InvalidPayload,
        "start.requirements.mem_mb, line 5 column 13: expected a whole number, found `lots`",
    );
    refused(
        start("  requirements: [1]\n"),
        InvalidPayload,
        "start.requirements, line 4 column 17: expected a mapping, found a list",
    );
    refused(
        start("  storage:\n  - id: a\n  - size: -20\n"),
        InvalidData,
        "start.storage[1].size, line 6 column 11: negative: -20",
    );
    refused(
        start("  storage:\n  - size: 9007199254740992\n    local: true\n"),
        InvalidData,
        "start.storage, line 5 column 3: too large",
    );
}

#[test]
fn a_key_that_stands_twice_is_named_with_its_second_place_and_so_is_a_merge_key() {
    let twice = "the key stands twice in its mapping; write it once";
    let merge = "merge keys (`<<`) are not taken; write out the keys that are meant";
    for (rest, place, words) in [
        (
            "  vm_type: a\n  fw_type: b\n  vm_type: c\n",
            "start.vm_type, line 6 column 12",
            twice,
        ),
        (
            "  requirements: {mem_mb: 1, mem_mb: 1}\n",
            "start.requirements.mem_mb, line 4 column 37",
            twice,
        ),
        (
            "  env: {A: b, A: c}\n",
            "start.env.A, line 4 column 18",
            twice,
        ),
        (
            "  requirements:\n    <<: {mem_mb: 1}\n",
            "start.requirements.<<, line 5 column 9",
            merge,
        ),
        (
            "  env: {<<: {A: b}}\n",
            "start.env.<<, line 4 column 13",
            merge,
        ),
    ] {
        refused(start(rest), InvalidData, &format!("{place}: {words}"));
    }
    let aliased =
        "defaults: &it {mem_mb: 1}\nstart:\n  instance_uuid: a\n  requirements:\n    <<: *it\n";
    let error = Start::decode(aliased.as_bytes()).unwrap_err();
    assert_eq!(error.key, "start.requirements.<<");
    // Where nothing is meant by it, nothing is lost. An alias of a mapping as a whole is taken.
    let elsewhere = "x: {<<: {y: 1}, <<: {z: 1}}\nz: &it {mem_mb: 4}\nstart: {instance_uuid: a, requirements: *it}\n";
    let start = Start::decode(elsewhere.as_bytes()).unwrap();
    assert_eq!(start.requirements.mem_mb, 4);
}

#[test]
fn what_a_start_of_before_november_2017_asks_for_is_read_as_the_keys_of_today() {
    let rest = "  requested_resources:\n  - type: vcpus\n    value: 2\n    mandatory: true\n  - type: mem_mb\n    value: 1014\n    \
                mandatory: true\n  - {type: disk_mb, value: 10000}\n  - {type: network_node, value: 1}\n  \
                estimated_resources:\n  - type: vcpus\n    value: 1\n";
    let read = start(rest).unwrap();
    let needs = &read.requirements;
    assert_eq!(
        (needs.vcpus, needs.mem_mb, needs.network_node),
        (2, 1014, true)
    );
    assert_eq!(read.disk_mib(), Some(10 * 1024), "in whole GiB");
    assert_eq!(Start::decode(&read.encode()), Ok(read.clone()));
    let placed = Start::decode_placed(format!("start:\n  instance_uuid: a\n{rest}").as_bytes());
    assert_eq!(placed, Ok(read));
    let both = "  requested_resources: [{type: mem_mb, value: 5}, {type: mem_mb, value: 7}, {type: compute_node, value: 1}]\n  \
                requirements: {mem_mb: 6, vcpus: 3}\n";
    let needs = start(both).unwrap().requirements;
    assert_eq!(
        (needs.vcpus, needs.mem_mb, needs.network_node),
        (3, 7, false)
    );
    for (entry, words) in [
        (
            "{type: mem_mb, value: -1}",
            "[0].value, line 4 column 47: negative: -1",
        ),
        (
            "{type: network_node, value: 2}",
            "[0].value, line 4 column 53: 2 is outside 0 to 1",
        ),
        (
            "{type: physical_network, value_string: a}",
            "[0].type, line 4 column 32: `physical_network` is none of vcpus, mem_mb, disk_mb, network_node, compute_node",
        ),
    ] {
        refused(
            start(&format!("  requested_resources: [{entry}]\n")),
            InvalidData,
            &format!("start.requested_resources{words}"),
        );
    }
}

#[test]
fn further_images_that_cannot_be_are_named_with_their_place() {
    let digest = format!("sha256:{:064x}", 1);
    let image = format!("  image: {digest}\n");
    refused(
        start(&format!("  more_images: [{digest}]\n")),
        InvalidData,
        "start.more_images, line 4 column 16: makes sense only with image",
    );
    refused(
        start(&format!(
            "{image}  more_images:\n  - {digest}\n  - sha256:12\n"
        )),
        InvalidPayload,
        "start.more_images[1], line 7 column 5: expected sha256: and 64 digits, as `ciaoctl push` prints them, found \
         `sha256:12`",
    );
    let many = vec![digest; 17].join(", ");
    refused(
        start(&format!("{image}  more_images: [{many}]\n")),
        InvalidPayload,
        "start.more_images, line 5 column 16: more than 16 entries",
    );
}

#[test]
fn values_of_another_type_are_named_with_what_is_there() {
    refused(
        start("  networking:\n    subnet: {a: b}\n"),
        InvalidPayload,
        "start.networking.subnet, line 5 column 13: expected text, found a mapping",
    );
    refused(
        start("  restart: perhaps\n"),
        InvalidPayload,
        "start.restart, line 4 column 12: expected true or false, found `perhaps`",
    );
    refused(
        Start::decode(b"[1, 2]"),
        InvalidPayload,
        "line 1 column 1: expected a mapping, found a list",
    );
    refused(
        Stats::decode(b"instances:\n- state: active\n- cpu_usage: 2,5\n"),
        InvalidPayload,
        "instances[1].cpu_usage, line 3 column 14: expected a whole number, found `2,5`",
    );
    refused(
        Ready::decode(b"starts_seen: -1\n"),
        InvalidPayload,
        "starts_seen, line 1 column 14: expected a whole number from 0, found `-1`",
    );
    refused(
        TenantAdded::decode(b"tenant_added:\n  subnet_key: 9223372036854775808\n"),
        InvalidPayload,
        "tenant_added.subnet_key, line 2 column 15: expected a whole number, found `9223372036854775808`",
    );
    refused(
        Configuration::decode(b"configure:\n  launcher:\n    mgmt_net: a\n"),
        InvalidPayload,
        "configure.launcher.mgmt_net, line 3 column 15: expected a list, found `a`",
    );
}

#[test]
fn bytes_that_are_not_yaml_are_refused_with_the_parser_s_words() {
    refused(
        Delete::decode(b"delete:\n  stop: \"a\n"),
        InvalidPayload,
        "line 3 column 1: not valid YAML: found unexpected end of stream, while scanning a quoted scalar at line 2 column 9",
    );
    refused(
        Start::decode(b"start: \xff\n"),
        InvalidPayload,
        "not valid YAML: not UTF-8",
    );
    refused(
        Start::decode(b"start: *a\n"),
        InvalidPayload,
        "line 1 column 8: not valid YAML: unknown anchor",
    );
}

#[test]
fn a_syntax_error_behind_a_wrong_value_is_what_is_told() {
    let error = Delete::decode(b"delete:\n  stop: [a]\n  x: [\n").unwrap_err();
    assert!(error.to_string().contains("not valid YAML"), "{error}");
}

#[test]
fn commands_say_which_key_they_lack() {
    let delete = Delete::decode(b"delete:\n  instance_uuid: a\n").unwrap();
    refused(
        delete.check(),
        InvalidData,
        "delete.workload_agent_uuid: missing or empty",
    );
    let query = Query::decode(b"query:\n  limit: 1001\n").unwrap();
    refused(
        query.checked_limit(),
        InvalidData,
        "query.limit: 1001 is outside 1 to 1000",
    );
    assert_eq!(
        Query::decode(b"query:\n  what: nodes\n")
            .unwrap()
            .checked_limit(),
        Ok(500)
    );
}

#[test]
fn long_text_from_a_peer_is_cut_in_error_messages() {
    let error = start(&format!("  restart: {}\n", "é".repeat(500))).unwrap_err();
    assert!(error.to_string().len() < 250, "{error}");
    let error =
        Ready::decode(format!("resources:\n  {}: x\n", "k".repeat(500)).as_bytes()).unwrap_err();
    assert!(error.to_string().len() < 250, "{error}");
}

#[test]
fn a_configuration_says_what_it_lacks() {
    let config = Configuration::decode(b"").unwrap();
    assert_eq!(config, Configuration::default());
    assert_eq!(config.controller.ciao_port, 8889);
    assert!(config.launcher.mem_limit && config.launcher.disk_limit);
    assert_eq!(
        config.missing_values(),
        [
            "configure.scheduler.storage_uri",
            "configure.controller.compute_ca",
            "configure.controller.compute_cert",
            "configure.controller.client_auth_ca_cert_path",
        ]
    );
}

#[test]
fn who_runs_a_placed_start_takes_what_only_its_scheduler_understands() {
    let text =
        "start:\n  instance_uuid: a\n  scheduling:\n    version: 2\n    must_understand: [orbit]\n";
    assert!(Start::decode(text.as_bytes()).is_err());
    assert!(Start::decode_placed(text.as_bytes()).is_ok());
    refused(
        Start::decode_placed(b"start:\n  instance_uuid: \"\"\n"),
        InvalidData,
        "start.instance_uuid, line 2 column 18: missing or empty",
    );
}
