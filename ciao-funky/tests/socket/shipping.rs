//! Files of tasks on nodes that do not see the adapter's directory: the scheduler ships them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use proto_frames::payload::{
    ImageChunk, ImageFailure, ImagePart, ImageWrite, Payload as _, QueryResult, Start,
};
use proto_frames::{Frame, Kind};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::guarded::GuardedDir;
use crate::process::{DEADLINE, Process, Reads};
use crate::scripted::{Answers, Scripted};
use crate::world::{World, reply};

/// The adapter before a scheduler of which the test writes the script, and the STARTs that it sends.
struct Alone {
    dir: GuardedDir,
    starts: UnboundedReceiver<Start>,
    _scheduler: Scripted,
    _funky: Process,
}

impl Alone {
    /// `image` answers what is asked of the store of programs.
    async fn with(mut image: impl FnMut(&Answers, &ImageWrite) + Send + 'static) -> Self {
        let (started, starts) = unbounded_channel();
        let script = move |answers: &Answers, _: usize, frame: &Frame| match frame.kind {
            Kind::QUERY => answers.page(frame, QueryResult::default()),
            Kind::WRITE_IMAGE => image(answers, &ImageWrite::decode(&frame.payload).unwrap()),
            Kind::START => started
                .send(Start::decode(&frame.payload).unwrap())
                .unwrap(),
            _ => {}
        };
        let scheduler = Scripted::playing(script).await;
        let dir = GuardedDir::new();
        let client = scheduler.client();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciao-funky"));
        command
            .args(["-server", &client.server, "-upload", "off"])
            // Longer than the test: what is not answered is not given up.
            .args(["-timeout", "1h"])
            .arg("-cert")
            .arg(client.cert)
            .arg("-cacert")
            .arg(client.trust.ca)
            .arg("-socket")
            .arg(dir.path().join("front.sock"))
            .arg("-state-dir")
            .arg(dir.path().join("state"));
        let funky = Process::start(command, Reads::Out);
        funky.wrote("Listening commands at ").await;
        Self {
            dir,
            starts,
            _scheduler: scheduler,
            _funky: funky,
        }
    }

