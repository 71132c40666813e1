//! Fetches as the run loop sees them, and what they leave on disk.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use proto_frames::payload::image::MAX_IMAGE_CHUNK;
use proto_frames::payload::{Digest, ImageChunk, ImageFailure, ImagePart, Payload as _, ReadImage};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{CacheConfig, Fetched, ImageLink, Images, Reach, command, environment, placeholder};
use crate::image_file::Hash;

/// Bytes that the scheduler sends at a time.
const CHUNK: u64 = MAX_IMAGE_CHUNK as u64;

/// Room of the cache: an image of two chunks, and a chunk of another one.
const QUOTA: u64 = 3 * CHUNK;

/// How long anything may take, on a machine that has other things to do.
const DEADLINE: Duration = Duration::from_secs(30);

struct World {
    directory: tempfile::TempDir,
    images: Images,
    link: ImageLink,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (images, link) = open(directory.path().to_owned());
        Self {
            directory,
            images,
            link,
        }
    }

    /// The launcher is started again.
    async fn restart(self) -> Self {
        let Self {
            directory,
            images,
            link,
        } = self;
        drop((images, link));
        let (images, link) = open(directory.path().to_owned());
        Self {
            directory,
            images,
            link,
        }
    }

    /// An instance wants an image; returns once the scheduler is asked for it.
    async fn obtain(&mut self, digest: Digest) -> JoinHandle<Fetched> {
        let images = self.images.clone();
        let obtained = tokio::spawn(async move { images.obtain(digest).await });
        assert_eq!(self.asked().await.digest, digest.to_string());
        obtained
    }

    /// What the scheduler is asked next.
    async fn asked(&mut self) -> ReadImage {
        timeout(DEADLINE, self.link.next()).await.unwrap()
    }

    /// The scheduler sends the first or second chunk of an image of two.
    fn send(&self, digest: Digest, number: u64, byte: u8) {
        let part = ImagePart {
            digest: digest.to_string(),
            offset: number * CHUNK,
            total: 2 * CHUNK,
            ..ImagePart::default()
        };
        let chunk = ImageChunk::new(part, Bytes::from(vec![byte; MAX_IMAGE_CHUNK]));
        self.link.take(&chunk.encode());
    }

    /// The scheduler has the image no more.
    fn refuse(&self, digest: Digest) {
        let part = ImagePart::fail(0, &digest.to_string(), ImageFailure::NoImage, "it is gone");
        let chunk = ImageChunk::new(part, Bytes::new());
        self.link.take(&chunk.encode());
    }

    /// Bytes of all files but the lock.
    fn stored(&self) -> u64 {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        entries
            .map(|it| it.unwrap().metadata().unwrap().len())
            .sum()
    }
}

fn open(directory: PathBuf) -> (Images, ImageLink) {
    let config = CacheConfig {
        directory,
        quota: QUOTA,
    };
    let (images, link) = Images::open(&config).unwrap();
    link.connection(Reach::Asks);
    (images, link)
}

/// What came of a fetch.
async fn outcome(obtained: JoinHandle<Fetched>) -> Fetched {
    timeout(DEADLINE, obtained).await.unwrap().unwrap()
}

fn digest(bytes: &[u8]) -> Digest {
    Hash::of(bytes).unwrap().digest().unwrap()
}

