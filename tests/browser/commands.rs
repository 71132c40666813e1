//! Commands from the page: each asks first, and a viewer has none.

use proto_frames::Kind;
use proto_frames::payload::{Payload, Ready};

use crate::driver::Browser;
use crate::world::{Page, World};

#[tokio::test]
async fn a_node_is_drained_to_its_end_and_an_instance_deleted() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let world = World::new(&["node-1"]).await;
    for name in ["one", "two"] {
        world.start(name, 100, &["--relocate"]).await;
    }
    let mut world = world;
    world.launch(&["--hostname", "node-2"]);
    world.ready(2).await;
    let web = world.web("controller").await;
    let page = Page::open(browser, &web.url).await;
    page.show("nodes").await;
    page.browser.click("main tbody tr:first-child a").await;
    page.says("#detail", "node-1").await;
    page.says("#detail", "Instances (2)").await;
    // It asks, and takes no for an answer.
    page.browser.click("#detail [data-command=drain]").await;
    page.says("dialog", "Drain node-1-1?").await;
    page.browser.press(&["\u{e00c}"]).await;
    page.browser
        .until("!document.querySelector('dialog')")
        .await;
    assert_eq!(world.ctl(&["nodes"]).await["nodes"][0]["cordoned"], false);
    page.browser.click("#detail [data-command=drain]").await;
    page.browser.click("#ask-yes").await;
    page.says("#drain", "Drain done: 2 of 2 moved").await;
    page.says("#detail", "Instances (0)").await;
    page.says("#detail", "cordoned").await;
    page.browser.click("#detail [data-command=uncordon]").await;
    page.browser.click("#ask-yes").await;
    page.says("#detail .badge", "ready").await;
    page.show("instances").await;
    page.says("main tbody tr:nth-child(2)", "node-2").await;
    page.browser.click("main tbody a").await;
    page.browser.click("#detail [data-command=suspend]").await;
    page.browser.click("#ask-yes").await;
    page.says("#instance-state", "suspended").await;
    page.browser.click("#detail [data-command=resume]").await;
    page.browser.click("#ask-yes").await;
    page.says("#instance-state", "running").await;
    page.browser.click("#detail [data-command=delete]").await;
    page.browser.click("#ask-yes").await;
    page.says("#instance-state", "ended").await;
    page.browser
        .until("document.querySelectorAll('main tbody tr').length === 1")
        .await;
    // Of those that have ended, the one whose details are shown is the selected one.
    let choose = "const state = document.querySelector('main select'); state.value = 'ended'; state.dispatchEvent(new Event('change'))";
    page.browser.js(choose).await;
    page.says("main tbody tr[aria-selected=true]", "ended")
        .await;
    assert_eq!(
        world.ctl(&["instances"]).await["instances"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    page.is_clean(&["/output?"]).await;
}

#[tokio::test]
async fn a_viewer_sees_no_commands() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let world = World::new(&["node-1"]).await;
    world.start("one", 100, &[]).await;
    let web = world.web("viewer").await;
    let page = Page::open(browser, &web.url).await;
    page.says("#role", "read only").await;
    for view in ["nodes", "instances"] {
        page.show(view).await;
        page.browser.click("main tbody a").await;
        page.says("#detail", "one").await;
        page.browser
            .until("document.querySelector('#detail .rows')")
            .await;
        let commands = "return document.querySelectorAll('[data-command]').length";
        assert_eq!(page.browser.js(commands).await, 0, "{view}");
    }
    page.is_clean(&["/output?"]).await;
}

#[tokio::test]
async fn what_a_peer_wrote_is_text_and_never_part_of_the_page() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let mut world = World::empty(&[]).await;
    world.launch(&[
        "--hostname",
        "<img src=x onerror=alert(1)>",
        "--label",
        "zone=<b>bold</b>",
    ]);
    world.ready(1).await;
    let web = world.web("controller").await;
    let page = Page::open(browser, &web.url).await;
    page.show("nodes").await;
    page.says("main tbody", "<img src=x").await;
    page.browser.click("main tbody a").await;
    page.says("#detail", "zone=<b>bold</b>").await;
    let script = "return document.querySelectorAll('img[src=x], #detail b, main b').length";
    assert_eq!(page.browser.js(script).await, 0);
    page.is_clean(&[]).await;
}

#[tokio::test]
async fn what_is_not_shown_is_escaped_on_the_page() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let world = World::empty(&[]).await;
    let mut node = world.site.node(world.daemon()).await;
    let fault = "its disk\u{202e}\u{1b}[2J\u{2028} <b>takes</b> no writes";
    let ready = Ready {
        node_uuid: node.uuid.to_string(),
        mem_total_mb: 1000,
        mem_available_mb: 1000,
        hostname: "<i>Ann's</i>".to_owned(),
        fault: fault.to_owned(),
        ..Ready::default()
    };
    node.send(Kind::READY, ready.encode()).await;
    node.settle().await;
    let web = world.web("controller").await;
    let page = Page::open(browser, &web.url).await;
    page.show("overview").await;
    let shown = "its disk\\u{202e}\\u{1b}[2J\\u{2028} <b>takes</b> no writes";
    page.says(
        "#conditions",
        &format!("node <i>Ann's</i> takes no work: {shown}"),
    )
    .await;
    page.show("nodes").await;
    page.browser.click("main tbody a").await;
    page.says("#detail", "<i>Ann's</i>").await;
    let script = "return /[\\p{Cf}\\p{Zl}\\p{Zp}]/u.test(document.body.innerText)";
    assert_eq!(page.browser.js(script).await, false);
    page.is_clean(&[]).await;
}
