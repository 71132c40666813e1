//! The cache: each image in a file that is called as its digest, which its owner may read and run, and beside them the
//! parts of those that are being fetched or whose fetch was given up ([`parts`]).
//!
//! Both count towards the quota. Where room is needed, parts go first for which no fetch is under way, then images that
//! no instance runs, the least recently used first; the time of use is the file's modification time, so that the order
//! survives a restart. What is in a file is compared with its digest before it is first run, and again only if the file
//! has changed.

mod parts;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use proto_frames::payload::Digest;
use tracing::{info, warn};

use self::parts::Parts;
use super::CacheConfig;
use crate::image_file::{Hash, Stamp, gone, own_directory};
use crate::launcher::files::is_storage_fault;

/// Bytes that the images of a node have at most, unless something else is said.
pub const DEFAULT_CACHE_QUOTA: u64 = 4 << 30;

/// What follows the digits in the name of a file that is not complete.
const PART: &str = ".part";

/// The images that are there. Behind one mutex, which is held for moments: files are hashed outside of it.
#[derive(Debug)]
pub(super) struct Cache {
    directory: PathBuf,
    /// Bytes that all images together may have.
    quota: u64,
    images: BTreeMap<Digest, Image>,
    /// Images that are not complete.
    parts: Parts,
    /// Which images each instance runs, or is about to; these are not evicted.
    held: BTreeMap<String, Box<[Digest]>>,
    /// What images were held as. There is none of those that no instance of this launcher has had.
    uses: BTreeMap<Digest, Use>,
    /// Keeps a second launcher out of the directory. `None` while the disk takes no writes: then what is there can be
    /// run, and the lock is taken with the next fetch.
    lock: Option<File>,
}

/// What an image is to instances. To some it may be a program, and to others a further file: then it is a program here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// A program, which nodes say they have.
    Program,
    /// A file that is never run by itself: no START asks for nodes that have it.
    Further,
}

/// A complete file.
#[derive(Debug)]
struct Image {
    bytes: u64,
    /// When an instance was last started from it.
    used: SystemTime,
    /// The file's metadata when its contents were last compared with the digest; `None` before the first time.
    verified: Option<Stamp>,
}

