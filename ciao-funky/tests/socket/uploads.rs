//! Files that come by HTTP: to the adapter itself, and to an upload server with the habits of the original's.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

use crate::process::DEADLINE;
use crate::world::World;

/// A form with these fields: name, file name if it is a file, and value.
pub(crate) fn form(fields: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file, value) in fields {
        body.extend(b"--XX\r\n");
        let file = file.map_or_else(String::new, |it| format!("; filename=\"{it}\""));
        body.extend(
            format!("Content-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").bytes(),
        );
        body.extend(*value);
        body.extend(b"\r\n");
    }
    body.extend(b"--XX--\r\n");
    body
}

/// The head of a request that posts a form of so many bytes.
pub(crate) fn head(to: SocketAddr, headers: &str, length: usize) -> String {
    format!(
        "POST /upload HTTP/1.1\r\nHost: {to}\r\n{headers}Content-Type: multipart/form-data; boundary=XX\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

/// Posts a form, and reads the answer.
pub(crate) async fn post(to: SocketAddr, headers: &str, body: &[u8]) -> String {
    let posted = async {
        let mut stream = TcpStream::connect(to).await.unwrap();
        let head = head(to, headers, body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        // One that has heard enough closes.
        let _ = stream.write_all(body).await;
        answer(&mut stream).await
    };
    timeout(DEADLINE, posted).await.unwrap()
}

/// Reads an answer to the end of the connection.
pub(crate) async fn answer(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

pub(crate) fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap_or_default().1
}

#[tokio::test]
async fn an_uploaded_file_runs_and_its_name_is_never_a_path() {
    let world = World::new(&["node-a"]).await;
    let to = world.uploads().await;
    let log = world.path("log").display().to_string();
    let program = format!("#!/bin/sh\necho uploaded $1 >>{log}\n");
    let target = world.path("evil").display().to_string();
    let name = format!("../../../../..{target}");
    let fields: &[(&str, Option<&str>, &[u8])] = &[
        ("myFile", Some(&name), program.as_bytes()),
        ("Priority", None, b"0"),
        ("Arguments", None, b"now"),
    ];
    let answer = post(to, "", &form(fields)).await;
    assert_eq!(
        (status(&answer), body(&answer)),
        ("200", "Successfully Uploaded File\n"),
        "{answer}"
    );
    assert!(answer.contains("x-funky-task: 1\r\n"), "{answer}");
    world.task_is(1, "succeeded").await;
    world.logged(&["uploaded now"]).await;
    assert!(!Path::new(&target).exists());

    let fields: &[(&str, Option<&str>, &[u8])] = &[
        ("Arguments", None, b""),
        ("Priority", None, b"1"),
        ("bitstream", Some("a"), program.as_bytes()),
        ("frequency", None, b"100"),
        ("bitstream[]", Some("b"), b"other"),
        ("frequency[]", None, b"200"),
    ];
    let answer = post(to, "", &form(fields)).await;
    assert_eq!(body(&answer), "Successfully Uploaded File(s)\n", "{answer}");
    world.task_is(2, "succeeded").await;
    world
        .until("its files' end", || world.binaries() == 0)
        .await;
}

#[tokio::test]
async fn a_program_finds_all_files_of_its_upload_also_without_frequencies() {
    let world = World::new(&["node-a"]).await;
    let to = world.uploads().await;
    let log = world.path("log").display().to_string();
    let program = format!(
        "#!/bin/sh\nIFS=,; for it in $FUNKY_BITSTREAMS; do tail -n 1 $it >>{log}; done\n\
         echo \"frequencies: $FUNKY_FREQUENCIES\" >>{log}\n# first\n"
    );
    let files = |names: [&'static str; 2], program: &str| {
        let fields: &[(&str, Option<&str>, &[u8])] = &[
            ("Priority", None, b"1"),
            (names[0], Some("a"), program.as_bytes()),
            (names[1], Some("b"), b"second\n"),
        ];
        form(fields)
    };
    let all = ["# first", "second", "frequencies: "];
    for (at, names) in [["bitstream[]"; 2], ["bitstream"; 2], ["myFile"; 2]]
        .into_iter()
        .enumerate()
    {
        let answer = post(to, "", &files(names, &program)).await;
        assert_eq!(status(&answer), "200", "{answer}");
        world
            .task_is(u32::try_from(at).unwrap() + 1, "succeeded")
            .await;
        assert_eq!(world.log(), all.repeat(at + 1), "{names:?}");
    }
}

/// A field of a form, as [`form`] has them.
pub(crate) type Field = (&'static str, Option<&'static str>, &'static [u8]);

pub(crate) const FILE: Field = ("myFile", Some("x"), b"#!/bin/sh\n");
pub(crate) const LOW: Field = ("Priority", None, b"1");

/// One byte more than the adapter in this test takes.
const LONG: &[u8] = &[b'x'; 1001];

/// What cannot be a task: headers, fields, status, and a part of what is said.
fn no_tasks() -> Vec<(&'static str, Vec<Field>, &'static str, &'static str)> {
    let empty: Field = ("myFile", Some("x"), b"");
    let long: Field = ("myFile", Some("x"), LONG);
    let frequency: Field = ("frequency", None, b"1");
    vec![
        ("", vec![LOW], "400", "no field 'myFile'"),
        ("", vec![FILE], "400", "no field 'Priority'"),
        (
            "",
            vec![FILE, ("Priority", None, b"2")],
            "400",
            "priority '2' is not a number from 0 to 1",
        ),
        (
            "",
            vec![FILE, ("Priority", None, b"\xff")],
            "400",
            "'Priority' is not UTF-8",
        ),
        (
            "",
            vec![empty, LOW],
            "400",
            "the file is empty and cannot be run",
        ),
        ("", vec![long, LOW], "413", "longer than 1000 bytes"),
        (
            "",
            vec![FILE, ("Priority", None, LONG)],
            "413",
            "of more than 256 bytes",
        ),
        (
            "",
            vec![FILE, LOW, frequency, frequency],
            "400",
            "2 frequencies for 1 files",
        ),
        (
            "",
            vec![FILE, LOW, ("Arguments", None, b"'")],
            "400",
            "a quotation mark ' is not closed",
        ),
        (
            "Origin: http://evil.example\r\n",
            vec![FILE, LOW],
            "403",
            "http://evil.example",
        ),
        ("Origin: null\r\n", vec![FILE, LOW], "403", "are refused"),
        ("", vec![FILE; 600], "400", "more than the 255"),
        (
            "",
            vec![("", None, b"1"); 600],
            "413",
            "more than 526 fields",
        ),
    ]
}

#[tokio::test]
async fn an_upload_that_cannot_be_a_task_is_refused_and_leaves_nothing() {
    let world = World::with(&[], &["-max-binary", "1000"]).await;
    let to = world.uploads().await;
    for (headers, fields, expected, said) in no_tasks() {
        let answer = post(to, headers, &form(&fields)).await;
        assert_eq!(status(&answer), expected, "{answer}");
        assert!(body(&answer).contains(said), "{answer}");
    }
    let whole = form(&[FILE, LOW]);
    let answer = post(to, "", &whole[..whole.len() - 20]).await;
    assert_eq!(status(&answer), "400", "{answer}");
    assert_eq!(world.binaries(), 0);
    let own = format!("Origin: http://{to}\r\n");
    for origin in [&*own, "Origin: http://localhost:5000\r\n"] {
        let answer = post(to, origin, &whole).await;
        assert_eq!(status(&answer), "200", "{answer}");
    }
}

#[tokio::test]
async fn the_page_offers_what_an_upload_may_have_and_rows_left_empty_are_left_out() {
    let mut world = World::bare(&["-allow-null-origin"]).await;
    world.start_funky().await;
    let to = world.uploads().await;
    let mut stream = TcpStream::connect(to).await.unwrap();
    let get = format!("GET / HTTP/1.1\r\nHost: {to}\r\n\r\n");
    stream.write_all(get.as_bytes()).await.unwrap();
    let page = timeout(DEADLINE, answer(&mut stream)).await.unwrap();
    for name in ["bitstream[]", "frequency[]", "Priority", "Arguments"] {
        assert!(page.contains(&format!("name=\"{name}\"")), "{page}");
    }
    // As a browser sends it, from a page that was opened as a file.
    let row = |file, name: &'static [u8], frequency: &'static [u8]| -> [Field; 2] {
        let frequency: Field = ("frequency[]", None, frequency);
        [("bitstream[]", Some(file), name), frequency]
    };
    for (frequencies, expected) in [
        ([&b"100"[..], b"200"], "200"),
        ([b"", b""], "200"),
        ([b"", b"200"], "400"),
    ] {
        let [first, second] = frequencies;
        let rows = [
            row("a", b"1", first),
            row("b", b"2", second),
            row("", b"", b""),
        ];
        let mut fields = rows.concat();
        fields.extend([LOW, ("Arguments", None, b"")]);
        let answer = post(to, "Origin: null\r\n", &form(&fields)).await;
        assert_eq!(status(&answer), expected, "{answer}");
    }
    let list = world.list().await;
    let files: Vec<_> = list["tasks"].as_array().unwrap().iter().collect();
    assert_eq!(files.len(), 2);
    assert!(
        files
            .iter()
            .all(|it| it["files"] == serde_json::json!(["a", "b"])),
        "{list}"
    );
}

#[tokio::test]
async fn what_all_files_may_take_together_is_kept_to() {
    let mut world = World::bare(&["-max-binaries", "1000"]).await;
    world.start_funky().await;
    let to = world.uploads().await;
    let upload = |byte: u8| form(&[LOW, ("myFile", Some("x"), &[byte; 600])]);
    let (first, second) = (upload(b'1'), upload(b'2'));
    for (body_sent, expected) in [(&first, "200"), (&second, "507"), (&first, "200")] {
        let answer = post(to, "", body_sent).await;
        assert_eq!(status(&answer), expected, "{answer}");
        let is_told = body(&answer).contains("1000 bytes in all (-max-binaries)");
        assert_eq!(is_told, expected == "507", "{answer}");
    }
    assert_eq!(world.binaries(), 1);
}

#[tokio::test]
async fn a_request_that_promises_more_than_comes_leaves_nothing() {
    let mut world = World::bare(&[]).await;
    world.start_funky().await;
    let to = world.uploads().await;
    let kind = "Content-Type: multipart/form-data; boundary=XX\r\n";
    for (length, rest) in [
        ("18446744073709551615", true),
        ("99999999999999999999999999", false),
        ("-1", false),
        ("1073741824", true),
    ] {
        let head = format!(
            "POST /upload HTTP/1.1\r\nHost: {to}\r\n{kind}Content-Length: {length}\r\n\r\n"
        );
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        if rest {
            let begun = form(&[FILE]);
            // One that has heard enough closes.
            let _ = stream.write_all(&begun[..begun.len() - 8]).await;
        }
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = timeout(DEADLINE, stream.read_to_end(&mut answer))
            .await
            .unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(
            answer.is_empty() || status(&answer).starts_with('4'),
            "{length}: {answer}"
        );
    }
    world
        .until("the end of what was begun", || world.binaries() == 0)
        .await;
    let chunked = format!(
        "POST /upload HTTP/1.1\r\nHost: {to}\r\n{kind}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n--XX"
    );
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(chunked.as_bytes()).await.unwrap();
    drop(stream);
    let answer = post(to, "", &form(&[FILE, LOW])).await;
    assert_eq!(status(&answer), "200", "{answer}");
}

#[tokio::test]
async fn an_upload_while_the_scheduler_is_away_is_accepted_and_says_so() {
    let mut world = World::bare(&[]).await;
    world.kill_scheduler().await;
    world.start_funky().await;
    let fields: &[(&str, Option<&str>, &[u8])] = &[
        ("Priority", None, b"0"),
        ("myFile", Some("x"), b"#!/bin/sh\nexit 0\n"),
    ];
    let answer = post(world.uploads().await, "", &form(fields)).await;
    assert_eq!(body(&answer), "Successfully Uploaded File\n");
    assert!(
        answer.contains("x-funky-notice: the scheduler is not reachable"),
        "{answer}"
    );
    world.start_scheduler().await;
    world.launch("node-a", &[]);
    world.task_is(1, "succeeded").await;
}

#[tokio::test]
async fn a_server_with_the_habits_of_the_original_s_works_over_the_socket() {
    let required = std::env::var_os("CIAO_REQUIRE_GO").is_some();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/upload");
    let world = World::new(&["node-a"]).await;
    let server = world.path("upload-server");
    let mut build = Command::new("go");
    build
        .arg("build")
        .arg("-o")
        .arg(&server)
        .arg(".")
        .current_dir(source);
    match build.env("GOFLAGS", "-mod=mod").status().await {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(_) if !required => return eprintln!("no Go here: not tried"),
        Err(error) => panic!("go: {error}"),
    }
    let mut child = Command::new(server)
        .arg(world.socket())
        .arg(world.path("."))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(DEADLINE, lines.next_line())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let to: SocketAddr = line.rsplit_once(' ').unwrap().1.parse().unwrap();
    let log = world.path("log").display().to_string();
    for n in 1..=3 {
        let program = format!("#!/bin/sh\necho ran {n} >>{log}\n");
        let fields: &[(&str, Option<&str>, &[u8])] = &[
            ("myFile", Some("x.ukvm"), program.as_bytes()),
            ("Priority", None, b"1"),
        ];
        let answer = post(to, "Connection: close\r\n", &form(fields)).await;
        assert_eq!(
            (status(&answer), body(&answer)),
            ("200", "Successfully Uploaded File\n")
        );
        world
            .wrote(&format!("Task with id {n} terminated successfully"))
            .await;
    }
    assert_eq!(world.log(), ["ran 1", "ran 2", "ran 3"]);
}
