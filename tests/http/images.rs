//! Images over HTTP: uploads that are whole, wrong, too large or cut off, who may, and what is in use.

use std::collections::BTreeSet;

use proto_frames::Role;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{Answer, Http};
use crate::site::{Daemon, Site, within};

/// Longer than two chunks, and no multiple of one.
const LONG: usize = 150_000;

/// A daemon that keeps images, with these flags besides, and a client who may change them.
async fn keeping(flags: &[&str]) -> (Site, Daemon, Http) {
    let site = Site::new();
    let directory = site.path("blobs").display().to_string();
    let flags = [&["--http", "127.0.0.1:0", "--blob-dir", &directory], flags].concat();
    let daemon = site.start(&flags).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    (site, daemon, http)
}

/// The digest of an image.
pub(crate) fn digest(image: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, image);
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("sha256:{}", digits.collect::<String>())
}

/// The head of an upload of so many bytes.
fn head(digest: &str, query: &str, len: usize) -> String {
    format!(
        "PUT /v1/images/{digest}{query} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n"
    )
}

/// The row of an answer, without the time at which the image was last used.
fn row(answer: &Value) -> Value {
    let mut row = answer["image"].clone();
    row.as_object_mut().unwrap().remove("used_at_ms");
    row
}

impl Http {
    /// Uploads these bytes as the image of that digest.
    async fn put(&self, digest: &str, query: &str, image: &[u8]) -> Answer {
        let request = [head(digest, query, image.len()).as_bytes(), image].concat();
        self.raw(&request).await
    }

    /// The digests in the list.
    async fn listed(&self, query: &str) -> Vec<String> {
        let page = self.get(&format!("/v1/images{query}")).await.ok(200);
        let rows = page["items"].as_array().unwrap().iter();
        rows.map(|row| row["digest"].as_str().unwrap().to_owned())
            .collect()
    }

    /// How an upload is refused.
    async fn refused(&self, digest: &str, query: &str, image: &[u8]) -> (u16, String) {
        let (status, reason, _) = self.put(digest, query, image).await.problem();
        (status, reason)
    }
}

#[tokio::test]
async fn an_image_that_is_uploaded_is_listed_and_looked_at_until_it_is_deleted() {
    let (site, daemon, http) = keeping(&[]).await;
    let image = vec![7; LONG];
    let digest = digest(&image);
    let path = format!("/v1/images/{digest}");
    let first = row(&http.put(&digest, "?tenant=t1", &image).await.ok(201));
    assert_eq!(
        (&first["digest"], &first["bytes"]),
        (&digest.clone().into(), &LONG.into())
    );
    assert_eq!(first["tenant"], "t1");
    assert!(
        first["pushed_by"].as_str().unwrap().contains("ciao"),
        "{first}"
    );
    // As a launcher would fetch it.
    let file = site
        .path("blobs")
        .join(digest.trim_start_matches("sha256:"));
    assert_eq!(std::fs::read(file).unwrap(), image);
    daemon.logged("image_pushed").await;
    let again = http.put(&digest, "", &image).await.ok(200);
    assert_eq!(row(&again), first, "whose it is does not change");
    let viewer = site.http(&daemon, Role::VIEWER).await;
    assert_eq!(row(&viewer.get(&path).await.ok(200)), first);
    assert_eq!(viewer.listed("").await, std::slice::from_ref(&digest));
    let deleted = http.send("DELETE", &path, "").await.ok(200);
    assert_eq!(row(&deleted), first);
    daemon.logged("image_deleted").await;
    assert_eq!(viewer.get(&path).await.problem().1, "no_image");
    assert_eq!(http.send("DELETE", &path, "").await.problem().0, 404);
    assert!(viewer.listed("").await.is_empty());
}

