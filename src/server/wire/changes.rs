//! A START's payload as its launcher is to read it, where it no longer says all: a restart, or other amounts since an
//! UPDATE. One of which nothing has changed leaves as the very bytes that came. Likewise a DELETE that goes to another
//! node than it names.
//!
//! Launchers that announced that they take them get [`Overrides`] before the bytes that came. For all others, the
//! original's above all, the text is edited rather than written again from what was read, because of unknown keys. By
//! its looks first ([`crate::edit`]), which leaves every other byte alone; what reads back as something else is written
//! from the parsed document instead, with everything that is in it.
//!
//! As overrides, and as an edited text (an original launcher's):
//!
//! ```text
//! overrides:                 start:
//!   restart: true              instance_uuid: a
//! ...                          restart: true      was: false
//! start:                       …
//!   instance_uuid: a
//!   restart: false
//! ```
//!
//! [`frame`] and [`command`] are called by the receiver's writer, outside the core's lock; [`cost`] under it.

use bytes::Bytes;
use proto_frames::Frame;
use proto_frames::limits::MAX_PAYLOAD_LEN;
use proto_frames::payload::guard::{SMALL, first_document};
use proto_frames::payload::{Delete, OnNodeLoss, Overrides, Payload, Span, Start, Storage};
use serde_yaml::{Mapping, Value};

use super::parcels::frame_of;
use super::{arrays, elements};
use crate::edit;
use sched_core::{PlacedStart, StartChanges, TargetedCommand};

/// MiB in a GiB: disks are asked for in GiB.
const MIB_PER_GIB: i64 = 1024;

/// What the longest new value and its key add to a payload, in bytes, beside the name of a custom resource.
const VALUE_COST: usize = 64;

/// The START that a launcher is sent: the parcel's frame, with its changes if there are any.
pub(super) fn frame(start: &PlacedStart) -> Frame {
    let mut frame = frame_of(&start.parcel);
    if let Some(changes) = &start.changes {
        frame.payload = changed(&frame.payload, changes);
    }
    frame
}

/// The command that a launcher is sent. A DELETE whose instance is on another node than the sender thought is written
/// again with that node's UUID, because launchers refuse what is not for them; every other command leaves as it came.
pub(super) fn command(command: &TargetedCommand) -> Frame {
    let mut frame = frame_of(&command.parcel);
    if command.is_readdressed
        && let Ok(delete) = Delete::decode(&frame.payload)
    {
        let delete = Delete {
            workload_agent_uuid: command.target.node.to_string(),
            ..delete
        };
        frame.payload = delete.encode();
    }
    frame
}

/// What the changes may add to a START's cost in a queue, in bytes. An upper bound, without encoding: four amounts at
/// most, what is to become of it, and the custom resources.
pub(super) fn cost(start: &PlacedStart) -> usize {
    let demand = |changes: &StartChanges| {
        let resources = changes.demand.iter().flat_map(|it| it.resources.keys());
        7 * VALUE_COST + resources.map(|it| VALUE_COST + it.len()).sum::<usize>()
    };
    let element = |changes: &StartChanges| changes.element.as_deref().map_or(0, arrays::cost);
    let changes = start.changes.as_deref();
    changes.map_or(0, |changes| demand(changes) + element(changes))
}

/// A payload with its changes. No frame leaves for it that is longer than one may be which comes: what has no room for
/// overrides before it is edited. Called with every START that restarts an instance or has other amounts than its text
/// says.
fn changed(payload: &Bytes, changes: &StartChanges) -> Bytes {
    if let Some(element) = &changes.element {
        let rest = StartChanges {
            element: None,
            ..changes.clone()
        };
        // Without a text of its own it would be another instance: its launcher refuses one that says nothing.
        let own = elements::of_element(payload, element).unwrap_or_default();
        return changed(&own, &rest);
    }
    let is_added = changes.restart_on_loss || changes.time_limit.is_some();
    let completed = is_added.then(|| completed(payload, changes));
    let payload = completed.as_ref().unwrap_or(payload);
    if !changes.restart && changes.demand.is_none() && changes.time_used_ms.is_none() {
        return payload.clone();
    }
    let overrides = overrides(changes);
    let with_fields = changes.as_fields.then(|| overrides.before(payload));
    with_fields
        .filter(|it| it.len() <= MAX_PAYLOAD_LEN)
        .unwrap_or_else(|| edited(payload, &overrides))
}

