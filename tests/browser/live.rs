//! What happens is seen without a reload; the page's figures are those of `ciaoctl`; the scheduler goes and comes back.

use serde_json::Value;

use crate::driver::Browser;
use crate::site::repository;
use crate::world::{Page, World};

/// What the page says of an output that no process wrote: simulated nodes have none.
const NO_OUTPUT: &str = "/output?";

#[tokio::test]
async fn a_start_and_a_reason_to_wait_are_seen_without_a_reload() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let world = World::new(&["node-1", "node-2"]).await;
    let web = world.web("controller").await;
    let page = Page::open(browser, &web.url).await;
    page.browser
        .until("document.getElementById('tile-nodes').dataset.value === '2'")
        .await;
    page.show("instances").await;
    page.says("main", "No instance matches").await;
    world.start("first", 700, &[]).await;
    page.says("main tbody", "first").await;
    page.says("main tbody", "running").await;
    page.says("main tbody", "node-").await;
    page.browser.click("main tbody a").await;
    page.says("#timeline", "running").await;
    world.start("other", 700, &[]).await;
    page.show("queue").await;
    page.says("main", "Nothing waits").await;
    world
        .start("second", 800, &["--queue", "1h", "--require", "zone = b"])
        .await;
    world.start("third", 900, &["--queue", "1h"]).await;
    page.says("main tbody", "third").await;
    page.says("main tbody", "short of memory").await;
    page.says("#queue-count", "2").await;
    page.browser
        .click("main tbody tr:first-child a[href*=explain]")
        .await;
    page.says("#verdict", "It waits.").await;
    page.says("#nearest", "of the 800 MiB of memory").await;
    page.says("#decision tr[data-reason=memory]", "300 MiB")
        .await;
    page.says("#decision", "zone = b").await;
    what_is_pasted_is_explained(&page).await;
    figures_are_those_of_ciaoctl(&page, &world).await;
    page.is_clean(&[NO_OUTPUT, "/v1/explain"]).await;
}

/// STARTs as people have them: with and without an instance, indented by two or four, as JSON.
async fn what_is_pasted_is_explained(page: &Page) {
    let example = std::fs::read_to_string(repository("examples/hello.yaml")).unwrap();
    for (text, said) in [
        (&*example, "It fits."),
        (
            "start:\n    requirements:\n        mem_mb: 5\n        vcpus: 1\n",
            "It fits.",
        ),
        (
            "# A comment.\nstart:\n  # Another.\n  requirements: {mem_mb: 5000, vcpus: 1}\n",
            "It fits nowhere",
        ),
        (
            "{\"start\": {\"requirements\": {\"mem_mb\": 7, \"vcpus\": 1}}}",
            "It fits.",
        ),
        (
            "start:\n  requirements: {mem_mb: many}\n",
            "start.requirements.mem_mb",
        ),
        (
            "{start: {requirements: {mem_mb: 7, vcpus: 1}}}",
            "not valid JSON",
        ),
        (
            "start:\n  requirements: {mem_mb: 7, vcpus: 1, vcpu: 2}\n",
            "Warning: line 2: start.requirements.vcpu: no such key, ignored; did you mean 'vcpus'?",
        ),
        (
            "{\"start\": {\n\"requirements\": {\"mem_mb\": 7, \"vcpus\": 1},\n\"<img src=x>\\u202e\": 1}}",
            "Warning: line 3: start.<img src=x>\\u{202e}: no such key",
        ),
        (
            "start: {restart: true, requirements: {mem_mb: many, vcpus: 1}}\n",
            "start.requirements.mem_mb",
        ),
        (
            "start:\n  restart: true\n  requirements: {mem_mb: 5000, vcpus: 1}\n",
            "Warning: start.restart is the original's mark",
        ),
    ] {
        let text = serde_json::to_string(text).unwrap();
        let paste = format!(
            "document.getElementById('decision').replaceChildren(); document.getElementById('start-text').value = {text}"
        );
        page.browser.js(&paste).await;
        page.browser.click("#ask").await;
        page.says("#decision", said).await;
    }
}