#[tokio::test]
async fn images_are_listed_page_by_page_each_once() {
    let (_site, _daemon, http) = keeping(&[]).await;
    let mut all = BTreeSet::new();
    for byte in 0..5 {
        let digest = digest(&[byte]);
        http.put(&digest, &format!("?tenant=t{}", byte % 2), &[byte])
            .await
            .ok(201);
        all.insert(digest);
    }
    let (mut found, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = http.get(&format!("/v1/images{query}")).await.ok(200);
        let rows = page["items"].as_array().unwrap();
        assert!(rows.len() <= 2, "{page}");
        found.extend(
            rows.iter()
                .map(|row| row["digest"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => query = format!("?limit=2&after={next}"),
            None => break,
        }
    }
    assert_eq!(found, all.iter().cloned().collect::<Vec<_>>());
    assert_eq!(http.listed("?selector=tenant%20=%20t1").await.len(), 2);
    let one = &found[3];
    for matching in [&one[..20], &one["sha256:".len()..20]] {
        let listed = http.listed(&format!("?match={matching}")).await;
        assert_eq!(listed, std::slice::from_ref(one), "{matching}");
    }
    let page = http.get("/v1/images?fields=bytes&limit=1").await.ok(200);
    assert_eq!(page["items"], serde_json::json!([{"bytes": 1}]));
    let (status, _, field) = http.get("/v1/images?after=sha256:1").await.problem();
    assert_eq!((status, &*field), (400, "after"));
}

#[tokio::test]
async fn what_is_not_what_its_digest_says_or_has_no_room_is_not_kept() {
    let flags = ["--blob-quota=3MiB", "--blob-tenant-quota=2MiB"];
    let (_site, _daemon, http) = keeping(&flags).await;
    let image = vec![1; 3 << 19];
    let of_another = digest(b"another");
    assert_eq!(
        http.refused(&of_another, "", &image).await,
        (422, "wrong_digest".to_owned())
    );
    let large = vec![2; (2 << 20) + 1];
    let refused = http.put(&digest(&large), "?tenant=a", &large).await;
    assert_eq!(refused.problem().1, "quota");
    assert_eq!(refused.status, 507);
    assert!(refused.body.contains("--blob-tenant-quota"), "{refused:?}");
    assert!(http.listed("").await.is_empty());
    for (digest, image, expected) in [
        ("none", &image[..], (422, "invalid_data")),
        (&*digest(b""), b"", (422, "invalid_data")),
    ] {
        let (status, reason) = http.refused(digest, "", image).await;
        assert_eq!((status, &*reason), expected);
    }
    let chunked = format!(
        "PUT /v1/images/{} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        digest(b"a")
    );
    let answer = http.raw(chunked.as_bytes()).await;
    assert_eq!(answer.problem().1, "length_required");
    // One of this tenant goes for the next one of it, as over SSNTP.
    let first = digest(&image);
    http.put(&first, "?tenant=a", &image).await.ok(201);
    let second = vec![3; 3 << 19];
    http.put(&digest(&second), "?tenant=a", &second)
        .await
        .ok(201);
    assert_eq!(http.listed("").await, [digest(&second)]);
}

#[tokio::test]
async fn an_upload_that_was_cut_off_goes_on_where_it_was() {
    let (site, _daemon, http) = keeping(&[]).await;
    let image: Vec<u8> = (0..LONG).map(|at| (at / 251) as u8).collect();
    let digest = digest(&image);
    let part = site
        .path("blobs")
        .join(digest.trim_start_matches("sha256:").to_owned() + ".part");
    let mut stream = http.connect().await;
    within(stream.write_all(head(&digest, "", LONG).as_bytes()))
        .await
        .unwrap();
    within(stream.write_all(&image[..100_000])).await.unwrap();
    within(stream.flush()).await.unwrap();
    // The first chunk is on disk.
    within(async {
        while std::fs::metadata(&part).map_or(0, |it| it.len()) < 65_536 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(stream);
    assert!(http.listed("").await.is_empty());
    http.put(&digest, "", &image).await.ok(201);
    let whole = std::fs::read(part.with_extension("")).unwrap();
    assert!(whole == image, "{} bytes", whole.len());
    assert!(!part.exists());
}

#[tokio::test]
async fn a_refusal_comes_before_the_image_is_sent() {
    let (_site, _daemon, http) = keeping(&["--blob-quota=1MiB"]).await;
    let mut stream = http.connect().await;
    let head = head(&digest(b"x"), "", (1 << 20) + 1);
    within(stream.write_all(head.as_bytes())).await.unwrap();
    within(stream.flush()).await.unwrap();
    let mut bytes = Vec::new();
    let _ = within(stream.read_to_end(&mut bytes)).await;
    assert_eq!(Answer::read(&bytes).problem().1, "quota");
}

#[tokio::test]
async fn one_certificate_does_not_take_every_place_for_uploads() {
    let (site, daemon, http) = keeping(&[]).await;
    let mut open = Vec::new();
    for number in 0..8 {
        let mut stream = http.connect().await;
        let head = head(&digest(&[number]), "", 1);
        within(stream.write_all(head.as_bytes())).await.unwrap();
        within(stream.flush()).await.unwrap();
        // Its place is taken once its part is there.
        let digits = digest(&[number])["sha256:".len()..].to_owned();
        let part = site.path("blobs").join(digits + ".part");
        within(async {
            while !part.exists() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        open.push(stream);
    }
    let refused = http.refused(&digest(b"x"), "", b"x").await;
    assert_eq!(refused, (503, "too_many".to_owned()));
    let mut first = open.swap_remove(0);
    within(first.write_all(&[0])).await.unwrap();
    within(first.flush()).await.unwrap();
    let mut bytes = Vec::new();
    let _ = within(first.read_to_end(&mut bytes)).await;
    assert_eq!(Answer::read(&bytes).status, 201);
    http.put(&digest(b"x"), "", b"x").await.ok(201);
    drop(daemon);
}

#[tokio::test]
async fn a_viewer_uploads_and_deletes_nothing_and_an_image_in_use_stays() {
    let (site, daemon, http) = keeping(&[]).await;
    let viewer = site.http(&daemon, Role::VIEWER).await;
    let image = b"#!/bin/sh\n";
    let digest = digest(image);
    let path = format!("/v1/images/{digest}");
    assert_eq!(
        viewer.refused(&digest, "", image).await,
        (403, "not_permitted".to_owned())
    );
    http.put(&digest, "", image).await.ok(201);
    assert_eq!(
        viewer.send("DELETE", &path, "").await.problem().1,
        "not_permitted"
    );
    let start = format!(
        r#"{{"start": {{"instance_uuid": "a", "vm_type": "process", "image": "{digest}",
            "requirements": {{"mem_mb": 1, "vcpus": 1}}, "scheduling": {{"queue": "10m"}}}}}}"#
    );
    http.send("POST", "/v1/instances", &start).await.ok(202);
    assert_eq!(http.get(&path).await.ok(200)["image"]["in_use"], true);
    let refused = http.send("DELETE", &path, "").await.problem();
    assert_eq!((refused.0, &*refused.1), (409, "in_use"));
    http.send("DELETE", "/v1/instances/a?wait=60s", "")
        .await
        .ok(200);
    http.send("DELETE", &path, "").await.ok(200);
}

#[tokio::test]
async fn a_scheduler_without_a_store_says_so() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let answer = http.get("/v1/images").await;
    assert_eq!(answer.problem().1, "not_offered");
    assert!(answer.body.contains("--blob-dir"), "{answer:?}");
    let digest = digest(b"a");
    assert_eq!(
        http.refused(&digest, "", b"a").await,
        (501, "not_offered".to_owned())
    );
}
