//! The store alone: what is pushed is there whole or not at all, over restarts too, and within its quota.

use std::fs;

use proto_frames::payload::image::MAX_IMAGE_CHUNK;
use proto_frames::payload::{Digest, ImageFailure, WriteImage};

use super::pushing::MAX_UPLOADS;
use super::{InUse, PART, Pushed, Quota, Refused, Store};
use crate::image_file::Hash;

const QUOTA: Quota = Quota {
    all: 100,
    tenant: 60,
};

struct World {
    directory: tempfile::TempDir,
    store: Option<Store>,
    in_use: InUse,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), QUOTA).unwrap();
        Self {
            directory,
            store: Some(store),
            in_use: InUse::new(),
        }
    }

    fn restart(&mut self) {
        self.store = None;
        self.store = Some(Store::open(self.directory.path(), QUOTA).unwrap());
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().unwrap()
    }

    /// Hands in a part of a file; the file's digest is that of `whole`.
    fn write(
        &mut self,
        whole: &[u8],
        tenant: &str,
        part: &[u8],
        offset: u64,
    ) -> Result<Pushed, Refused> {
        let write = WriteImage {
            offset,
            total: whole.len() as u64,
            tenant: tenant.to_owned(),
            ..WriteImage::default()
        };
        let in_use = self.in_use.clone();
        let digest = digest(whole);
        self.store().write(&digest, (&write, part), "me", || in_use)
    }

    fn push(&mut self, whole: &[u8], tenant: &str) -> Result<Pushed, Refused> {
        self.write(whole, tenant, whole, 0)
    }

    /// Asks how much of a file is there, which begins its push. A push is refused where it has no place or no room.
    fn begin(&mut self, whole: &[u8], tenant: &str) -> Result<Pushed, Refused> {
        self.write(whole, tenant, b"", 0)
    }

    /// Whether a part of a file is on disk.
    fn has_part(&self, whole: &[u8]) -> bool {
        let name = digest(whole).hex() + PART;
        fs::symlink_metadata(self.directory.path().join(name)).is_ok()
    }

    fn listed(&mut self) -> Vec<Digest> {
        let list = self.store().list(None, &InUse::new());
        list.images
            .iter()
            .map(|row| row.digest.parse().unwrap())
            .collect()
    }
}

fn digest(bytes: &[u8]) -> Digest {
    Hash::of(bytes).unwrap().digest().unwrap()
}

fn failure(result: Result<Pushed, Refused>) -> ImageFailure {
    result.unwrap_err().failure
}

#[test]
fn what_is_pushed_in_parts_over_a_restart_is_there_and_says_whose_it_is() {
    let mut world = World::new();
    let whole = b"one two three";
    assert_eq!(world.write(whole, "t", b"", 0).unwrap(), Pushed::Part(0));
    assert_eq!(
        world.write(whole, "t", b"one ", 0).unwrap(),
        Pushed::Part(4)
    );
    world.restart();
    assert_eq!(world.write(whole, "t", b"", 0).unwrap(), Pushed::Part(4));
    // A part that does not follow is not taken: its sender is told where to go on.
    assert_eq!(
        world.write(whole, "t", b"three", 8).unwrap(),
        Pushed::Part(4)
    );
    let complete = world.write(whole, "t", b"two three", 4).unwrap();
    assert_eq!(complete, Pushed::Complete(13));
    assert_eq!(world.push(whole, "u").unwrap(), Pushed::There(13));
    world.restart();
    let list = world.store().list(None, &InUse::new());
    let [row] = &list.images[..] else {
        panic!("{list:?}")
    };
    assert_eq!((&*row.tenant, &*row.pushed_by, row.bytes), ("t", "me", 13));
    let (chunk, total) = world
        .store()
        .read(&digest(whole), 4, MAX_IMAGE_CHUNK)
        .unwrap();
    assert_eq!((&chunk[..], total), (&b"two three"[..], 13));
    let (chunk, total) = world
        .store()
        .read(&digest(whole), 13, MAX_IMAGE_CHUNK)
        .unwrap();
    assert_eq!((chunk.len(), total), (0, 13));
}