async fn figures_are_those_of_ciaoctl(page: &Page, world: &World) {
    let nodes = world.ctl(&["nodes"]).await;
    let nodes = nodes["nodes"].as_array().unwrap();
    let sum = |key: &str| {
        nodes
            .iter()
            .map(|node| node[key].as_i64().unwrap())
            .sum::<i64>()
    };
    let instances = world.ctl(&["instances"]).await;
    let instances = instances["instances"].as_array().unwrap();
    let placed: Vec<&Value> = instances
        .iter()
        .filter(|row| row["node_uuid"] != "")
        .collect();
    let queue = world.ctl(&["queue"]).await;
    page.show("overview").await;
    for (tile, value) in [
        ("nodes", nodes.len()),
        ("instances", placed.len()),
        ("queue", queue["queue"].as_array().unwrap().len()),
    ] {
        let wanted = format!("document.getElementById('tile-{tile}').dataset.value === '{value}'");
        page.browser.until(&wanted).await;
    }
    let claimed: i64 = placed
        .iter()
        .map(|row| row["mem_mb"].as_i64().unwrap())
        .sum();
    let meter = "document.querySelector('[data-resource=mem_mb]').dataset";
    page.browser
        .until(&format!("{meter}.claimed === '{claimed}'"))
        .await;
    page.browser
        .until(&format!(
            "{meter}.capacity === '{}'",
            claimed + sum("mem_free_mb")
        ))
        .await;
    page.show("nodes").await;
    for node in nodes {
        let (name, free) = (
            node["hostname"].as_str().unwrap(),
            node["mem_free_mb"].as_i64().unwrap(),
        );
        let wanted = format!(
            "[...document.querySelectorAll('main tbody tr')].some((row) => row.innerText.includes('{name}') && row.innerText.includes('{free} MiB of 1000 MiB'))"
        );
        page.browser.until(&wanted).await;
    }
}

#[tokio::test]
async fn the_page_says_that_the_scheduler_is_away_and_recovers_by_itself() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let mut world = World::new(&["node-1"]).await;
    let web = world.web("controller").await;
    let page = Page::open(browser, &web.url).await;
    page.browser
        .until("document.getElementById('away').hidden")
        .await;
    world.kill_scheduler().await;
    page.says("#away", "The scheduler does not answer").await;
    page.browser
        .until("document.getElementById('link').dataset.state === 'away'")
        .await;
    world.start_scheduler(&[]).await;
    page.browser
        .until("document.getElementById('link').dataset.state === 'live'")
        .await;
    page.browser
        .until("document.getElementById('away').hidden")
        .await;
    world.ready(1).await;
    world.start("later", 100, &[]).await;
    page.show("instances").await;
    page.says("main tbody", "later").await;
    // What did not load meanwhile is said in the console by the browser itself.
    page.is_clean(&["Failed to load resource", "net::ERR_"])
        .await;
}

#[tokio::test]
async fn tabs_share_one_stream_of_events() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let world = World::new(&["node-1"]).await;
    let web = world.web("controller").await;
    let page = Page::open(browser, &web.url).await;
    page.browser
        .until("document.getElementById('tile-nodes').dataset.value === '1'")
        .await;
    // The page itself follows nothing and reads no status: its worker does, for all tabs.
    let script = "return performance.getEntriesByType('resource').filter((it) => /v1.(events|status)/.test(it.name)).length";
    assert_eq!(page.browser.js(script).await, 0);
    let opened = page
        .browser
        .js("window.other = open(location.origin + '/#/nodes'); return other !== null")
        .await;
    assert_eq!(opened, true);
    page.browser
        .until("other.document.getElementById('link').dataset.state === 'live'")
        .await;
    page.browser
        .until("other.document.querySelector('main tbody').innerText.includes('node-1')")
        .await;
    let script = script.replace("performance.", "other.performance.");
    assert_eq!(page.browser.js(&script).await, 0);
}