/// The payload with what the policy has added to it: `on_node_loss: restart`, by which its launcher ends the instance when
/// it is cut off, and `time_limit`. In the text where it can be, else in a document that is written again. Edited for
/// launchers that take overrides as well: one that did not know of this there would go on running it.
fn completed(payload: &Bytes, changes: &StartChanges) -> Bytes {
    let Ok(mut wanted) = Start::decode_placed(payload) else {
        return payload.clone();
    };
    let scheduling = wanted.scheduling.get_or_insert_default();
    let mut values = Vec::new();
    if changes.restart_on_loss {
        scheduling.on_node_loss = OnNodeLoss::Restart;
        values.push(("on_node_loss", OnNodeLoss::Restart.as_str().to_owned()));
    }
    if let Some(limit) = changes.time_limit {
        scheduling.time_limit = Some(limit);
        values.push(("time_limit", limit.to_string()));
    }
    let is_meant = |text: &Bytes| Start::decode_placed(text).is_ok_and(|read| read == wanted);
    let set = |text: Bytes, (key, value): &(&str, String)| {
        edit::set(&text, &["start", "scheduling", key], value)
    };
    values
        .iter()
        .try_fold(payload.clone(), set)
        .filter(is_meant)
        .or_else(|| completed_by_value(payload, &values))
        .filter(is_meant)
        .unwrap_or_else(|| payload.clone())
}

/// The first document written again, likewise.
fn completed_by_value(payload: &Bytes, values: &[(&str, String)]) -> Option<Bytes> {
    let document = first_document(payload, SMALL).ok()?;
    let mut root: Value = serde_yaml::from_slice(document).ok()?;
    let start = child(root.as_mapping_mut()?, "start")?;
    let scheduling = child(start, "scheduling")?;
    for (key, value) in values {
        scheduling.insert((*key).into(), value.as_str().into());
    }
    written_again(payload, document, &root)
}

/// What has changed, as launchers are told it: disks in whole GiB, as STARTs have them.
fn overrides(changes: &StartChanges) -> Overrides {
    let overrides = Overrides {
        restart: changes.restart,
        time_used: changes.time_used_ms.map(Span::from_ms),
        ..Overrides::default()
    };
    let Some(demand) = &changes.demand else {
        return overrides;
    };
    let resources = demand.resources.iter();
    let resources = resources.map(|(name, amount)| (name.to_string(), *amount));
    Overrides {
        mem_mb: Some(demand.mem_mib),
        vcpus: Some(demand.vcpus),
        disk_gb: Some(in_whole_gib(demand.disk_mib)),
        resources: Some(resources.collect()),
        ..overrides
    }
}

/// MiB rounded up to whole GiB: a disk is not to be smaller than what was claimed for it. Negative amounts count as
/// none.
fn in_whole_gib(disk_mib: i64) -> i64 {
    let disk_mib = disk_mib.max(0);
    disk_mib / MIB_PER_GIB + i64::from(disk_mib % MIB_PER_GIB > 0)
}

/// A payload whose text says what applies. Three tries, each of which counts only if what it gives reads back as
/// exactly what is wanted:
///
/// 1. single values replaced in the text, which keeps comments, order and unknown keys;
/// 2. the first document written again from its parsed form, which keeps unknown keys;
/// 3. the payload as it came.
///
/// One that cannot be read, which no START's is that was placed, is left as it is.
fn edited(payload: &Bytes, overrides: &Overrides) -> Bytes {
    let Ok(before) = Start::decode_placed(payload) else {
        return payload.clone();
    };
    let mut wanted = before.clone();
    overrides.apply(&mut wanted);
    let is_meant = |text: &Bytes| Start::decode_placed(text).is_ok_and(|read| read == wanted);
    patch_text(payload, &before, &wanted)
        .filter(is_meant)
        .or_else(|| by_value(payload, &wanted))
        .filter(is_meant)
        .unwrap_or_else(|| payload.clone())
}

