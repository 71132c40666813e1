//! Many uploads at a time, clients that half-close, and clients of the upload port that do what none should.

use std::net::SocketAddr;

use futures_util::future::{join_all, select_all};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::hostile::{MAX_RESIDENT_KIB, resident_kib};
use crate::process::DEADLINE;
use crate::uploads::{FILE, LOW, answer, form, head, post, status};
use crate::world::World;

/// Connections that the adapter has at a time for uploads.
const CONNECTIONS: usize = 64;

/// Opens a connection and writes this.
async fn write(to: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

#[tokio::test]
async fn thirty_uploads_at_once_are_all_accepted() {
    let mut world = World::bare(&[]).await;
    world.start_funky().await;
    let to = world.uploads().await;
    let whole = form(&[FILE, LOW]);
    let (first, second) = whole.split_at(whole.len() / 2);
    let begun = [head(to, "", whole.len()).as_bytes(), first].concat();
    let mut streams = Vec::new();
    for _ in 0..30 {
        streams.push(write(to, &begun).await);
    }
    // The last first: none waits for one before it.
    for stream in streams.iter_mut().rev() {
        // One that was told to come again has closed.
        let _ = stream.write_all(second).await;
        let answer = timeout(DEADLINE, answer(stream)).await.unwrap();
        assert_eq!(status(&answer), "200", "{answer}");
    }
    let list = world.list().await;
    assert_eq!(list["tasks"].as_array().unwrap().len(), 30);
    assert_eq!(world.binaries(), 1, "they share one copy");
}

#[tokio::test]
async fn a_client_that_closes_its_sending_half_has_its_answer() {
    let mut world = World::bare(&[]).await;
    world.start_funky().await;
    let to = world.uploads().await;
    let whole = form(&[FILE, LOW]);
    for accepted in 1..=20 {
        let mut stream = write(to, head(to, "", whole.len()).as_bytes()).await;
        stream.write_all(&whole).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = timeout(DEADLINE, answer(&mut stream)).await.unwrap();
        assert_eq!(status(&answer), "200", "{answer}");
        let task = format!("x-funky-task: {accepted}\r\n");
        assert!(answer.contains(&task), "{answer}");
    }
    // What is cut off is told so as well, and makes no task.
    let mut stream = write(to, head(to, "", whole.len()).as_bytes()).await;
    stream.write_all(&whole[..whole.len() - 4]).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = timeout(DEADLINE, answer(&mut stream)).await.unwrap();
    assert_eq!(status(&answer), "400", "{answer}");
    let list = world.list().await;
    assert_eq!(list["tasks"].as_array().unwrap().len(), 20);
}

#[tokio::test]
async fn clients_that_are_slow_or_say_nothing_shut_nobody_out() {
    let mut world = World::bare(&[]).await;
    world.start_funky().await;
    let to = world.uploads().await;
    let whole = form(&[FILE, LOW]);
    let get = format!("GET / HTTP/1.1\r\nHost: {to}\r\n\r\n");
    let begun = [head(to, "", 1 << 30).as_bytes(), &whole[..70]].concat();
    let mut hostile = Vec::new();
    // In whatever order they come, there are more of each than there are places.
    for _ in 0..CONNECTIONS + 8 {
        hostile.push(write(to, b"").await);
        hostile.push(write(to, b"POST /upl").await);
        hostile.push(write(to, &begun).await);
        // It never reads.
        hostile.push(write(to, get.as_bytes()).await);
    }
    let good = (0..4).map(|_| post(to, "", &whole));
    for answer in join_all(good).await {
        assert_eq!(status(&answer), "200", "{answer}");
    }
    assert!(resident_kib(world.funky_pid()) < MAX_RESIDENT_KIB);
    drop(hostile);
    world
        .until("the end of what was begun", || world.binaries() == 1)
        .await;
}

#[tokio::test]
async fn a_slow_form_is_left_alone_while_there_are_places_and_told_why_when_there_are_none() {
    let mut world = World::bare(&[]).await;
    world.start_funky().await;
    let to = world.uploads().await;
    let whole = form(&[FILE, LOW]);
    let (first, second) = whole.split_at(whole.len() / 2);
    let begun = [head(to, "", whole.len()).as_bytes(), first].concat();
    let mut slow = Vec::new();
    for _ in 0..CONNECTIONS {
        slow.push(write(to, &begun).await);
    }
    let answer_of_good = post(to, "", &whole).await;
    assert_eq!(status(&answer_of_good), "200", "{answer_of_good}");
    // All have sent as much: which of them is counted as the slowest depends on when the adapter began to read each.
    let (told, ended) = {
        let answers = slow.iter_mut().map(|it| Box::pin(answer(it)));
        let (told, ended, _) = timeout(DEADLINE, select_all(answers)).await.unwrap();
        (told, ended)
    };
    assert_eq!(status(&told), "408", "{told}");
    assert!(told.contains("others wait"), "{told}");
    slow.remove(ended);
    for stream in &mut slow {
        stream.write_all(second).await.unwrap();
        let answer = timeout(DEADLINE, answer(stream)).await.unwrap();
        assert_eq!(status(&answer), "200", "{answer}");
    }
}

#[tokio::test]
async fn a_form_whose_heads_have_no_end_takes_little_memory() {
    let mut world = World::bare(&[]).await;
    world.start_funky().await;
    let to = world.uploads().await;
    let block = vec![b'x'; 1 << 20];
    let before_the_first = "";
    let in_a_head = "--XX\r\nContent-Disposition: form-data; name=\"";
    for begin in [before_the_first, in_a_head] {
        for _ in 0..4 {
            let head = head(to, "", 1 << 30) + begin;
            let mut stream = write(to, head.as_bytes()).await;
            let sent = timeout(DEADLINE, async {
                for _ in 0..64 {
                    if stream.write_all(&block).await.is_err() {
                        break;
                    }
                }
            });
            sent.await.unwrap();
        }
    }
    assert!(resident_kib(world.funky_pid()) < MAX_RESIDENT_KIB);
    let answer = post(to, "", &form(&[FILE, LOW])).await;
    assert_eq!(status(&answer), "200", "{answer}");
}
