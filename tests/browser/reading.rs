//! The page for those who use a keyboard, a screen reader, or a small screen.

use serde_json::json;

use crate::driver::Browser;
use crate::world::{Page, World};

const VIEWS: [&str; 7] = [
    "overview",
    "nodes",
    "instances",
    "queue",
    "arrays",
    "history",
    "explain",
];

#[tokio::test]
async fn everything_has_a_name_and_fits_a_small_screen() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let world = World::new(&["node-1", "node-2"]).await;
    world.start("one", 100, &[]).await;
    world.start("waits", 1000, &["--queue", "1h"]).await;
    world.start("waits-too", 1000, &["--queue", "1h"]).await;
    let web = world.web("controller").await;
    let page = Page::open(browser, &web.url).await;
    page.says("#queue-count", "1").await;
    for (width, scheme) in [(1280, "light"), (400, "dark")] {
        let metrics =
            json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false});
        page.browser
            .cdp("Emulation.setDeviceMetricsOverride", &metrics)
            .await;
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        page.browser.cdp("Emulation.setEmulatedMedia", &media).await;
        page.browser
            .until(&format!(
                "innerWidth === {width} && matchMedia('(prefers-color-scheme: {scheme})').matches"
            ))
            .await;
        for view in VIEWS {
            page.show(view).await;
            page.browser
                .until("document.querySelector('main h1')")
                .await;
            page.browser
                .until("document.documentElement.scrollWidth <= innerWidth")
                .await;
            let unnamed = page.browser.js(UNNAMED).await;
            assert_eq!(unnamed, json!([]), "{view} at {width}");
        }
        let ground = page
            .browser
            .text("getComputedStyle(document.documentElement).backgroundColor")
            .await;
        assert_eq!(
            ground == "rgb(14, 18, 22)",
            scheme == "dark",
            "{scheme}: {ground}"
        );
    }
    let landmarks = "['header', 'nav[aria-label]', 'main', 'aside[aria-label]', '[role=alert]', '[aria-live=polite]'].every((it) => document.querySelector(it))";
    page.browser.until(landmarks).await;
    page.is_clean(&[]).await;
}

/// What can be used and has no name that a screen reader could say.
const UNNAMED: &str = "const named = (it) => it.getAttribute('aria-label') || it.innerText || it.title || it.labels?.length; \
    return [...document.querySelectorAll('a, button, input, select, textarea, canvas, [role=region], [role=img], [role=meter]')] \
        .filter((it) => it.checkVisibility() && !named(it)).map((it) => it.outerHTML)";

#[tokio::test]
async fn a_node_is_chosen_on_the_map_and_left_again_by_the_keyboard() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let world = World::new(&["node-1", "node-2"]).await;
    let web = world.web("viewer").await;
    let page = Page::open(browser, &web.url).await;
    page.show("nodes").await;
    page.browser
        .until("document.querySelector('main canvas').dataset.nodes === '2'")
        .await;
    page.browser
        .js("document.querySelector('main canvas').focus()")
        .await;
    let (right, enter, escape) = ("\u{e014}", "\u{e007}", "\u{e00c}");
    page.browser.press(&[right, right]).await;
    page.says("#said", "node-2-1 · ready").await;
    page.browser.press(&[enter]).await;
    page.says("#detail h1", "node-2-1").await;
    page.browser
        .until("document.activeElement.id === 'detail'")
        .await;
    page.browser.press(&[escape]).await;
    page.browser
        .until("document.getElementById('detail').hidden")
        .await;
    page.browser
        .until("document.activeElement.innerText === 'node-2-1'")
        .await;
    page.is_clean(&[]).await;
}

#[tokio::test]
async fn the_content_is_skipped_to_and_a_broken_address_shows_the_list() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let world = World::new(&["node-1"]).await;
    let web = world.web("viewer").await;
    let page = Page::open(browser, &web.url).await;
    page.show("nodes").await;
    page.browser
        .js("document.querySelector('.skip').click()")
        .await;
    page.browser
        .until("document.activeElement.id === 'main' && location.hash === '#/nodes'")
        .await;
    page.browser.js("location.hash = '#/queue/%'").await;
    page.browser
        .until("document.querySelector('main h1').innerText === 'Queue'")
        .await;
    page.browser.js("location.hash = '#/nodes/%'").await;
    page.says("main tbody", "node-1").await;
    page.browser
        .until("document.getElementById('detail').hidden")
        .await;
    page.is_clean(&[]).await;
}

#[tokio::test]
async fn lists_are_filtered_by_words_and_by_expressions() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let mut world = World::empty(&[]).await;
    for (name, zone) in [("node-1", "a"), ("node-2", "b")] {
        world.launch(&["--hostname", name, "--label", &format!("zone={zone}")]);
    }
    world.ready(2).await;
    world.start("one", 100, &[]).await;
    let web = world.web("viewer").await;
    let page = Page::open(browser, &web.url).await;
    for (view, typed, shown) in [
        ("nodes", "node-2", "1 of 2"),
        ("nodes", "zone = b", "1 of 2"),
        ("nodes", "zone in (a, b)", "2"),
        ("nodes", "zone=a", "1 of 2"),
        ("nodes", "vcpus_free < 0", "0 of 2"),
        ("instances", "mem_mb >= 100", "1"),
        ("instances", "mem_mb > 100", "0 of 1"),
    ] {
        page.show(view).await;
        page.browser.js(&typing(typed)).await;
        page.browser
            .until(&format!(
                "document.querySelector('.head [role=status]').innerText === '{shown}'"
            ))
            .await;
    }
    page.browser.js(&typing("colour = red")).await;
    page.says("main .note.warn", "no field 'colour'").await;
    page.browser.js(&typing("")).await;
    page.browser
        .until("document.querySelector('main .note.warn').hidden")
        .await;
    page.is_clean(&["400"]).await;
}

/// Puts a text into the field above the list.
fn typing(text: &str) -> String {
    format!(
        "const field = document.querySelector('main input[type=search]'); field.value = '{text}'; \
         field.dispatchEvent(new Event('input', {{ bubbles: true }}))"
    )
}
