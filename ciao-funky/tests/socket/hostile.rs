//! Clients that do what none should: clear errors, and no effect on others.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::process::DEADLINE;
use crate::world::{World, reply};

/// Most resident memory of the adapter in these tests, KiB: what it takes at rest, and a few MiB for what is under way.
pub(crate) const MAX_RESIDENT_KIB: u64 = 150 * 1024;

pub(crate) fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_command_may_come_in_pieces_and_end_in_three_ways() {
    let mut world = World::bare(&[]).await;
    world.start_funky().await;
    let task = world.script("task", "exit 0");
    for (n, end) in ["\n", "\nNew: ignored", ""].into_iter().enumerate() {
        let mut stream = world.connect().await;
        for byte in format!("New: {task} priority: 0 args: x y{end}").bytes() {
            // What follows the line end may find the connection closed.
            if stream.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        if end.is_empty() {
            stream.shutdown().await.unwrap();
        }
        let answer = timeout(DEADLINE, reply(&mut stream)).await.unwrap();
        if let Ok(answer) = answer {
            assert!(
                answer.starts_with(&format!("task {} queued", n + 1)),
                "{answer}"
            );
        }
        assert_eq!(
            world.task(u32::try_from(n).unwrap() + 1).await["args"],
            "x y"
        );
    }
    world.tell(&format!("New: {task} priority: 1")).await;
    world.task_is(4, "queued").await;
}

#[tokio::test]
async fn what_is_no_command_is_answered_with_what_is_wrong() {
    let mut world = World::bare(&[]).await;
    world.start_funky().await;
    for (command, error) in [
        (
            b"\xff\xfe\xfd".to_vec(),
            "error: byte 0 of the command is not UTF-8",
        ),
        (
            b"New: /\xc3 priority: 0".to_vec(),
            "error: byte 6 of the command is not UTF-8",
        ),
        (b"".to_vec(), "error: unknown command ''"),
        (b"\0\0\0".to_vec(), "error: unknown command ''"),
        (
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            "error: unknown command 'GET / HTTP/1.1'",
        ),
        (
            b"New: /a priority: 7".to_vec(),
            "error: priority '7' is not a number from 0 to 1",
        ),
        (
            b"New: /a priority: 0 args: \"x".to_vec(),
            "error: args: a quotation mark \" is not closed",
        ),
        (
            vec![b'N'; 64 * 1024 + 1],
            "error: the command is longer than 65536 bytes",
        ),
        (
            b"New: /dev/zero priority: 0".to_vec(),
            "error: task 1 failed: /dev/zero: not a regular file",
        ),
        (
            b"New: / priority: 0".to_vec(),
            "error: task 2 failed: /: not a regular file",
        ),
    ] {
        let answer = world.ask(&command).await;
        assert!(answer.starts_with(error), "{answer}");
    }
    let long = "x ".repeat(30 * 1024);
    let task = world.script("task", "exit 0");
    let answer = world
        .ask(format!("New: {task} priority: 0 args: {long}"))
        .await;
    assert!(answer.starts_with("task 3 queued"), "{answer}");
    // A stream without an end is cut off, and what is read of it bounded.
    let mut endless = world.connect().await;
    let block = vec![b'x'; 1 << 20];
    let written = timeout(DEADLINE, async {
        let mut written = 0;
        while endless.write_all(&block).await.is_ok() {
            written += block.len();
        }
        written
    });
    assert!(
        written.await.unwrap() < 64 << 20,
        "it is not read to no end"
    );
    assert!(resident_kib(world.funky_pid()) < MAX_RESIDENT_KIB);
}

#[tokio::test]
async fn who_says_nothing_or_never_reads_keeps_nobody_out() {
    let mut world = World::bare(&[]).await;
    world.start_funky().await;
    let mut silent = Vec::new();
    // More than the 512 connections that there may be say nothing.
    for n in 0..600 {
        let mut stream = world.connect().await;
        if n % 10 == 0 {
            stream.write_all(b"Ps:\n").await.unwrap(); // and never reads
        }
        silent.push(stream);
    }
    let task = world.script("task", "exit 0");
    let answer = timeout(
        Duration::from_secs(60),
        world.ask(format!("New: {task} priority: 0")),
    );
    assert!(answer.await.unwrap().starts_with("task 1 queued"));
    drop(silent);
}

#[tokio::test]
async fn ten_thousand_commands_are_all_numbered_and_kept() {
    let mut world = World::bare(&[]).await;
    world.start_funky().await;
    let task = world.script("task", "exit 0");
    let command = format!("New: {task} priority: 1 args: {}", "y".repeat(100));
    // 50 at a time: as many as a program usually has files for.
    for _ in 0..200 {
        let asks = (0..50).map(|n| {
            let (world, command) = (&world, &command);
            async move {
                if n % 2 == 0 {
                    world.tell(command).await;
                } else {
                    let answer = world.ask(command).await;
                    assert!(answer.starts_with("task "), "{answer}");
                }
            }
        });
        futures_util::future::join_all(asks).await;
    }
    let last = world.new_task_anyhow(&task).await;
    assert_eq!(last, 10_001);
    world.kill_funky().await;
    world.start_funky().await;
    let list = world.list().await;
    assert_eq!(list["tasks"].as_array().unwrap().len(), 10_001);
    assert_eq!(world.binaries(), 1, "they share one copy");
    assert!(resident_kib(world.funky_pid()) < MAX_RESIDENT_KIB);
}