#[test]
fn what_is_not_what_its_digest_says_is_not_kept() {
    let mut world = World::new();
    let refused = world.write(b"abc", "t", b"abd", 0);
    assert_eq!(failure(refused), ImageFailure::WrongDigest);
    assert_eq!(world.listed(), []);
    assert_eq!(world.push(b"abc", "t").unwrap(), Pushed::Complete(3));
    assert_eq!(failure(world.push(b"", "t")), ImageFailure::InvalidData);
    let unknown = world
        .store()
        .read(&digest(b"x"), 0, MAX_IMAGE_CHUNK)
        .unwrap_err();
    assert_eq!(unknown.failure, ImageFailure::NoImage);
}

#[test]
fn a_copy_that_was_damaged_is_taken_in_anew() {
    let mut world = World::new();
    world.push(b"abc", "t").unwrap();
    let path = world.directory.path().join(digest(b"abc").hex());
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"abd").unwrap();
    assert_eq!(world.push(b"abc", "t").unwrap(), Pushed::Complete(3));
    assert_eq!(fs::read(&path).unwrap(), b"abc");
}

#[test]
fn a_tenant_has_its_quota_and_all_have_theirs() {
    let mut world = World::new();
    let file = |byte: u8, len: usize| vec![byte; len];
    assert_eq!(failure(world.push(&file(1, 61), "a")), ImageFailure::Quota);
    world.push(&file(1, 40), "a").unwrap();
    world.push(&file(2, 40), "b").unwrap();
    // The tenant's own go, not those of others.
    world.push(&file(3, 60), "a").unwrap();
    let mut expected = [digest(&file(2, 40)), digest(&file(3, 60))];
    expected.sort();
    assert_eq!(world.listed(), expected);
    // What is named by a START stays, and is a reason for there being no room.
    world.in_use = expected.iter().map(Digest::short).collect();
    assert_eq!(failure(world.push(&file(4, 1), "c")), ImageFailure::Quota);
    assert_eq!(world.listed(), expected);
    world.in_use.clear();
    // What others have pushed lately stays as well: its START may be on its way.
    assert_eq!(failure(world.push(&file(4, 1), "c")), ImageFailure::Quota);
    assert_eq!(world.listed(), expected);
    for digest in &expected {
        world.store().age(digest);
    }
    world.push(&file(4, 1), "c").unwrap();
    assert_eq!(world.listed().len(), 2, "the one used least recently went");
}

#[test]
fn what_is_in_use_is_not_deleted() {
    let mut world = World::new();
    world.push(b"abc", "t").unwrap();
    let digest = digest(b"abc");
    let in_use = InUse::from([digest.short()]);
    let refused = world.store().delete(&digest, &in_use).unwrap_err();
    assert_eq!(refused.failure, ImageFailure::InUse);
    world.store().delete(&digest, &InUse::new()).unwrap();
    let gone = world.store().delete(&digest, &InUse::new()).unwrap_err();
    assert_eq!(gone.failure, ImageFailure::NoImage);
    let left: Vec<_> = fs::read_dir(world.directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "the lock: {left:?}");
}

#[test]
fn a_directory_has_one_store() {
    let world = World::new();
    let error = Store::open(world.directory.path(), QUOTA).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
}

#[test]
fn a_part_that_may_go_on_stays_where_as_many_are_pushed_as_may_be() {
    let mut world = World::new();
    let resumable = b"to go on";
    world.write(resumable, "r", b"to", 0).unwrap();
    world.restart();
    let file = |number: usize| [u8::try_from(number).unwrap()];
    let tenant = |number: usize| ["a", "b"][number % 2];
    for number in 0..MAX_UPLOADS {
        world.begin(&file(number), tenant(number)).unwrap();
    }
    let refused = world.begin(b"x", "c");
    assert_eq!(failure(refused), ImageFailure::Busy);
    // The one that is abandoned gives its place to the next, and to no other.
    world.store().uploads.abandon(&digest(&file(7)));
    world.begin(b"x", "c").unwrap();
    assert!(!world.has_part(&file(7)) && world.has_part(&file(8)));
    assert_eq!(failure(world.begin(b"y", "c")), ImageFailure::Busy);
    // The part that may go on needs a place as well, and has its bytes then.
    assert_eq!(failure(world.begin(resumable, "r")), ImageFailure::Busy);
    world.store().uploads.abandon(&digest(&file(8)));
    assert_eq!(world.begin(resumable, "r").unwrap(), Pushed::Part(2));
}

