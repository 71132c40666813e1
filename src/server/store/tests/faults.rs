//! Any pattern of failed writes, kills and power cuts: what is found is what was acknowledged last, or newer, and never
//! "damaged".

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;
use redb::StorageBackend;

use super::file::{OpenedStore, open_on};
use super::medium::{Access, Medium};
use super::*;

/// Histories that are tried.
const SEEDS: u64 = 60;

/// Steps of each.
const STEPS: usize = 60;

/// What the disk keeps or loses as a whole.
const PAGE: usize = 4096;

/// A disk with one file, in memory.
#[derive(Debug)]
struct Disk {
    /// What can be read.
    cached: Vec<u8>,
    /// What is there after a power cut, but for pages that are on their way.
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
    /// Pages that have room on the disk.
    allocated: BTreeSet<usize>,
    is_there: bool,
    chance: Rng,
    weather: Weather,
    /// Which process has the file open: what others have of it does nothing any more.
    process: u64,
}

/// What the disk does now.
#[derive(Debug, Clone, Copy)]
enum Weather {
    Fine,
    /// No page more than there are.
    Full,
    /// Nothing can be written or opened to be written.
    ReadOnly,
    /// One of so many writes, changes of length and syncs fails, some half done.
    Failing(u32),
}

impl Disk {
    fn fails(&mut self) -> bool {
        match self.weather {
            Weather::Failing(one_of) => self.chance.u32(0..one_of) == 0,
            Weather::ReadOnly => true,
            Weather::Fine | Weather::Full => false,
        }
    }

    fn error(&mut self) -> io::Error {
        let kind = match self.weather {
            Weather::ReadOnly => ErrorKind::ReadOnlyFilesystem,
            _ if self.chance.bool() => ErrorKind::StorageFull,
            _ => return io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()),
        };
        kind.into()
    }

    fn write(&mut self, offset: usize, data: &[u8]) -> io::Result<()> {
        assert!(
            offset + data.len() <= self.cached.len(),
            "written behind the end"
        );
        let pages = offset / PAGE..(offset + data.len()).div_ceil(PAGE);
        let is_full = matches!(self.weather, Weather::Full);
        let mut len = data.len();
        let mut failed = self.fails();
        if failed {
            len = if self.chance.bool() {
                self.chance.usize(..=len)
            } else {
                0
            };
        }
        for page in pages {
            if !self.allocated.contains(&page) && is_full {
                failed = true;
                len = len.min((page * PAGE).saturating_sub(offset));
                break;
            }
            self.allocated.insert(page);
        }
        self.cached[offset..offset + len].copy_from_slice(&data[..len]);
        self.dirty
            .extend(offset / PAGE..(offset + len).div_ceil(PAGE));
        if failed { Err(self.error()) } else { Ok(()) }
    }

    fn set_len(&mut self, len: usize) -> io::Result<()> {
        if self.fails() {
            return Err(self.error());
        }
        self.cached.resize(len, 0);
        // The length goes with the next sync, or by itself.
        self.dirty.insert(len / PAGE);
        self.allocated.retain(|page| *page < len.div_ceil(PAGE));
        Ok(())
    }

    fn put_on_disk(&mut self, page: usize) {
        let from = (page * PAGE).min(self.cached.len());
        let to = (from + PAGE).min(self.cached.len());
        if self.durable.len() < to {
            self.durable.resize(to, 0);
        }
        self.durable[from..to].copy_from_slice(&self.cached[from..to]);
    }

    /// One that fails puts some of it there, and the system takes all of it for written from then on.
    fn sync(&mut self) -> io::Result<()> {
        let failed = self.fails();
        for page in std::mem::take(&mut self.dirty) {
            if !failed || self.chance.bool() {
                self.put_on_disk(page);
            }
        }
        if failed {
            return Err(self.error());
        }
        self.durable.resize(self.cached.len(), 0);
        Ok(())
    }

    fn cut_power(&mut self) {
        for page in std::mem::take(&mut self.dirty) {
            if self.chance.bool() {
                self.put_on_disk(page);
            }
        }
        if self.chance.bool() {
            self.durable.resize(self.cached.len(), 0);
        }
        self.cached = self.durable.clone();
        let pages = self.cached.chunks(PAGE).enumerate();
        let used = pages.filter(|(_, page)| page.iter().any(|&byte| byte != 0));
        self.allocated = used.map(|(page, _)| page).collect();
    }
}

#[derive(Debug, Clone)]
struct SharedDisk(Arc<Mutex<Disk>>);

#[derive(Debug)]
struct Handle {
    disk: SharedDisk,
    process: u64,
    access: Access,
}

impl Medium for SharedDisk {
    fn open(&self, _: &Path, access: Access) -> io::Result<Box<dyn StorageBackend>> {
        let mut disk = self.0.lock();
        if access != Access::Read && matches!(disk.weather, Weather::ReadOnly) {
            return Err(disk.error());
        }
        if !disk.is_there && access != Access::Make {
            return Err(ErrorKind::NotFound.into());
        }
        disk.is_there = true;
        Ok(Box::new(Handle {
            disk: self.clone(),
            process: disk.process,
            access,
        }))
    }
}

impl Handle {
    fn with<T>(&self, work: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        let mut disk = self.disk.0.lock();
        if disk.process != self.process {
            return Err(io::Error::other("its process was killed"));
        }
        work(&mut disk)
    }