/// The text with each value that differs put in its place, or added where its key is missing; `None` where the text is
/// in no style that [`crate::edit`] knows. Disks are not tried: they stand in a list, and paths lead through mappings
/// alone.
fn patch_text(payload: &Bytes, before: &Start, wanted: &Start) -> Option<Bytes> {
    let mut text = payload.clone();
    let mut set = |path: &[&str], value: &str| {
        text = edit::set(&text, path, value)?;
        Some(())
    };
    if wanted.restart != before.restart {
        set(&["start", "restart"], "true")?;
    }
    if let Some(used) = wanted
        .time_used
        .filter(|_| wanted.time_used != before.time_used)
    {
        set(&["start", "time_used"], &used.to_string())?;
    }
    let (old, new) = (&before.requirements, &wanted.requirements);
    for (key, old, new) in [
        ("mem_mb", old.mem_mb, new.mem_mb),
        ("vcpus", old.vcpus, new.vcpus),
    ] {
        if new != old {
            set(&["start", "requirements", key], &new.to_string())?;
        }
    }
    for (name, amount) in wanted.scheduling.iter().flat_map(|it| &it.resources) {
        let old = before.scheduling.as_ref();
        if old.and_then(|it| it.resources.get(name)) != Some(amount) {
            let path = ["start", "scheduling", "resources", name];
            set(&path, &amount.to_string())?;
        }
    }
    Some(text)
}

/// The first document written again from what is in it, with what is wanted; the others as they are. `None` where the
/// document is no mapping, or a key that has to be one is something else.
fn by_value(payload: &Bytes, wanted: &Start) -> Option<Bytes> {
    let document = first_document(payload, SMALL).ok()?;
    let mut root: Value = serde_yaml::from_slice(document).ok()?;
    let start = child(root.as_mapping_mut()?, "start")?;
    start.insert("restart".into(), wanted.restart.into());
    if let Some(used) = wanted.time_used {
        start.insert("time_used".into(), used.to_string().into());
    }
    let requirements = child(start, "requirements")?;
    requirements.insert("mem_mb".into(), wanted.requirements.mem_mb.into());
    requirements.insert("vcpus".into(), wanted.requirements.vcpus.into());
    let resources = wanted.scheduling.iter().flat_map(|it| &it.resources);
    for (name, amount) in resources {
        let resources = child(child(start, "scheduling")?, "resources")?;
        resources.insert(name.as_str().into(), (*amount).into());
    }
    put_disks(start, &wanted.storage)?;
    written_again(payload, document, &root)
}

/// The payload with another first document; what is behind that is as it was.
pub(super) fn written_again(payload: &[u8], document: &[u8], root: &Value) -> Option<Bytes> {
    let mut text = String::from("---\n");
    text.push_str(&serde_yaml::to_string(root).ok()?);
    let mut text = text.into_bytes();
    text.extend_from_slice(&payload[document.len()..]);
    Some(text.into())
}

/// Makes the list of disks as long as the wanted one and sets kind and size of the local ones; volumes stay as they
/// are. `None` where `storage` or an entry of it is no list or mapping.
fn put_disks(start: &mut Mapping, wanted: &[Storage]) -> Option<()> {
    if wanted.is_empty() {
        return Some(());
    }
    let disks = start
        .entry("storage".into())
        .or_insert_with(|| Value::Sequence(Vec::new()));
    if disks.is_null() {
        *disks = Value::Sequence(Vec::new());
    }
    let disks = disks.as_sequence_mut()?;
    disks.resize_with(wanted.len(), || Value::Mapping(Mapping::new()));
    for (disk, wanted) in disks.iter_mut().zip(wanted) {
        let disk = disk.as_mapping_mut()?;
        if wanted.local {
            disk.insert("local".into(), true.into());
            disk.insert("ephemeral".into(), wanted.ephemeral.into());
            disk.insert("size".into(), wanted.size.into());
        }
    }
    Some(())
}