#[test]
fn a_part_whose_push_is_refused_is_counted_and_can_be_deleted() {
    let mut world = World::new();
    let whole = [1; 50];
    world.write(&whole, "a", &whole[..30], 0).unwrap();
    world.restart();
    world.push(&[2; 20], "b").unwrap();
    world.in_use = InUse::from([digest(&[2; 20]).short()]);
    let counted = |world: &mut World| world.store().uploads.bytes().map(|(_, len)| len).sum();
    for _ in 0..2 {
        assert_eq!(failure(world.begin(&whole, "b")), ImageFailure::Quota);
        let counted: u64 = counted(&mut world);
        assert_eq!(counted, 30, "the part is on disk");
    }
    // The bytes that are there go on where there is room.
    assert_eq!(world.begin(&whole, "a").unwrap(), Pushed::Part(30));
    world.restart();
    world.begin(&whole, "b").unwrap_err();
    let digest = digest(&whole);
    world.store().delete(&digest, &InUse::new()).unwrap();
    assert!(!world.has_part(&whole));
}

#[test]
fn a_part_that_cannot_be_opened_can_be_deleted() {
    let mut world = World::new();
    let name = digest(b"abc").hex() + PART;
    // A link to itself, which cannot be opened.
    std::os::unix::fs::symlink(&name, world.directory.path().join(&name)).unwrap();
    world.restart();
    assert_eq!(failure(world.push(b"abc", "a")), ImageFailure::Failed);
    let abc = digest(b"abc");
    world.store().delete(&abc, &InUse::new()).unwrap();
    assert!(!world.has_part(b"abc"));
}

#[test]
fn a_part_that_is_whole_and_cannot_be_kept_goes_on_later() {
    let mut world = World::new();
    // A directory in the way of the image.
    let path = world.directory.path().join(digest(b"abc").hex());
    fs::create_dir(&path).unwrap();
    assert_eq!(failure(world.push(b"abc", "a")), ImageFailure::Failed);
    let counted: u64 = world.store().uploads.bytes().map(|(_, len)| len).sum();
    assert_eq!(counted, 3, "the part is on disk");
    fs::remove_dir(&path).unwrap();
    assert_eq!(world.begin(b"abc", "a").unwrap(), Pushed::Complete(3));
}

#[test]
fn an_abandoned_push_gives_way_to_others_of_its_tenant() {
    let mut world = World::new();
    let file = |byte: u8, len: usize| vec![byte; len];
    world.begin(&file(1, 50), "a").unwrap();
    world.begin(&file(2, 30), "b").unwrap();
    world.store().uploads.abandon(&digest(&file(2, 30)));
    let refused = world.begin(&file(3, 11), "a");
    assert_eq!(failure(refused), ImageFailure::Quota, "it goes on");
    world.store().uploads.abandon(&digest(&file(1, 50)));
    world.begin(&file(3, 11), "a").unwrap();
    assert!(!world.has_part(&file(1, 50)));
    assert!(world.has_part(&file(2, 30)), "another tenant's stays");
}

#[test]
fn a_push_without_room_ends_no_other() {
    let mut world = World::new();
    let file = |byte: u8, len: usize| vec![byte; len];
    world.write(&file(1, 50), "a", &[1; 9], 0).unwrap();
    world.restart();
    world.begin(&file(2, 50), "b").unwrap();
    world.store().uploads.abandon(&digest(&file(2, 50)));
    // More than its tenant may have, and more than there is room for unless these go.
    assert_eq!(failure(world.begin(&file(3, 61), "c")), ImageFailure::Quota);
    assert!(world.has_part(&file(1, 50)) && world.has_part(&file(2, 50)));
    // What was found goes before what was abandoned, and only as much as is needed.
    world.begin(&file(3, 45), "c").unwrap();
    assert!(!world.has_part(&file(1, 50)) && world.has_part(&file(2, 50)));
}

#[test]
fn what_a_crash_left_of_an_owner_is_removed_at_the_next_start() {
    let mut world = World::new();
    world.push(b"abc", "t").unwrap();
    let directory = world.directory.path().to_owned();
    let of_another = directory.join(digest(b"x").hex() + ".new");
    let of_this = directory.join(digest(b"abc").hex() + ".new");
    let of_others = directory.join("notes.new");
    for path in [&of_another, &of_this, &of_others] {
        fs::write(path, "{\"ten").unwrap();
    }
    world.restart();
    assert!(!of_another.exists() && !of_this.exists());
    assert!(of_others.exists(), "a name that is none of the store's");
    assert_eq!(world.listed(), [digest(b"abc")]);
}