    /// A program of its own.
    fn program(&self, name: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n: {name}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    /// Gives a command, which must be accepted.
    async fn tell(&self, command: &str) {
        let mut stream = UnixStream::connect(self.dir.path().join("front.sock"))
            .await
            .unwrap();
        stream.write_all(command.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = reply(&mut stream).await.unwrap();
        assert!(answer.starts_with("task "), "{answer}");
    }

    /// The next START.
    async fn start(&mut self) -> Start {
        timeout(DEADLINE, self.starts.recv())
            .await
            .unwrap()
            .unwrap()
    }
}

/// What the store of programs says to this.
fn say(answers: &Answers, write: &ImageWrite, complete: bool, failure: ImageFailure) {
    let part = ImagePart {
        id: write.part.id,
        digest: write.part.digest.clone(),
        total: write.part.total,
        complete,
        failure,
        ..ImagePart::default()
    };
    answers.send(
        Kind::IMAGE,
        ImageChunk::new(part, Default::default()).encode(),
    );
}

/// Whether a START names its program by a path of this machine.
fn is_local(start: &Start) -> bool {
    Path::new(&start.command[0]).is_absolute()
}

#[tokio::test]
async fn a_program_that_is_refused_for_a_while_is_shipped_when_there_is_room() {
    for failure in [ImageFailure::Quota, ImageFailure::Failed] {
        let mut refused = Some(failure);
        let mut alone = Alone::with(move |answers, write| match refused.take() {
            Some(failure) => say(answers, write, false, failure),
            None => say(answers, write, true, ImageFailure::default()),
        })
        .await;
        let program = alone.program("task");
        alone.tell(&format!("New: {program} priority: 0")).await;
        let start = alone.start().await;
        assert!(start.image.starts_with("sha256:"), "{start:?}");
        assert!(!is_local(&start), "{start:?}");
    }
}

#[tokio::test]
async fn where_no_programs_are_kept_nodes_find_them_in_the_adapters_directory() {
    let mut alone =
        Alone::with(|answers, write| say(answers, write, false, ImageFailure::NotOffered)).await;
    let program = alone.program("task");
    alone.tell(&format!("New: {program} priority: 0")).await;
    assert!(is_local(&alone.start().await));
}

#[tokio::test]
async fn a_task_runs_on_a_node_that_does_not_have_its_file() {
    let mut world = World::shipping().await;
    let log = world.path("log").display().to_string();
    let script = world.script("task", &format!("echo \"$0\" \"$@\" >>{log}"));
    let task = world.new_task(&script, 0, "one two").await;
    let pushed = || {
        std::fs::read_dir(world.images())
            .unwrap()
            .any(|it| it.unwrap().file_name().to_string_lossy().ends_with(".json"))
    };
    world.until("the file is pushed", pushed).await;
    // What no node sees is as good as what is not there.
    let copies = world.path("funky").join("binaries");
    std::fs::rename(&copies, world.path("elsewhere")).unwrap();
    world.launch("node-a", &[]);
    world.task_is(task, "succeeded").await;
    let [line] = &world.log()[..] else {
        panic!("{:?}", world.log())
    };
    let (program, arguments) = line.split_once(' ').unwrap();
    assert!(program.contains("/node-a/images/"), "{line}");
    assert_eq!(arguments, "one two");
}

/// A script that says what is in its further files, at which frequencies and from where it runs, and ends once so many
/// have said so.
fn reads_its_files(log: &str, count: usize) -> String {
    format!(
        "all=$FUNKY_BITSTREAMS; IFS=,; set -- $all; shift; \
         echo \"$(cat \"$@\" | tr '\\n' ' ')$FUNKY_FREQUENCIES $all\" >>{log}; \
         until [ $(wc -l <{log}) -ge {count} ]; do sleep 0.02; done"
    )
}

#[tokio::test]
async fn tasks_of_several_files_read_them_on_nodes_that_have_none_of_them() {
    let mut world = World::shipping().await;
    let log = world.path("log").display().to_string();
    let program = world.script("program", &reads_its_files(&log, 2));
    for name in ["one", "two", "three", "four"] {
        std::fs::write(world.path(name), format!("{name}\n")).unwrap();
    }
    let path = |name| world.path(name).display().to_string();
    for (files, frequencies) in [
        ([path("one"), path("two")], "100,200,300"),
        ([path("three"), path("four")], "7,8,9"),
    ] {
        let [second, third] = files;
        let command = format!(
            "New: {program},{second},{third} num_bitstreams: 3 frequencies: {frequencies} priority: 0"
        );
        assert!(world.ask(command).await.starts_with("task "));
    }
    let pushed = || {
        let files = std::fs::read_dir(world.images()).unwrap();
        let names = files.map(|it| it.unwrap().file_name());
        names
            .filter(|it| it.to_string_lossy().ends_with(".json"))
            .count()
            == 5
    };
    world.until("all files are pushed", pushed).await;
    // What no node sees is as good as what is not there.
    let copies = world.path("funky").join("binaries");
    std::fs::rename(&copies, world.path("elsewhere")).unwrap();
    for name in ["one", "two", "three", "four", "program"] {
        std::fs::remove_file(world.path(name)).unwrap();
    }
    world.launch("node-a", &[]);
    world.launch("node-b", &[]);
    for task in [1, 2] {
        world.task_is(task, "succeeded").await;
    }
    let mut lines = world.log();
    lines.sort();
    let [of_first, of_second] = &lines[..] else {
        panic!("{lines:?}")
    };
    assert!(of_first.starts_with("one two 100,200,300 "), "{lines:?}");
    assert!(of_second.starts_with("three four 7,8,9 "), "{lines:?}");
    let mut nodes: Vec<&str> = Vec::new();
    for line in &lines {
        let (_, paths) = line.rsplit_once(' ').unwrap();
        let of_node = |name: &&str| paths.matches(&format!("/{name}/images/")).count() == 3;
        nodes.extend(["node-a", "node-b"].into_iter().filter(of_node));
    }
    nodes.sort_unstable();
    assert_eq!(nodes, ["node-a", "node-b"], "{lines:?}");
}

#[tokio::test]
async fn where_no_programs_are_kept_files_are_found_in_the_adapters_directory_too() {
    let mut alone =
        Alone::with(|answers, write| say(answers, write, false, ImageFailure::NotOffered)).await;
    let files = [alone.program("first"), alone.program("second")].join(",");
    let several = format!("New: {files} num_bitstreams: 2 frequencies: 1,2 priority: 0");
    alone.tell(&several).await;
    let start = alone.start().await;
    assert!(is_local(&start) && start.image.is_empty(), "{start:?}");
    assert_eq!(start.more_images, [""; 0]);
    let paths = &start.env["FUNKY_BITSTREAMS"];
    assert_eq!(paths.matches("/binaries/").count(), 2, "{paths}");
}

#[tokio::test]
async fn more_files_than_a_start_names_are_found_in_the_adapters_directory() {
    let mut alone =
        Alone::with(|answers, write| say(answers, write, true, ImageFailure::default())).await;
    let files: Vec<String> = (0..18)
        .map(|number| alone.program(&number.to_string()))
        .collect();
    for (count, is_shipped) in [(17, true), (18, false)] {
        let (files, ones) = (files[..count].join(","), vec!["1"; count].join(","));
        let several =
            format!("New: {files} num_bitstreams: {count} frequencies: {ones} priority: 0");
        alone.tell(&several).await;
        let start = alone.start().await;
        assert_eq!(!is_local(&start), is_shipped);
        let further = if is_shipped { 16 } else { 0 };
        assert_eq!(start.more_images.len(), further);
    }
}

#[tokio::test]
async fn a_push_that_takes_long_keeps_nothing_else_waiting() {
    let (pushing, mut pushed) = unbounded_channel();
    let mut large = None;
    let mut alone = Alone::with(move |answers, write| {
        let is_large = *large.get_or_insert_with(|| write.part.digest.clone()) == write.part.digest;
        match write.data.is_empty() {
            true => say(answers, write, !is_large, ImageFailure::default()),
            // It is never answered, as if the way were very long.
            false => pushing.send(()).unwrap(),
        }
    })
    .await;
    let [first, second, third] = ["first", "second", "third"].map(|it| alone.program(it));
    alone.tell(&format!("New: {first} priority: 0")).await;
    timeout(DEADLINE, pushed.recv()).await.unwrap().unwrap();
    let several = format!("New: {second},{third} num_bitstreams: 2 frequencies: 1,2 priority: 0");
    alone.tell(&several).await;
    let start = alone.start().await;
    assert_eq!(start.env["FUNKY_TASK"], "2");
    assert_eq!(start.env["FUNKY_BITSTREAMS"], "{image},{image.1}");
}

#[tokio::test]
async fn programs_are_pushed_side_by_side_and_one_of_several_tasks_once() {
    let (pushing, mut pushed) = unbounded_channel();
    let alone = Alone::with(move |answers, write| match write.data.is_empty() {
        true => say(answers, write, false, ImageFailure::default()),
        // The first is never answered, the others are.
        false => {
            pushing.send(write.part.digest.clone()).unwrap();
            let is_first = write.data.ends_with(b"first\n");
            if !is_first {
                say(answers, write, true, ImageFailure::default());
            }
        }
    })
    .await;
    let (first, second) = (alone.program("first"), alone.program("second"));
    for _ in 0..2 {
        alone.tell(&format!("New: {first} priority: 0")).await;
    }
    let mut next = async || timeout(DEADLINE, pushed.recv()).await.unwrap().unwrap();
    let of_first = next().await;
    alone.tell(&format!("New: {second} priority: 0")).await;
    assert_ne!(
        next().await,
        of_first,
        "the first is pushed once for both tasks, and the second beside it"
    );
}
