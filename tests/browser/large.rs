//! A large cluster on the page.

use crate::driver::Browser;
use crate::world::{Page, World};

const NODES: usize = 10_000;

#[tokio::test]
async fn ten_thousand_nodes_are_drawn_and_each_is_found_where_it_is_drawn() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let mut world = World::empty(&["--max-handshakes", "256"]).await;
    world.launch(&["--count", &NODES.to_string(), "--report-interval", "60s"]);
    world.ready(NODES).await;
    let web = world.web("viewer").await;
    let page = Page::open(browser, &web.url).await;
    page.show("nodes").await;
    let map = "document.querySelector('main canvas').dataset";
    page.browser
        .until(&format!("{map}.nodes === '{NODES}'"))
        .await;
    // A frame is drawn again for what changes, and between frames the page answers.
    let frames: u64 = page
        .browser
        .text(&format!("{map}.frames"))
        .await
        .parse()
        .unwrap();
    page.browser
        .js("document.querySelector('main canvas').focus()")
        .await;
    page.browser
        .press(&["\u{e014}", "\u{e014}", "\u{e015}"])
        .await;
    page.browser
        .until(&format!("Number({map}.frames) > {frames}"))
        .await;
    let nodes = world.ctl(&["nodes"]).await;
    let mut names: Vec<(&str, &str)> = nodes["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| {
            (
                node["hostname"].as_str().unwrap(),
                node["node_uuid"].as_str().unwrap(),
            )
        })
        .collect();
    names.sort_unstable_by_key(|(name, uuid)| (number_in(name), *uuid));
    // A click finds the node that is drawn there: they are in the order of their names.
    for at in [0, 4_321, NODES - 1] {
        let script = format!(
            "const canvas = document.querySelector('main canvas'); const box = canvas.getBoundingClientRect(); \
             const {{ columns, width, height }} = canvas.dataset; \
             const x = box.left + ({at} % columns + 0.4) * width; \
             const y = box.top + (Math.floor({at} / columns) + 0.4) * height; \
             canvas.dispatchEvent(new MouseEvent('click', {{ clientX: x, clientY: y, bubbles: true }})); \
             return decodeURIComponent(location.hash.split('/')[2])"
        );
        let chosen = page.browser.js(&script).await;
        let (name, uuid) = names[at];
        assert_eq!(chosen, uuid, "{name}");
        page.says("#detail h1", name).await;
    }
    // The keyboard goes on from page to page.
    let next = "document.querySelector('main .pages button:last-child')";
    page.browser.js(&format!("{next}.focus()")).await;
    page.browser.press(&["\u{e007}", "\u{e007}"]).await;
    page.says("main .pages", "201–300 of 10,000").await;
    page.browser
        .until(&format!("document.activeElement === {next}"))
        .await;
    page.is_clean(&[]).await;
}

/// The number at the end of a name.
fn number_in(name: &str) -> u64 {
    let digits = name.trim_start_matches(|it: char| !it.is_ascii_digit());
    digits.parse().unwrap_or_default()
}