impl Cache {
    /// Opens it. Where the disk takes no writes, what is there can be run, and the directory is made with the next
    /// fetch.
    ///
    /// # Errors
    /// The directory cannot be used for another reason.
    pub(super) fn open(config: &CacheConfig) -> io::Result<Self> {
        // Instances run in directories of their own.
        let directory = std::path::absolute(&config.directory)?;
        let lock = match own_directory(&directory) {
            Ok(lock) => Some(lock),
            Err(error) if is_storage_fault(&error) => None,
            Err(error) => return Err(error),
        };
        let mut images = BTreeMap::new();
        let mut parts = Parts::default();
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => Some(entries),
            Err(error) if lock.is_none() && error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        for entry in entries.into_iter().flatten() {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                continue;
            };
            if let Some(digest) = name.strip_suffix(PART).and_then(Digest::from_hex) {
                let file = entry.metadata()?;
                parts.found(digest, file.len(), file.modified()?);
            } else if let Some(digest) = Digest::from_hex(name) {
                let file = entry.metadata()?;
                let image = Image {
                    bytes: file.len(),
                    used: file.modified()?,
                    verified: None,
                };
                images.insert(digest, image);
            }
        }
        Ok(Self {
            directory,
            quota: config.quota,
            images,
            parts,
            held: BTreeMap::new(),
            uses: BTreeMap::new(),
            lock,
        })
    }

    /// Notes that an instance runs these images, or is about to. The first is its program.
    pub(super) fn hold(&mut self, instance: &str, digests: &[Digest]) {
        if let [program, further @ ..] = digests {
            for image in further {
                self.uses.entry(*image).or_insert(Use::Further);
            }
            self.uses.insert(*program, Use::Program);
        }
        self.held.insert(instance.to_owned(), digests.into());
    }

    /// Notes that an instance does not run its images any more.
    pub(super) fn release(&mut self, instance: &str) {
        for image in self.held.remove(instance).iter().flatten() {
            let is_held = self.held.values().any(|held| held.contains(image));
            if !is_held && !self.images.contains_key(image) {
                self.uses.remove(image);
            }
        }
    }

    /// The short names of the programs that were used last, at most so many, sorted by name: the same set is the same
    /// report.
    pub(super) fn latest(&self, most: usize) -> Vec<String> {
        let is_program = |digest: &Digest| self.uses.get(digest) != Some(&Use::Further);
        let mut images: Vec<_> = self.images.iter().filter(|it| is_program(it.0)).collect();
        images.sort_by_key(|(_, image)| std::cmp::Reverse(image.used));
        let names = images.into_iter().take(most);
        let mut names: Vec<String> = names.map(|(digest, _)| digest.short()).collect();
        // The same images are the same news.
        names.sort();
        names
    }

    /// Where an image is, or is to be.
    pub(super) fn path(&self, digest: &Digest) -> PathBuf {
        self.directory.join(digest.hex())
    }

    /// Where the part of it is that has come.
    fn part(&self, digest: &Digest) -> PathBuf {
        self.directory.join(digest.hex() + PART)
    }

    /// A fetch begins: what there is of the image stays until [`Self::end`]. Returns where the part is, or is to be.
    ///
    /// # Errors
    /// A text for the START: the directory cannot be used.
    pub(super) fn begin(&mut self, digest: Digest) -> Result<PathBuf, String> {
        if self.lock.is_none() {
            let lock = own_directory(&self.directory).map_err(|error| {
                format!(
                    "the directory of images {} cannot be used: {error}",
                    self.directory.display()
                )
            })?;
            self.lock = Some(lock);
        }
        self.parts.begin(digest);
        Ok(self.part(&digest))
    }

    /// A fetch has ended, well or not: a part that is on disk counts, and may go, from here on. An empty one is of no
    /// use and goes at once.
    pub(super) fn end(&mut self, digest: &Digest) {
        let path = self.part(digest);
        let file = fs::symlink_metadata(&path);
        self.parts.end(digest);
        match file {
            Ok(file) if file.len() > 0 => {
                let written = file.modified().unwrap_or_else(|_| SystemTime::now());
                self.parts.found(*digest, file.len(), written);
            }
            Ok(_) => self.remove_part(digest),
            Err(_) => {}
        }
    }

    /// Adds a complete file, which is in its place, to the list.
    pub(super) fn add(&mut self, digest: Digest, bytes: u64, verified: Option<Stamp>) {
        let image = Image {
            bytes,
            used: SystemTime::now(),
            verified,
        };
        // Both would count until the fetch ends otherwise.
        self.parts.end(&digest);
        self.images.insert(digest, image);
    }

    /// Reserves so many bytes for an image that is being fetched, all of it, until its fetch ends. Where they do not
    /// fit into the quota beside what is there and what is reserved, parts and images are removed; enough of them, or
    /// none.
    ///
    /// # Errors
    /// A text for the START: what instances run and what is being fetched leaves no room.
    pub(super) fn reserve(&mut self, digest: Digest, bytes: u64) -> Result<(), String> {
        let images: u64 = self.images.values().map(|image| image.bytes).sum();
        let stored = images.saturating_add(self.parts.bytes_beside(&digest));
        let mut excess = (stored.saturating_add(bytes)).saturating_sub(self.quota);
        let mut go = |len: u64| {
            let goes = excess > 0;
            excess = excess.saturating_sub(len);
            goes
        };
        let mut parts = self.parts.idle();
        parts.retain(|(_, len)| go(*len));
        let images = self.images.iter();
        let mut free: Vec<_> = images.filter(|it| !self.is_held(it.0)).collect();
        free.sort_by_key(|(_, image)| image.used);
        free.retain(|(_, image)| go(image.bytes));
        let images: Vec<Digest> = free.into_iter().map(|(digest, _)| *digest).collect();
        if excess > 0 {
            return Err(format!(
                "no room for {bytes} bytes: images of the node may have {} (--blob-cache-quota of its launcher), and \
                 instances run what is there, or it is being fetched",
                self.quota
            ));
        }
        for (digest, len) in parts {
            info!(
                event = "image_evicted",
                "{len} bytes of {digest} are evicted from the cache of images: its fetch was given up, and room is needed"
            );
            self.remove_part(&digest);
        }
        for digest in images {
            info!(
                event = "image_evicted",
                "{digest} is evicted from the cache of images: no instance runs it, and room is needed"
            );
            self.remove(&digest);
        }
        self.parts.reserve(digest, bytes);
        Ok(())
    }

    /// Whether an instance has it, or is about to.
    fn is_held(&self, digest: &Digest) -> bool {
        self.held.values().any(|held| held.contains(digest))
    }

    /// Removes an image from the list and its file; a failure of the latter is logged.
    fn remove(&mut self, digest: &Digest) {
        self.images.remove(digest);
        if !self.is_held(digest) {
            self.uses.remove(digest);
        }
        if let Err(error) = gone(fs::remove_file(self.path(digest))) {
            warn!(event = "image_not_deleted", "{digest}: {error}");
        }
    }

    /// The same of a part.
    fn remove_part(&mut self, digest: &Digest) {
        self.parts.end(digest);
        if let Err(error) = gone(fs::remove_file(self.part(digest))) {
            warn!(event = "image_not_deleted", "part of {digest}: {error}");
        }
    }
}

