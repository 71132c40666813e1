//! A START's payload as its launcher is to read it, where it no longer says all: a restart, or other amounts since an
//! UPDATE. One of which nothing has changed leaves as the very bytes that came. Likewise a DELETE that goes to another node
//! than it names.
//!
//! Original launchers and unknown keys are why the text is edited rather than written again from what was read. By its
//! looks first ([`crate::edit`]), which leaves every other byte alone; what reads back as something else is written from
//! the parsed document instead, with everything that is in it.

use bytes::Bytes;
use proto_frames::Frame;
use proto_frames::payload::guard::{SMALL, first_document};
use proto_frames::payload::{Delete, Payload, Scheduling, Start, Storage};
use serde_yaml::{Mapping, Value};

use super::parcels::frame_of;
use crate::edit;
use sched_core::{Demand, PlacedStart, StartChanges, TargetedCommand};

/// MiB in a GiB: disks are asked for in GiB.
const MIB_PER_GIB: i64 = 1024;

/// What the longest new value and its key add to a payload, in bytes, beside the name of a custom resource.
const VALUE_COST: usize = 64;

/// The frame that a launcher is sent.
pub(super) fn frame(start: &PlacedStart) -> Frame {
    let mut frame = frame_of(&start.parcel);
    if let Some(changes) = &start.changes {
        frame.payload = changed(&frame.payload, changes);
    }
    frame
}

/// The command that a launcher is sent: one for an instance on another node than was thought names that node, because
/// launchers refuse what is not for them.
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

/// What the changes may add to a START's cost in a queue, in bytes.
pub(super) fn cost(start: &PlacedStart) -> usize {
    let demand = |changes: &StartChanges| {
        let resources = changes.demand.iter().flat_map(|it| it.resources.keys());
        4 * VALUE_COST + resources.map(|it| VALUE_COST + it.len()).sum::<usize>()
    };
    start.changes.as_deref().map_or(0, demand)
}

/// A payload with changes in it. One that cannot be read, which no START's is that was placed, is left as it is.
fn changed(payload: &Bytes, changes: &StartChanges) -> Bytes {
    let Ok(before) = Start::decode_placed(payload) else {
        return payload.clone();
    };
    let wanted = wanted(&before, changes);
    let is_meant = |text: &Bytes| Start::decode_placed(text).is_ok_and(|read| read == wanted);
    patch_text(payload, &before, &wanted)
        .filter(is_meant)
        .or_else(|| by_value(payload, &wanted))
        .filter(is_meant)
        .unwrap_or_else(|| payload.clone())
}

/// What the payload is to say.
fn wanted(before: &Start, changes: &StartChanges) -> Start {
    let mut wanted = before.clone();
    wanted.restart |= changes.restart;
    let Some(demand) = &changes.demand else {
        return wanted;
    };
    wanted.requirements.mem_mb = demand.mem_mib;
    wanted.requirements.vcpus = demand.vcpus;
    set_disk(&mut wanted.storage, demand.disk_mib);
    set_resources(&mut wanted.scheduling, demand);
    wanted
}

/// Makes the local disks add up to so much, in whole GiB: the last one grows or shrinks, and others only where that is
/// not enough.
fn set_disk(storage: &mut Vec<Storage>, disk_mib: i64) {
    let mut left = in_whole_gib(disk_mib);
    let has_local = storage.iter().any(|disk| disk.local);
    if !has_local && left > 0 {
        let (local, ephemeral) = (true, true);
        storage.push(Storage {
            local,
            ephemeral,
            ..Storage::default()
        });
    }
    let last = storage.iter().rposition(|disk| disk.local);
    for (at, disk) in storage.iter_mut().enumerate().filter(|(_, it)| it.local) {
        let is_last = Some(at) == last;
        disk.size = if is_last { left } else { disk.size.min(left) };
        left -= disk.size;
    }
}

fn in_whole_gib(disk_mib: i64) -> i64 {
    let disk_mib = disk_mib.max(0);
    disk_mib / MIB_PER_GIB + i64::from(disk_mib % MIB_PER_GIB > 0)
}

/// Names that are asked for no more stay with 0: that they were there is no reason to write the document again.
fn set_resources(scheduling: &mut Option<Scheduling>, demand: &Demand) {
    if demand.resources.is_empty() && scheduling.is_none() {
        return;
    }
    let resources = &mut scheduling.get_or_insert_default().resources;
    for amount in resources.values_mut() {
        *amount = 0;
    }
    for (name, amount) in &demand.resources {
        resources.insert(name.to_string(), *amount);
    }
}

/// The text with each value that differs put in; `None` where that is not plain to do.
fn patch_text(payload: &Bytes, before: &Start, wanted: &Start) -> Option<Bytes> {
    let mut text = payload.clone();
    let mut set = |path: &[&str], value: &str| {
        text = edit::set(&text, path, value)?;
        Some(())
    };
    if wanted.restart != before.restart {
        set(&["start", "restart"], "true")?;
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

/// The first document written again from what is in it, with what is wanted; the others as they are.
fn by_value(payload: &Bytes, wanted: &Start) -> Option<Bytes> {
    let document = first_document(payload, SMALL).ok()?;
    let mut root: Value = serde_yaml::from_slice(document).ok()?;
    let start = child(root.as_mapping_mut()?, "start")?;
    start.insert("restart".into(), wanted.restart.into());
    let requirements = child(start, "requirements")?;
    requirements.insert("mem_mb".into(), wanted.requirements.mem_mb.into());
    requirements.insert("vcpus".into(), wanted.requirements.vcpus.into());
    let resources = wanted.scheduling.iter().flat_map(|it| &it.resources);
    for (name, amount) in resources {
        let resources = child(child(start, "scheduling")?, "resources")?;
        resources.insert(name.as_str().into(), (*amount).into());
    }
    put_disks(start, &wanted.storage)?;
    let mut text = String::from("---\n");
    text.push_str(&serde_yaml::to_string(&root).ok()?);
    let mut text = text.into_bytes();
    text.extend_from_slice(&payload[document.len()..]);
    Some(text.into())
}

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

/// The mapping under a key, made if there is none.
fn child<'a>(parent: &'a mut Mapping, key: &str) -> Option<&'a mut Mapping> {
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
    use proto_frames::payload::{Payload, Start};

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
            demand: None,
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
        }
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
}
