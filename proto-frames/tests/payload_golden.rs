//! Every payload that the original's peers were recorded sending is read, and what is written back is what they wrote.

use proto_frames::payload::{
    AssignPublicIp, AssignPublicIpFailure, AttachVolume, AttachVolumeFailure,
    ConcentratorInstanceAdded, Configuration, Delete, DeleteFailure, Evacuate, InstanceDeleted,
    InstanceStopped, NodeConnected, NodeDisconnected, Payload, PayloadError, PublicIpAssigned,
    PublicIpUnassigned, Ready, RefreshCnci, ReleasePublicIp, Restore, Start, StartFailure, Stats,
    TenantAdded, TenantRemoved, TraceReport, UnassignPublicIpFailure,
};

/// Decodes a payload of the given type and operand and encodes it again.
fn again(ty: &str, operand: u64, payload: &[u8]) -> Option<Result<Vec<u8>, PayloadError>> {
    macro_rules! again {
        ($type:ty) => {
            <$type>::decode(payload).map(|value| {
                let encoded = value.encode();
                assert_eq!(<$type>::decode(&encoded).as_ref(), Ok(&value));
                encoded.to_vec()
            })
        };
    }
    Some(match (ty, operand) {
        ("COMMAND", 1) => again!(Start),
        ("COMMAND", 2) => again!(Stats),
        ("COMMAND", 3) => again!(Evacuate),
        ("COMMAND", 4) => again!(Delete),
        ("COMMAND", 5) => again!(AssignPublicIp),
        ("COMMAND", 6) => again!(ReleasePublicIp),
        ("COMMAND" | "1", 7 | 0) => again!(Configuration),
        ("COMMAND", 8) => again!(AttachVolume),
        ("COMMAND", 9) => again!(Restore),
        ("COMMAND", 10) => again!(RefreshCnci),
        ("STATUS", 1) => again!(Ready),
        ("ERROR", 1) => again!(StartFailure),
        ("ERROR", 3) => again!(DeleteFailure),
        ("ERROR", 6) => again!(AttachVolumeFailure),
        ("ERROR", 7) => again!(AssignPublicIpFailure),
        ("ERROR", 8) => again!(UnassignPublicIpFailure),
        ("EVENT", 0) => again!(TenantAdded),
        ("EVENT", 1) => again!(TenantRemoved),
        ("EVENT", 2) => again!(InstanceDeleted),
        ("EVENT", 3) => again!(ConcentratorInstanceAdded),
        ("EVENT", 4) => again!(PublicIpAssigned),
        ("EVENT", 5) => again!(PublicIpUnassigned),
        ("EVENT", 6) => again!(TraceReport),
        ("EVENT", 7) => again!(NodeConnected),
        ("EVENT", 8) => again!(NodeDisconnected),
        ("EVENT", 9) => again!(InstanceStopped),
        _ => return None,
    })
}

fn each_payload(mut check: impl FnMut(&str, u64, &str)) {
    let index: serde_json::Value =
        serde_json::from_str(include_str!("golden/index-main.json")).expect("the index is JSON");
    for stream in index["streams"].as_array().expect("a list") {
        for frame in stream["frames"].as_array().expect("a list") {
            if let Some(payload) = frame["Payload"]
                .as_str()
                .filter(|payload| !payload.is_empty())
            {
                let ty = frame["Type"]
                    .as_str()
                    .map_or_else(|| frame["Type"].to_string(), str::to_owned);
                check(&ty, frame["Operand"].as_u64().expect("a number"), payload);
            }
        }
    }
}

/// Payloads of the recording that say less than the type has, or in another order: hand-written by its test peers.
const HAND_WRITTEN: &[(&str, u64)] = &[
    ("COMMAND", 1),
    ("COMMAND", 2),
    ("COMMAND", 8),
    ("ERROR", 7),
    ("ERROR", 8),
];

#[test]
fn every_recorded_payload_is_read_and_written_back_as_it_was() {
    let (mut same, mut other) = (0, 0);
    let mut refused = Vec::new();
    each_payload(|ty, operand, payload| {
        let Some(result) = again(ty, operand, payload.as_bytes()) else {
            panic!("{ty} {operand} is a payload that nothing here reads:\n{payload}")
        };
        match result {
            Err(error) => refused.push(format!("{ty} {operand} {payload:?}: {error}")),
            Ok(bytes) if bytes == payload.as_bytes() => same += 1,
            Ok(bytes) => {
                let written = String::from_utf8_lossy(&bytes);
                assert!(
                    HAND_WRITTEN.contains(&(ty, operand)),
                    "{ty} {operand}:\n{payload}\n{written}"
                );
                other += 1;
            }
        }
    });
    assert_eq!((same, other), (94, 11));
    let broken = r#"COMMAND 1 "start: [\n": line 2 column 1: not valid YAML: did not find expected node content, while parsing a flow node"#;
    assert_eq!(
        refused,
        [broken],
        "the recording has one payload that is meant to be refused"
    );
}