/// The file of an image that is there and is what its digest says; one that is not is removed, and `None`, so that it
/// is fetched again. Blocks for as long as hashing takes, but holds the lock for moments only.
///
/// # Errors
/// The file is there and cannot be read.
pub(super) fn find(cache: &Mutex<Cache>, digest: &Digest) -> io::Result<Option<PathBuf>> {
    let (path, verified) = {
        let mut cache = cache.lock();
        let path = cache.path(digest);
        let Some(image) = cache.images.get_mut(digest) else {
            return Ok(None);
        };
        image.used = SystemTime::now();
        (path, image.verified)
    };
    let stamp = match stamp(&path, verified, digest) {
        Ok(stamp) => stamp,
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mut cache = cache.lock();
    if stamp.is_none() {
        warn!(
            event = "image_corrupt",
            "the copy of {digest} in {} is not what it was: it is fetched again",
            cache.directory.display()
        );
        cache.remove(digest);
        return Ok(None);
    }
    if let Some(image) = cache.images.get_mut(digest) {
        image.verified = stamp;
    }
    Ok(Some(path))
}

/// The file's metadata if its contents are what the digest says, which is looked at only where the metadata differ from
/// `verified`.
fn stamp(path: &Path, verified: Option<Stamp>, digest: &Digest) -> io::Result<Option<Stamp>> {
    let file = File::open(path)?;
    let found = Stamp::from(&file.metadata()?);
    if verified != Some(found) && Hash::of(&file)?.digest() != Some(*digest) {
        return Ok(None);
    }
    // For the order of use across restarts. It changes the file's inode: the stamp is taken after it.
    let _ = file.set_modified(SystemTime::now());
    Ok(Some(Stamp::from(&file.metadata()?)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn put(cache: &mut Cache, contents: &[u8]) -> Digest {
        let digest = Hash::of(contents).unwrap().digest().unwrap();
        fs::write(cache.path(&digest), contents).unwrap();
        cache.add(digest, contents.len() as u64, None);
        digest
    }

    fn open(directory: &Path, quota: u64) -> Cache {
        let directory = directory.to_owned();
        Cache::open(&CacheConfig { directory, quota }).unwrap()
    }

    /// Begins to fetch an image of so many bytes, of which some are there.
    fn fetch(cache: &mut Cache, name: &str, total: u64, there: &[u8]) -> Result<Digest, String> {
        let digest = Hash::of(name.as_bytes()).unwrap().digest().unwrap();
        let path = cache.begin(digest).unwrap();
        cache.reserve(digest, total)?;
        fs::write(path, there).unwrap();
        Ok(digest)
    }

    #[test]
    fn fetches_under_way_have_their_room_and_what_they_leave_goes_before_images() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = open(directory.path(), 10);
        let image = put(&mut cache, b"11");
        let one = fetch(&mut cache, "one", 6, b"1").unwrap();
        cache.hold("a", &[image]);
        let refused = fetch(&mut cache, "two", 3, b"").unwrap_err();
        assert!(refused.contains("it is being fetched"), "{refused}");
        cache.release("a");
        // Its fetch is given up: what is on disk counts, and is the first to go.
        let part = File::open(cache.part(&one)).unwrap();
        part.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        cache.end(&one);
        let two = fetch(&mut cache, "two", 7, b"22").unwrap();
        assert!(cache.part(&one).exists() && cache.path(&image).exists());
        cache.end(&two);
        let three = fetch(&mut cache, "three", 6, b"").unwrap();
        let left = [&one, &two].map(|it| cache.part(it).exists());
        assert_eq!(left, [false, true], "the older one, and no more than that");
        cache.end(&three);
        assert!(!cache.part(&three).exists(), "an empty one is of no use");
        fetch(&mut cache, "four", 10, b"").unwrap();
        assert!(!cache.part(&two).exists() && !cache.path(&image).exists());
    }

    #[test]
    fn parts_of_an_earlier_launcher_count_until_they_go_on_or_go() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = open(directory.path(), 10);
        let one = fetch(&mut cache, "one", 6, b"111").unwrap();
        let two = fetch(&mut cache, "two", 4, b"22").unwrap();
        drop(cache);
        let mut cache = open(directory.path(), 10);
        fetch(&mut cache, "one", 6, b"1111").unwrap();
        fetch(&mut cache, "three", 3, b"").unwrap();
        let left = [&one, &two].map(|it| cache.part(it).exists());
        assert_eq!(left, [true, false], "the one that is being fetched stays");
    }

    #[test]
    fn what_no_instance_runs_goes_least_recently_used_first_and_in_vain_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = open(directory.path(), 10);
        let (one, two) = (put(&mut cache, b"1111"), put(&mut cache, b"2222"));
        cache.hold("a", &[one]);
        let refused = fetch(&mut cache, "x", 7, b"").unwrap_err();
        assert!(refused.contains("--blob-cache-quota"), "{refused}");
        assert_eq!(cache.latest(9).len(), 2);
        let digest = fetch(&mut cache, "x", 6, b"").unwrap();
        assert_eq!(cache.latest(9), [one.short()]);
        assert!(!cache.path(&two).exists() && cache.path(&one).exists());
        cache.end(&digest);
        cache.release("a");
        fetch(&mut cache, "x", 10, b"").unwrap();
        assert_eq!(cache.latest(9), [""; 0]);
    }

    #[test]
    fn all_images_of_an_instance_stay_until_it_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = open(directory.path(), 10);
        let images = [&b"111"[..], b"222", b"333"].map(|it| put(&mut cache, it));
        cache.hold("a", &images[..2]);
        cache.hold("b", &images[1..]);
        cache.release("b");
        fetch(&mut cache, "x", 5, b"").unwrap_err();
        fetch(&mut cache, "x", 4, b"").unwrap();
        let left = images.map(|it| cache.path(&it).exists());
        assert_eq!(left, [true, true, false]);
    }

    #[test]
    fn a_node_says_of_programs_that_it_has_them_and_not_of_what_they_read() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = open(directory.path(), 10);
        let [one, two, three] = [&b"1"[..], b"2", b"3"].map(|it| put(&mut cache, it));
        let names = |of: &[Digest]| {
            let mut names: Vec<String> = of.iter().map(Digest::short).collect();
            names.sort();
            names
        };
        cache.hold("a", &[one, one, two, three]);
        assert_eq!(cache.latest(9), names(&[one]));
        // It is the program of another one.
        cache.hold("b", &[two, one]);
        cache.release("a");
        cache.release("b");
        assert_eq!(cache.latest(9), names(&[one, two]));
        let missing = Hash::of(&b"missing"[..]).unwrap().digest().unwrap();
        cache.hold("c", &[one, missing]);
        assert_eq!(cache.uses.len(), 4);
        cache.release("c");
        assert_eq!(cache.uses.len(), 3, "what never came is forgotten");
    }

    #[test]
    fn what_is_there_is_found_again_and_run_only_if_it_is_what_its_digest_says() {
        let directory = tempfile::tempdir().unwrap();
        let digest = put(&mut open(directory.path(), 10), b"1111");
        let cache = Mutex::new(open(directory.path(), 10));
        let path = find(&cache, &digest).unwrap().unwrap();
        assert_eq!(find(&cache, &digest).unwrap(), Some(path.clone()));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(&path, b"1112").unwrap();
        assert_eq!(find(&cache, &digest).unwrap(), None);
        assert!(!path.exists());
    }

    #[test]
    fn a_program_runs_in_any_directory_also_where_that_of_the_cache_is_said_relative_to_one() {
        let directory = tempfile::tempdir().unwrap();
        let here = std::env::current_dir().unwrap();
        let up = here.components().skip(1).map(|_| "..");
        let down = directory.path().strip_prefix("/").unwrap();
        let relative = up.collect::<PathBuf>().join(down);
        let mut cache = open(&relative, 10);
        let digest = put(&mut cache, b"1111");
        let path = find(&Mutex::new(cache), &digest).unwrap().unwrap();
        assert!(path.is_absolute(), "{}", path.display());
    }
}