/// The mapping under a key. One that is missing or null is made; `None` where something else stands there.
pub(super) fn child<'a>(parent: &'a mut Mapping, key: &str) -> Option<&'a mut Mapping> {
    let child = parent
        .entry(key.into())
        .or_insert_with(|| Value::Mapping(Mapping::new()));
    if child.is_null() {
        *child = Value::Mapping(Mapping::new());
    }
    child.as_mapping_mut()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};
    use proto_frames::limits::MAX_PAYLOAD_LEN;
    use proto_frames::payload::overrides::decode_start;
    use proto_frames::payload::{Payload, Requirements, Scheduling, Start, Storage};

    use super::changed;
    use sched_core::{Demand, StartChanges};

    /// A START as an original controller sends it, with the documents for cloud-init behind it.
    const ORIGINAL: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proto-frames/tests/golden/start-three-documents.yaml"
    ));

    fn with(text: &str, changes: &StartChanges) -> String {
        let payload = Bytes::copy_from_slice(text.as_bytes());
        String::from_utf8(changed(&payload, changes).to_vec()).unwrap()
    }

    fn restart() -> StartChanges {
        StartChanges {
            restart: true,
            ..StartChanges::default()
        }
    }

    fn asking(mem_mib: i64, vcpus: i64, disk_gib: i64, gpus: i64) -> StartChanges {
        let resources = [("gpu".into(), gpus)];
        StartChanges {
            restart: true,
            demand: Some(Demand {
                mem_mib,
                vcpus,
                disk_mib: disk_gib * 1024,
                resources: resources.into_iter().filter(|(_, it)| *it > 0).collect(),
            }),
            ..StartChanges::default()
        }
    }

    #[test]
    fn to_an_original_start_what_it_may_take_by_default_is_added_and_launchers_read_it() {
        let limit = super::Span::from_ms(7_200_000);
        let changes = StartChanges {
            restart_on_loss: true,
            time_limit: Some(limit),
            ..StartChanges::default()
        };
        for text in [
            ORIGINAL,
            "{start: {instance_uuid: a, requirements: {mem_mb: 1}}}\n",
        ] {
            let edited = with(text, &changes);
            let mut wanted = decode_start(text.as_bytes()).unwrap();
            let scheduling = wanted.scheduling.get_or_insert_default();
            scheduling.on_node_loss = super::OnNodeLoss::Restart;
            scheduling.time_limit = Some(limit);
            assert_eq!(decode_start(edited.as_bytes()).unwrap(), wanted, "{edited}");
        }
    }

    #[test]
    fn of_an_original_start_that_is_under_a_lease_by_default_one_key_is_added_and_launchers_read_it()
     {
        let changes = StartChanges {
            restart_on_loss: true,
            ..StartChanges::default()
        };
        let flow = "{start: {instance_uuid: a, requirements: {mem_mb: 1, vcpus: 1}}}\n";
        let own = "start:\n  instance_uuid: a\n  scheduling: {priority: 3}\n  requirements: {mem_mb: 1, vcpus: 1}\n";
        for text in [ORIGINAL, flow, own] {
            for changes in [changes.clone(), as_fields(changes.clone())] {
                let edited = with(text, &changes);
                let mut wanted = decode_start(text.as_bytes()).unwrap();
                let scheduling = wanted.scheduling.get_or_insert_default();
                scheduling.on_node_loss = super::OnNodeLoss::Restart;
                assert_eq!(decode_start(edited.as_bytes()).unwrap(), wanted, "{edited}");
            }
        }
        let edited = with(ORIGINAL, &changes);
        let added = edited
            .lines()
            .filter(|line| !ORIGINAL.contains(line))
            .count();
        assert_eq!(added, 1, "{edited}");
        let both = StartChanges {
            restart: true,
            ..changes
        };
        let read = decode_start(with(ORIGINAL, &as_fields(both)).as_bytes()).unwrap();
        assert!(read.restart && read.scheduling.unwrap().restarts_on_node_loss());
    }

    #[test]
    fn of_an_original_start_that_restarts_one_word_changes() {
        let expected = ORIGINAL.replace("restart: false", "restart: true");
        assert_ne!(expected, ORIGINAL);
        assert_eq!(with(ORIGINAL, &restart()), expected);
    }

    #[test]
    fn amounts_are_put_where_they_stood() {
        let text = with(ORIGINAL, &asking(1024, 4, 20, 0));
        let expected = ORIGINAL
            .replace("restart: false", "restart: true")
            .replace("mem_mb: 512", "mem_mb: 1024")
            .replace("vcpus: 2", "vcpus: 4");
        assert_eq!(text, expected);
    }

    #[test]
    fn a_larger_disk_leaves_the_other_documents_as_they_are() {
        let text = with(ORIGINAL, &asking(512, 2, 40, 1));
        let start = Start::decode(text.as_bytes()).unwrap();
        assert_eq!(start.disk_mib(), Some(40 * 1024));
        assert_eq!(start.scheduling.unwrap().resources["gpu"], 1);
        assert_eq!(start.networking.subnet_key, "8");
        let (_, rest) = ORIGINAL.split_once("restart: false\n").unwrap();
        assert!(text.ends_with(rest), "{text}");
    }

    #[test]
    fn what_nobody_here_knows_is_kept() {
        for text in [
            "start:\n  instance_uuid: a\n  later: {x: [1e3, 010]} # a word\n",
            "start: {instance_uuid: a, restart: false, later: 7}\n",
            "start:\n  instance_uuid: a\n  scheduling: {resources: {gpu: 2}, later: 7}\n",
        ] {
            let text = with(text, &asking(7, 1, 2, 1));
            let start = Start::decode_placed(text.as_bytes()).unwrap();
            assert!(start.restart && text.contains("later"), "{text}");
            assert_eq!(
                (start.requirements.mem_mb, start.requirements.vcpus),
                (7, 1)
            );
            assert_eq!(start.disk_mib(), Some(2048));
            assert_eq!(start.scheduling.unwrap().resources["gpu"], 1);
        }
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        assert_eq!(with("start: [", &restart()), "start: [");
    }

    fn as_fields(changes: StartChanges) -> StartChanges {
        StartChanges {
            as_fields: true,
            ..changes
        }
    }

    #[test]
    fn a_launcher_that_takes_overrides_gets_them_before_the_bytes_that_came() {
        let text = with(ORIGINAL, &as_fields(restart()));
        assert_eq!(
            text,
            format!("overrides:\n  restart: true\n...\n{ORIGINAL}")
        );
        let text = with(ORIGINAL, &as_fields(asking(1024, 4, 40, 0)));
        let said = "overrides:\n  restart: true\n  mem_mb: 1024\n  vcpus: 4\n  disk_gb: 40\n  resources: {}\n...\n";
        assert_eq!(text, format!("{said}{ORIGINAL}"));
        let text = with(ORIGINAL, &as_fields(asking(1, 1, 0, 2)));
        assert!(text.contains("\n  disk_gb: 0\n  resources:\n    gpu: 2\n...\n"));
    }

    #[test]
    fn a_start_without_room_for_overrides_in_its_frame_is_edited() {
        let long = |len: usize| {
            let mut text = ORIGINAL.to_owned();
            text.extend(std::iter::repeat_n('#', len - ORIGINAL.len()));
            with(&text, &as_fields(restart()))
        };
        let overrides = "overrides:\n  restart: true\n...\n";
        let fits = long(MAX_PAYLOAD_LEN - overrides.len());
        assert!(fits.starts_with(overrides) && fits.len() == MAX_PAYLOAD_LEN);
        let edited = long(MAX_PAYLOAD_LEN - overrides.len() + 1);
        assert!(edited.starts_with("---\nstart:\n") && edited.len() < MAX_PAYLOAD_LEN);
        assert!(Start::decode(edited.as_bytes()).unwrap().restart);
    }

    const NAMES: [&str; 4] = ["gpu", "nic/fast", "1e3", "y"];

    fn amounts() -> impl Strategy<Value = Vec<(&'static str, i64)>> {
        let name = proptest::sample::select(NAMES.to_vec());
        proptest::collection::vec((name, 0_i64..5), 0..4)
    }

    fn starts() -> impl Strategy<Value = Start> {
        let disk = (any::<bool>(), 0_i64..50).prop_map(|(local, size)| Storage {
            local,
            size,
            ..Storage::default()
        });
        let disks = proptest::collection::vec(disk, 0..4);
        let scheduling = proptest::option::of((amounts(), any::<bool>()));
        let requirements = (0_i64..2000, 0_i64..9);
        (requirements, disks, any::<bool>(), scheduling).prop_map(
            |((mem_mb, vcpus), storage, restart, scheduling)| Start {
                instance_uuid: "a".to_owned(),
                requirements: Requirements {
                    mem_mb,
                    vcpus,
                    ..Requirements::default()
                },
                storage,
                restart,
                command: vec!["sh".to_owned(), "...\n---\noverrides:\n".to_owned()],
                scheduling: scheduling.map(|(amounts, relocate)| Scheduling {
                    resources: amounts
                        .into_iter()
                        .map(|(it, n)| (it.to_owned(), n))
                        .collect(),
                    relocate: relocate.then_some(true),
                    ..Scheduling::default()
                }),
                ..Start::default()
            },
        )
    }

    /// A START's payload in one of the styles that controllers may write.
    fn payloads() -> impl Strategy<Value = Bytes> {
        let block = |start: &Start| String::from_utf8(start.encode().to_vec()).unwrap();
        let flow = move |start: &Start| {
            let value: serde_yaml::Value = serde_yaml::from_str(&block(start)).unwrap();
            format!("{}\n", serde_json::to_string(&value).unwrap())
        };
        let commented = move |start: &Start| {
            let text =
                block(start).replace("restart: ", "later: {x: 010}\n  # a word\n  restart: ");
            format!("# first\n{text}")
        };
        let behind = [
            "",
            "...\n",
            "---\noverrides: {restart: true}\n...\nstart: {}\n",
        ];
        let styled = starts().prop_flat_map(move |start| {
            prop_oneof![
                Just(block(&start)),
                Just(format!("%YAML 1.1\n---\n{}", block(&start))),
                Just(flow(&start)),
                Just(commented(&start)),
            ]
        });
        (styled, proptest::sample::select(behind.to_vec()))
            .prop_map(|(text, behind)| format!("{text}{behind}").into())
    }

    fn changes() -> impl Strategy<Value = StartChanges> {
        let demand = (0_i64..2000, 0_i64..9, 0_i64..100_000, amounts());
        let demand = demand.prop_map(|(mem_mib, vcpus, disk_mib, amounts)| Demand {
            mem_mib,
            vcpus,
            disk_mib,
            resources: amounts.into_iter().map(|(it, n)| (it.into(), n)).collect(),
        });
        let time_used = proptest::option::of(1_u64..100_000);
        let changes = (any::<bool>(), proptest::option::of(demand), time_used);
        changes.prop_map(|(restart, demand, time_used_ms)| StartChanges {
            restart,
            demand,
            time_used_ms,
            ..StartChanges::default()
        })
    }

    proptest! {
        #[test]
        fn a_launcher_understands_the_same_of_overrides_as_of_edited_text(
            payload in payloads(),
            changes in changes(),
        ) {
            let edited = changed(&payload, &changes);
            let beside = changed(&payload, &as_fields(changes.clone()));
            prop_assert_eq!(&beside[beside.len() - payload.len()..], &payload[..]);
            let start = decode_start(&beside).unwrap();
            prop_assert_eq!(&decode_start(&edited).unwrap(), &start);
            prop_assert_eq!(start.restart, changes.restart || decode_start(&payload).unwrap().restart);
            let Some(demand) = changes.demand else {
                return Ok(());
            };
            let asked = (start.requirements.mem_mb, start.requirements.vcpus);
            prop_assert_eq!(asked, (demand.mem_mib, demand.vcpus));
            prop_assert_eq!(start.disk_mib(), Some((demand.disk_mib + 1023) / 1024 * 1024));
            let resources = start.scheduling.unwrap_or_default().resources;
            for (name, amount) in resources {
                prop_assert_eq!(demand.resources.get(&*name).copied().unwrap_or(0), amount);
            }
        }
    }
}