    fn changed(&self, work: impl FnOnce(&mut Disk) -> io::Result<()>) -> io::Result<()> {
        assert_ne!(self.access, Access::Read, "it was opened to be read");
        self.with(work)
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        self.with(|disk| Ok(disk.cached.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap();
        self.with(|disk| {
            let bytes = disk.cached.get(from..from + out.len());
            out.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.changed(|disk| disk.set_len(usize::try_from(len).unwrap()))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.changed(Disk::sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.changed(|disk| disk.write(usize::try_from(offset).unwrap(), data))
    }
}

type State = BTreeMap<RecordKey, Record>;

/// A store over such a disk, and what it may hold.
struct World {
    directory: tempfile::TempDir,
    disk: SharedDisk,
    file: Option<StoreFile>,
    /// What was acknowledged last, and is on disk for certain.
    acknowledged: State,
    /// What was found, with what was acknowledged since.
    current: State,
    /// What was tried to be written since, and may have been.
    tried: Vec<State>,
    /// What waits to be written.
    batch: Batch,
    version: u64,
    chance: Rng,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Rng::with_seed(seed);
        let disk = Disk {
            cached: Vec::new(),
            durable: Vec::new(),
            dirty: BTreeSet::new(),
            allocated: BTreeSet::new(),
            is_there: false,
            chance: chance.fork(),
            weather: Weather::Fine,
            process: 0,
        };
        Self {
            directory: tempfile::tempdir().unwrap(),
            disk: SharedDisk(Arc::new(Mutex::new(disk))),
            file: None,
            acknowledged: State::new(),
            current: State::new(),
            tried: Vec::new(),
            batch: Batch::new(),
            version: 0,
            chance,
        }
    }

    /// Opens the store as a process does that has just begun; what is found has to be what was acknowledged, or newer.
    fn open(&mut self) {
        let path = self.directory.path().join(STORE_FILE);
        let medium = Arc::new(self.disk.clone());
        let OpenedStore {
            file,
            records,
            unreadable,
            refused,
            ..
        } = open_on(medium, &path, IfAbsent::Make)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.disk.0.lock().weather));
        let found: State = records.into_iter().collect();
        assert!(unreadable.is_empty(), "{unreadable:?}");
        let is_known = found == self.acknowledged || self.tried.contains(&found);
        let (count, expected) = (found.len(), self.acknowledged.len());
        assert!(is_known, "{count} records, {expected} acknowledged");
        // What was not acknowledged is not known to the next process but from here. Where it was only read, it may still
        // be lost with the power.
        if refused.is_none() {
            self.acknowledged = found.clone();
            self.tried.clear();
        }
        self.current = found;
        self.batch.clear();
        self.file = Some(file);
    }

    fn change(&mut self) {
        for _ in 0..self.chance.usize(1..8) {
            self.version += 1;
            let key = instance(self.chance.u64(0..40));
            let record = self.chance.u8(0..4) > 0;
            let record = record.then(|| sized(self.version, self.chance.usize(0..20_000)));
            self.batch.insert(key, record);
        }
    }

    fn write(&mut self) {
        let Some(file) = &mut self.file else {
            return;
        };
        let mut state = self.current.clone();
        for (key, record) in &self.batch {
            match record {
                Some(record) => state.insert(key.clone(), record.clone()),
                None => state.remove(key),
            };
        }
        match file.write(&self.batch) {
            Ok(()) => {
                self.batch.clear();
                self.tried.clear();
                self.acknowledged = state.clone();
                self.current = state;
            }
            Err(_) => self.tried.push(state),
        }
    }

    fn end(&mut self) {
        let is_killed = self.chance.bool();
        let mut is_cut = is_killed && self.chance.bool();
        if is_killed {
            self.disk.0.lock().process += 1;
        }
        if let Some(file) = self.file.take() {
            // The next process does not know what the system has forgotten; only a power cut tells.
            is_cut |= file.is_sync_in_doubt();
        }
        let mut disk = self.disk.0.lock();
        disk.process += 1;
        if is_cut {
            disk.cut_power();
        }
    }

    fn step(&mut self) {
        match self.chance.u8(0..12) {
            0 => {
                let weather = match self.chance.u8(0..4) {
                    0 => Weather::Full,
                    1 => Weather::ReadOnly,
                    2 => Weather::Failing(self.chance.u32(1..60)),
                    _ => Weather::Fine,
                };
                self.disk.0.lock().weather = weather;
            }
            1 => {
                self.end();
                self.open();
            }
            2..7 => self.change(),
            _ => self.write(),
        }
    }
}

fn sized(number: u64, len: usize) -> Record {
    let Record::Instance(mut record) = waiting(number) else {
        unreachable!("it is of an instance");
    };
    record.payload = Some(Bytes::from(vec![b'x'; len]));
    Record::Instance(record)
}

#[test]
fn whatever_fails_what_was_acknowledged_is_found_again() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        let run = AssertUnwindSafe(|| {
            world.open();
            for _ in 0..STEPS {
                world.step();
            }
            world.disk.0.lock().weather = Weather::Fine;
            world.change();
            world.write();
            assert!(
                world.batch.is_empty(),
                "what waited is written when the disk takes it"
            );
            world.end();
            world.open();
        });
        if let Err(panic) = catch_unwind(run) {
            panic!("seed {seed}: {}", said(&*panic));
        }
    }
}

#[test]
fn a_store_on_a_disk_that_can_only_be_read_is_read() {
    let mut world = World::new(1);
    world.open();
    world.change();
    world.write();
    assert!(!world.acknowledged.is_empty());
    for is_killed in [false, true] {
        world.disk.0.lock().weather = Weather::ReadOnly;
        if is_killed {
            world.disk.0.lock().process += 1;
        }
        world.file = None;
        world.open();
        world.change();
        world.write();
        assert!(!world.batch.is_empty(), "nothing is written");
        world.disk.0.lock().weather = Weather::Fine;
        world.write();
        assert!(world.batch.is_empty());
    }
}
