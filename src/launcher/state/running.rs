//! The records of instances, and the other record of each that may run: beside the instances' directories, because those
//! are their workloads' to remove.
//!
//! ```text
//! <state>/running/<instance>.json     as record.json in the instance's directory; gone once the instance has ended
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tracing::{debug, warn};

use super::{StateDir, entries, make_dir};
use crate::launcher::agent::{InstanceRecord, is_file_name};
use crate::launcher::files::{InstanceDir, read_json, write_json};

impl StateDir {
    /// Writes the other record of an instance that may run.
    ///
    /// # Errors
    /// Those of writing a file.
    pub(super) fn save_running(&self, record: &InstanceRecord) -> io::Result<()> {
        let path = running_record(&self.root, &record.instance);
        write_json(&path, record).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                make_dir(&self.root.join("running"))?;
                write_json(&path, record)
            }
            _ => Err(error),
        })
    }

    /// Removes it, where there is one.
    pub(super) fn forget_running(&self, id: &str) {
        let path = running_record(&self.root, id);
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            debug!(path = %path.display(), %error, "cannot be deleted");
        }
    }

    /// Puts back what was removed of instances that may run: their directories, and the records in them.
    pub(super) fn put_back(&self) {
        for path in entries(&self.root.join("running")) {
            let Some(record) = read_running(&path) else {
                continue;
            };
            let dir = self.instance(&record.instance);
            match read_json::<InstanceRecord>(&dir.record()) {
                // It ended, and the launcher was ended before it had removed this.
                Ok(Some(known)) if known.has_ended() => self.forget_running(&record.instance),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => {
                    let dir_there = make_dir(&dir.0).or_else(|error| match error.kind() {
                        io::ErrorKind::AlreadyExists => Ok(()),
                        _ => Err(error),
                    });
                    let done = dir_there.and_then(|()| write_json(&dir.record(), &record));
                    warn!(
                        event = "instance_files_removed",
                        instance = record.instance,
                        put_back = done.is_ok(),
                        "files of an instance were removed while it ran; it is known by another record"
                    );
                }
            }
        }
    }
}

/// Every record, of an instance whose directory has none the other one, in order of instance id.
pub(super) fn records_in(root: &Path) -> Vec<InstanceRecord> {
    let mut records = BTreeMap::new();
    for path in entries(&root.join("instances")) {
        let path = InstanceDir(path).record();
        match read_json::<InstanceRecord>(&path) {
            Ok(record) => records.extend(record.map(|it| (it.instance.clone(), it))),
            Err(error) => {
                warn!(event = "instance_record_unreadable", path = %path.display(), %error, "instance record cannot be read; ignored");
            }
        }
    }
    let others = entries(&root.join("running")).filter_map(|path| read_running(&path));
    for record in others {
        records.entry(record.instance.clone()).or_insert(record);
    }
    records.into_values().collect()
}

/// Where the other record of an instance that may run is.
fn running_record(root: &Path, id: &str) -> PathBuf {
    root.join("running").join(format!("{id}.json"))
}

/// The other record of an instance, if the file is one and is called as it should be.
fn read_running(path: &Path) -> Option<InstanceRecord> {
    let name = path.file_name()?.to_str()?;
    let id = name.strip_suffix(".json")?;
    match read_json::<InstanceRecord>(path) {
        Ok(record) => record.filter(|it| it.instance == id && is_file_name(id) && !it.has_ended()),
        Err(error) => {
            debug!(path = %path.display(), %error, "cannot be read");
            None
        }
    }
}
