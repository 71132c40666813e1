//! The cache: each image in a file that is called as its digest, which its owner may read and run. What no instance runs
//! goes where there is no room, least recently used first.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use proto_frames::payload::Digest;
use tracing::{info, warn};

use super::CacheConfig;
use crate::image_file::{Hash, Stamp, gone, own_directory};
use crate::launcher::files::is_storage_fault;

/// Bytes that the images of a node have at most, unless something else is said.
pub const DEFAULT_CACHE_QUOTA: u64 = 4 << 30;

/// What stands behind the digits of a file that is not complete.
const PART: &str = ".part";

/// The images that are there.
#[derive(Debug)]
pub(super) struct Cache {
    directory: PathBuf,
    quota: u64,
    images: BTreeMap<Digest, Image>,
    /// Which image each instance runs.
    held: BTreeMap<String, Digest>,
    /// Held as long as the cache is open; `None` while the disk takes no writes.
    lock: Option<File>,
}

#[derive(Debug)]
struct Image {
    bytes: u64,
    used: SystemTime,
    /// Its file when it was found to be what its digest says.
    verified: Option<Stamp>,
}

impl Cache {
    /// Opens it. Where the disk takes no writes, what is there can be run, and the directory is made with the next fetch.
    ///
    /// # Errors
    /// The directory cannot be used for another reason.
    pub(super) fn open(config: &CacheConfig) -> io::Result<Self> {
        let lock = match own_directory(&config.directory) {
            Ok(lock) => Some(lock),
            Err(error) if is_storage_fault(&error) => None,
            Err(error) => return Err(error),
        };
        let mut images = BTreeMap::new();
        let entries = match fs::read_dir(&config.directory) {
            Ok(entries) => Some(entries),
            Err(error) if lock.is_none() && error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        for entry in entries.into_iter().flatten() {
            let entry = entry?;
            if let Some(digest) = entry.file_name().to_str().and_then(Digest::from_hex) {
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
            directory: config.directory.clone(),
            quota: config.quota,
            images,
            held: BTreeMap::new(),
            lock,
        })
    }

    pub(super) fn hold(&mut self, instance: &str, digest: Digest) {
        self.held.insert(instance.to_owned(), digest);
    }

    pub(super) fn release(&mut self, instance: &str) {
        self.held.remove(instance);
    }

    /// The names of the images that were used last.
    pub(super) fn latest(&self, most: usize) -> Vec<String> {
        let mut images: Vec<_> = self.images.iter().collect();
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
    pub(super) fn part(&self, digest: &Digest) -> PathBuf {
        self.directory.join(digest.hex() + PART)
    }

    /// An image is there.
    pub(super) fn add(&mut self, digest: Digest, bytes: u64, verified: Option<Stamp>) {
        let image = Image {
            bytes,
            used: SystemTime::now(),
            verified,
        };
        self.images.insert(digest, image);
    }

    /// Makes room for so many bytes; why there is none, for people.
    pub(super) fn make_room(&mut self, bytes: u64) -> Result<(), String> {
        if self.lock.is_none() {
            let lock = own_directory(&self.directory).map_err(|error| {
                format!(
                    "the directory of images {} cannot be used: {error}",
                    self.directory.display()
                )
            })?;
            self.lock = Some(lock);
        }
        let stored: u64 = self.images.values().map(|image| image.bytes).sum();
        let mut excess = (stored.saturating_add(bytes)).saturating_sub(self.quota);
        let is_held = |digest: &Digest| self.held.values().any(|held| held == digest);
        let mut free: Vec<_> = self.images.iter().filter(|it| !is_held(it.0)).collect();
        free.sort_by_key(|(_, image)| image.used);
        let mut chosen = Vec::new();
        for (digest, image) in free {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(image.bytes);
            chosen.push(*digest);
        }
        if excess > 0 {
            return Err(format!(
                "no room for {bytes} bytes: images of the node may have {} (--blob-cache-quota of its launcher), and \
                 instances run what is there",
                self.quota
            ));
        }
        for digest in chosen {
            info!(
                event = "image_evicted",
                "{digest} is evicted from the cache of images: no instance runs it, and room is needed"
            );
            self.remove(&digest);
        }
        Ok(())
    }

    fn remove(&mut self, digest: &Digest) {
        self.images.remove(digest);
        if let Err(error) = gone(fs::remove_file(self.path(digest))) {
            warn!(event = "image_not_deleted", "{digest}: {error}");
        }
    }
}

/// The file of an image that is there and is what its digest says; one that is not, is removed. Blocks, but holds the lock
/// for moments only.
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

/// What the file is if it is what its digest says: looked at again only where it has changed.
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

    #[test]
    fn what_no_instance_runs_goes_least_recently_used_first_and_in_vain_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = open(directory.path(), 10);
        let (one, two) = (put(&mut cache, b"1111"), put(&mut cache, b"2222"));
        cache.hold("a", one);
        let refused = cache.make_room(7).unwrap_err();
        assert!(refused.contains("--blob-cache-quota"), "{refused}");
        assert_eq!(cache.latest(9).len(), 2);
        cache.make_room(6).unwrap();
        assert_eq!(cache.latest(9), [one.short()]);
        assert!(!cache.path(&two).exists() && cache.path(&one).exists());
        cache.release("a");
        cache.make_room(10).unwrap();
        assert_eq!(cache.latest(9), [""; 0]);
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
}
