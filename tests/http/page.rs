//! The page for browsers: its headers, what a browser keeps of it, who is given it, and what pages of other origins get.

use proto_frames::Role;

use crate::site::Site;

#[tokio::test]
async fn the_page_is_kept_to_its_own_files_and_origin() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/page/app.js", "text/javascript; charset=utf-8"),
        ("/page/theme.css", "text/css; charset=utf-8"),
        ("/page/icon.svg", "image/svg+xml"),
    ] {
        let answer = http.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.body.is_empty(), "{path}");
        for header in [
            format!("content-type: {kind}\r\n"),
            "default-src 'none'; script-src 'self'; style-src 'self'; ".to_owned(),
            "frame-ancestors 'none'; ".to_owned(),
            "require-trusted-types-for 'script'".to_owned(),
            "x-content-type-options: nosniff\r\n".to_owned(),
            "referrer-policy: no-referrer\r\n".to_owned(),
            "cache-control: no-cache\r\n".to_owned(),
        ] {
            assert!(answer.head.contains(&header), "{header}: {}", answer.head);
        }
        assert!(!answer.head.contains("unsafe"), "{}", answer.head);
        let (_, tag) = answer.head.split_once("etag: ").unwrap();
        let (tag, _) = tag.split_once("\r\n").unwrap();
        let again = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nif-none-match: {tag}\r\n\r\n"
        );
        let again = http.raw(again.as_bytes()).await;
        assert_eq!((again.status, &*again.body), (304, ""), "{path}");
    }
    assert_eq!(http.get("/page/none.js").await.problem().1, "no_such_path");
    let other = site.http(&daemon, Role::AGENT).await;
    assert_eq!(other.get("/").await.problem().1, "not_permitted");
}

#[tokio::test]
async fn the_status_names_what_the_caller_may_do() {
    let (site, daemon) = Site::with_http(&[]).await;
    for (role, may_command) in [(Role::VIEWER, false), (Role::CONTROLLER, true)] {
        let http = site.http(&daemon, role).await;
        let status = http.get("/v1/status").await.ok(200);
        assert_eq!(status["caller"]["may_command"], may_command, "{role}");
        let named = status["caller"]["role"].as_str().unwrap();
        assert!(named.contains(&role.to_string()), "{named}");
    }
}

#[tokio::test]
async fn what_a_page_of_another_origin_sends_has_no_effect() {
    let (site, daemon) = Site::with_http(&[]).await;
    let node = site.ready_node(&daemon).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let cordoned = async || {
        let row = http.get(&format!("/v1/nodes/{}", node.uuid)).await.ok(200);
        row["node"].get("cordoned").is_some()
    };
    let send = async |headers: &str| {
        let path = format!("/v1/nodes/{}/cordon", node.uuid);
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost:1\r\nconnection: close\r\n{headers}content-length: 0\r\n\r\n"
        );
        http.raw(request.as_bytes()).await
    };
    for headers in [
        "origin: https://evil.example\r\n",
        "origin: http://localhost:1\r\n",
        "origin: null\r\n",
        "sec-fetch-site: cross-site\r\n",
        "sec-fetch-site: same-site\r\n",
        "origin: https://localhost:1\r\nsec-fetch-site: cross-site\r\n",
    ] {
        assert_eq!(send(headers).await.problem().1, "cross_origin", "{headers}");
        assert!(!cordoned().await, "{headers}");
    }
    let ours = "origin: https://localhost:1\r\nsec-fetch-site: same-origin\r\n";
    assert_eq!(send(ours).await.status, 202);
    assert!(cordoned().await);
}
