//! A WebDriver client: the few commands that the tests need, over HTTP by hand.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::site::{DEADLINE, within};

/// Pause between two looks at a page.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Browsers at once: each takes a processor and some hundred MiB.
static BROWSERS: Semaphore = Semaphore::const_new(2);

/// A browser with one tab; it ends with this.
pub(crate) struct Browser {
    session: String,
    port: u16,
    driver: Child,
    /// Its profile, and the home directory in which it finds certificates.
    home: TempDir,
    _place: SemaphorePermit<'static>,
}

/// Whether there is a browser. Without one the tests pass, unless one is required.
pub(crate) fn is_missing(tools: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |tool: &&&str| std::env::split_paths(&path).any(|dir| dir.join(tool).exists());
    let Some(missing) = tools.iter().find(|tool| !is_there(tool)) else {
        return false;
    };
    let is_required = std::env::var_os("CIAO_REQUIRE_BROWSER").is_some_and(|value| value == "1");
    assert!(!is_required, "{missing} is required");
    eprintln!("skipped: {missing} is not installed");
    true
}

/// A command that is killed with this thread, so that a test that is killed leaves nothing behind.
pub(crate) fn bound_to_us(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program.as_ref());
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

impl Browser {
    /// Starts one, unless there is none.
    pub(crate) async fn start() -> Option<Self> {
        if is_missing(&["chromedriver", "chromium", "setpriv"]) {
            return None;
        }
        Some(Self::start_in(tempfile::tempdir().unwrap()).await)
    }

    /// Starts one with this home directory.
    pub(crate) async fn start_in(home: TempDir) -> Self {
        let place = BROWSERS.acquire().await.unwrap();
        let mut command = bound_to_us("chromedriver");
        command
            .args(["--port=0", "--allowed-ips=127.0.0.1"])
            .env("HOME", home.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut driver = command.spawn().unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = loop {
            let line = within(lines.next_line()).await.unwrap().unwrap();
            let (_, behind) = line
                .split_once("started successfully on port ")
                .unwrap_or_default();
            if let Ok(port) = behind.trim_end_matches('.').parse() {
                break port;
            }
        };
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let mut browser = Self {
            session: String::new(),
            port,
            driver,
            home,
            _place: place,
        };
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            // The browser ends when its driver does, however that ends.
            "--remote-debugging-pipe",
            "--window-size=1280,900",
            &format!(
                "--user-data-dir={}",
                browser.home.path().join("profile").display()
            ),
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"binary": "/usr/bin/chromium", "args": args},
        }}});
        let made = browser.call("POST", "/session", &wanted).await;
        made["sessionId"]
            .as_str()
            .unwrap()
            .clone_into(&mut browser.session);
        browser
    }

    /// Goes to an address.
    pub(crate) async fn open(&self, url: &str) {
        self.command("POST", "url", &json!({"url": url})).await;
    }

    /// What a script returns.
    pub(crate) async fn js(&self, script: &str) -> Value {
        let script = json!({"script": script, "args": []});
        self.command("POST", "execute/sync", &script).await
    }

    /// What an expression is, as text.
    pub(crate) async fn text(&self, expression: &str) -> String {
        let value = self.js(&format!("return String({expression})")).await;
        value.as_str().unwrap().to_owned()
    }

    /// Waits until an expression is true; it may fail meanwhile.
    pub(crate) async fn until(&self, expression: &str) {
        let script = format!("try {{ return Boolean({expression}) }} catch {{ return false }}");
        let deadline = Instant::now() + DEADLINE;
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.js(&script).await != Value::Bool(true) {
            if Instant::now() > deadline {
                let page = self.text("document.body.innerText").await;
                panic!("not in time: {expression}\n{page}\n{:#?}", self.log().await);
            }
            look.tick().await;
        }
    }

    /// Waits until an element is there, and clicks it as a person does.
    pub(crate) async fn click(&self, selector: &str) {
        self.until(&format!("document.querySelector({selector:?})"))
            .await;
        let using = json!({"using": "css selector", "value": selector});
        let found = self.command("POST", "element", &using).await;
        let element = found.as_object().unwrap().values().next().unwrap();
        let path = format!("element/{}/click", element.as_str().unwrap());
        self.command("POST", &path, &json!({})).await;
    }

    /// Presses keys, one after the other.
    pub(crate) async fn press(&self, keys: &[&str]) {
        let pressed = keys.iter().flat_map(|key| {
            [
                json!({"type": "keyDown", "value": key}),
                json!({"type": "keyUp", "value": key}),
            ]
        });
        let actions = json!({"actions": [{"type": "key", "id": "keyboard", "actions": pressed.collect::<Vec<_>>()}]});
        self.command("POST", "actions", &actions).await;
    }

    /// A command of the browser's own protocol.
    pub(crate) async fn cdp(&self, name: &str, params: &Value) {
        let command = json!({"cmd": name, "params": params});
        self.command("POST", "goog/cdp/execute", &command).await;
    }

    /// What the console was told since the last time.
    pub(crate) async fn log(&self) -> Vec<String> {
        let entries = self
            .command("POST", "se/log", &json!({"type": "browser"}))
            .await;
        let text = |entry: &Value| format!("{} {}", entry["level"], entry["message"]);
        entries.as_array().unwrap().iter().map(text).collect()
    }

    async fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}/{path}", self.session);
        self.call(method, &path, body).await
    }

    async fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header("host", format!("127.0.0.1:{}", self.port))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let answer = within(sender.send_request(request)).await.unwrap();
        let bytes = within(answer.into_body().collect())
            .await
            .unwrap()
            .to_bytes();
        let mut answer: Value = serde_json::from_slice(&bytes).unwrap();
        let value = answer["value"].take();
        assert!(
            value.get("error").is_none(),
            "{method} {path} {body}: {value}"
        );
        value
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends when its driver has: its pipe is closed.
        let _ = self.driver.start_kill();
    }
}