#[tokio::test]
async fn what_has_ended_is_listed_with_how_and_those_of_one_outcome_alone_on_request() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let world = World::new(&["node-1", "node-2"]).await;
    let web = world.web("viewer").await;
    let page = Page::open(browser, &web.url).await;
    page.show("history").await;
    page.says("main", "Nothing that has ended matches").await;
    for (name, command) in [("first", "delete"), ("second", "stop")] {
        world.start(name, 100, &["--wait=running"]).await;
        world.ctl(&[command, name]).await;
    }
    let again =
        "[...document.querySelectorAll('main button')].find((it) => it.innerText === 'Read again')";
    page.browser
        .until(&format!(
            "({again}.click(), ['first', 'deleted', 'second', 'stopped'].every((it) => \
             document.querySelector('main tbody').innerText.includes(it)))"
        ))
        .await;
    page.browser
        .js(
            "const it = document.querySelector('main select[aria-label=Outcome]'); \
             it.value = 'deleted'; it.dispatchEvent(new Event('change'))",
        )
        .await;
    page.browser
        .until(
            "((it) => it.includes('first') && !it.includes('second'))\
             (document.querySelector('main tbody').innerText)",
        )
        .await;
    page.browser.click("main tbody a").await;
    page.says("#detail h1", "first").await;
    page.is_clean(&[NO_OUTPUT]).await;
}

#[tokio::test]
async fn arrays_are_listed_as_far_as_they_are_with_the_history_of_each() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let world = World::new(&["node-1"]).await;
    let web = world.web("viewer").await;
    let page = Page::open(browser, &web.url).await;
    page.show("arrays").await;
    page.says("main", "There is no array").await;
    world.start_array("sweep", 3, "true").await;
    page.says("main tbody", "0 of 3").await;
    world.ctl(&["delete", "--wait", "sweep-1"]).await;
    for text in ["sweep", "1 of 3", "1 deleted"] {
        page.says("main tbody", text).await;
    }
    page.browser.click("main tbody a").await;
    page.says("main h1", "History of array").await;
    for text in ["sweep-1", "signal 15"] {
        page.says("main tbody", text).await;
    }
    page.show("history").await;
    page.browser
        .until("document.querySelector('main h1').innerText === 'History'")
        .await;
    page.is_clean(&[]).await;
}

/// Has the test answer what is asked of the history: `answer(latest, count, next)` gives a page to who asked first.
const HISTORY_BY_HAND: &str = "
    const real = window.fetch;
    const waiting = [];
    window.asked = 0;
    const row = (number) => ({ number, instance_uuid: `run-${number}`, outcome: 'succeeded', exit_code: 0, ended_at_ms: 1 });
    window.answer = (latest, count, next) => {
        const items = Array.from({ length: count }, (_, at) => row(latest - at));
        const headers = { 'content-type': 'application/json' };
        waiting.shift()(new Response(JSON.stringify({ items, next, in_memory: false }), { headers }));
    };
    window.fetch = (path, options) => {
        if (!String(path).includes('/v1/history')) return real(path, options);
        window.asked += 1;
        return new Promise((resolve) => waiting.push(resolve));
    };
    return true";

#[tokio::test]
async fn earlier_ends_are_read_once_however_often_they_are_asked_for() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let world = World::new(&["node-1"]).await;
    let web = world.web("viewer").await;
    let page = Page::open(browser, &web.url).await;
    page.show("history").await;
    page.says("main", "Nothing that has ended matches").await;
    assert_eq!(page.browser.js(HISTORY_BY_HAND).await, true);
    let button = |text: &str| {
        format!(
            "[...document.querySelectorAll('main button')].find((it) => it.innerText === '{text}')"
        )
    };
    let rows =
        |text: &str| format!("document.querySelector('main .number').innerText === '{text}'");
    let again = button("Read again");
    page.browser.js(&format!("{again}.click()")).await;
    page.browser.until("window.asked === 1").await;
    page.browser.js("window.answer(1000, 500, '501')").await;
    page.browser
        .until(&rows("500, and there are earlier ones"))
        .await;
    let earlier = button("Earlier ones");
    page.browser
        .js(&format!("const it = {earlier}; it.click(); it.click();"))
        .await;
    page.browser.until("window.asked === 2").await;
    page.browser.js(&format!("{earlier}.click()")).await;
    page.browser.js("window.answer(500, 3, undefined)").await;
    page.browser.until(&rows("503")).await;
    assert_eq!(page.browser.js("return window.asked").await, 2);
}
