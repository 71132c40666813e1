//! Uploads to a store that has no room, over HTTP, without a coordinator.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::binaries::Limits;
use crate::front::Allowed;

/// Posts a program to a server whose store has these limits; the answer.
async fn post(limits: Limits) -> (String, usize) {
    let state = tempfile::tempdir().unwrap();
    let directory = state.path().join("binaries");
    let binaries = Binaries::open(&directory, limits, [].into_iter()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let shape = Shape {
        mem_mb: 1,
        vcpus: 1,
        group: None,
        tenant: String::new(),
        monitor: Vec::new(),
        one_argument: false,
    };
    let (coordinator, _orders) = mpsc::channel(1);
    tokio::spawn(serve(
        listener,
        binaries,
        (
            shape,
            NullOrigin::Refused,
            Uploaders::These(Allowed::these(&[])),
        ),
        coordinator,
    ));
    let body = "--XX\r\nContent-Disposition: form-data; name=\"myFile\"; filename=\"a\"\r\n\r\n0123456789\r\n--XX--\r\n";
    let request = format!(
        "POST /upload HTTP/1.1\r\nHost: {to}\r\nContent-Type: multipart/form-data; boundary=XX\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer, std::fs::read_dir(directory).unwrap().count())
}

#[tokio::test(flavor = "multi_thread")]
async fn where_there_is_no_room_an_upload_is_answered_with_507_and_leaves_nothing() {
    let limits = Limits {
        file: 1000,
        all: 1000,
        left_free: 0,
    };
    for (limits, said) in [
        (Limits { all: 9, ..limits }, "-max-binaries"),
        (
            Limits {
                left_free: u64::MAX,
                ..limits
            },
            "has no space left for it",
        ),
    ] {
        let (answer, files) = post(limits).await;
        assert!(answer.starts_with("HTTP/1.1 507 "), "{answer}");
        assert!(answer.contains(said), "{answer}");
        assert_eq!(files, 0);
    }
}