#[tokio::test]
async fn what_fetches_leave_that_fail_takes_no_more_than_the_quota_over_restarts() {
    let mut world = World::new();
    for number in 0..8 {
        let digest = digest(&[number]);
        let obtained = world.obtain(digest).await;
        world.send(digest, 0, number);
        // The first chunk is on disk once the second one is asked for.
        world.asked().await;
        world.refuse(digest);
        let why = outcome(obtained).await.unwrap_err();
        assert!(why.contains("it is gone"), "{why}");
        assert!(world.stored() <= QUOTA, "{} bytes", world.stored());
        world = world.restart().await;
    }
    // The latest goes on where it was.
    let resumed = digest(&[7]);
    let images = world.images.clone();
    let _obtained = tokio::spawn(async move { images.obtain(resumed).await });
    assert_eq!(world.asked().await.offset, CHUNK);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_come_is_requested_again_and_fails_in_the_end() {
    let mut world = World::new();
    let digest = digest(b"lost");
    let images = world.images.clone();
    let obtained = tokio::spawn(async move { images.obtain(digest).await });
    let began = world.link.next().await;
    let mut again = 0;
    let why = loop {
        tokio::select! {
            biased;
            request = world.link.next() => {
                assert_eq!(request, began);
                again += 1;
            }
            () = async { while !obtained.is_finished() { tokio::task::yield_now().await; tokio::time::advance(Duration::from_secs(1)).await; } } => {
                break obtained.await.unwrap().unwrap_err();
            }
        }
    };
    assert_eq!(again, 3, "every 30 s, for 120 s");
    assert!(why.contains("does not answer for 120s"), "{why}");
}

#[tokio::test]
async fn two_fetches_at_once_have_room_for_both_or_one_fails() {
    let mut world = World::new();
    let one = vec![1; 2 * MAX_IMAGE_CHUNK];
    let (first, second) = (digest(&one), digest(b"second"));
    let fetched = world.obtain(first).await;
    world.send(first, 0, 1);
    world.asked().await;
    let refused = world.obtain(second).await;
    world.send(second, 0, 2);
    let why = outcome(refused).await.unwrap_err();
    assert!(why.contains("no room for 131072 bytes"), "{why}");
    world.send(first, 1, 1);
    let path = outcome(fetched).await.unwrap();
    assert_eq!(fs::read(path).unwrap(), one);
    assert_eq!(world.stored(), 2 * CHUNK, "nothing is left of the other");
}

#[test]
fn the_image_is_the_program_unless_the_arguments_say_where_it_stands() {
    let made = |arguments: &[&str]| {
        let arguments = arguments.iter().map(|&it| it.to_owned()).collect();
        command(&["/i".into(), "/j".into(), "/{image}".into()], arguments).join(" ")
    };
    assert_eq!(made(&[]), "/i");
    assert_eq!(made(&["-a", "b"]), "/i -a b");
    assert_eq!(made(&["sh", "-c", "{image} x; {image}"]), "sh -c /i x; /i");
    assert_eq!(made(&["-f", "{image.1}"]), "/i -f /j");
    assert_eq!(made(&["sh", "{image}={image.1},x"]), "sh /i=/j,x");
    // What a path has in it is a path.
    assert_eq!(
        made(&["{image.2}{image.1}{image}", "é{image}"]),
        "/{image}/j/i é/i"
    );
    for none in [
        "{image.3}",
        "{image.01}",
        "{image.0}",
        "{image.+1}",
        "{image.1",
        "{image",
        "{imageé",
        "{image.}",
    ] {
        assert_eq!(made(&[none]), format!("/i {none}"));
        assert_eq!(made(&[&format!("{none}{{image}}")]), format!("{none}/i"));
    }
    for number in 0..3 {
        let variables = [("A".to_owned(), placeholder(number))].into();
        let paths = ["/i".into(), "/j".into(), "/k".into()];
        let made = environment(&paths, variables);
        assert_eq!(made["A"], paths[number].to_string_lossy());
    }
}

#[tokio::test]
async fn of_several_images_the_one_that_cannot_be_had_is_named_and_the_rest_stay() {
    let mut world = World::new();
    let (there, missing) = (vec![1; 2 * MAX_IMAGE_CHUNK], digest(b"missing"));
    let needed = [digest(&there), missing];
    world.images.hold("a", &needed);
    let images = world.images.clone();
    let obtained = tokio::spawn(async move { images.obtain_all(&needed).await });
    assert_eq!(world.asked().await.digest, needed[0].to_string());
    world.send(needed[0], 0, 1);
    world.send(needed[0], 1, 1);
    while world.asked().await.digest != missing.to_string() {}
    world.refuse(missing);
    let why = timeout(DEADLINE, obtained).await.unwrap().unwrap();
    let why = why.unwrap_err();
    assert_eq!(why, format!("{{image.1}}, {missing}: it is gone"));
    // It is held: what else is fetched has no room as long as the instance is there.
    let other = digest(b"other");
    let refused = world.obtain(other).await;
    world.send(other, 0, 2);
    let why = outcome(refused).await.unwrap_err();
    assert!(why.contains("no room"), "{why}");
    world.images.release("a");
    let fetched = world.obtain(other).await;
    world.send(other, 0, 2);
    world.asked().await;
    world.refuse(other);
    let why = outcome(fetched).await.unwrap_err();
    assert!(why.contains("it is gone"), "there was room: {why}");
}
