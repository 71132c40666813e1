//! What clients were told of instances, and whether that is so: in what the leader lists, and among the processes of all
//! nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::look::Look;
use crate::world::Pair;

/// What says in the environment of a process of which instance it is.
const VARIABLE: &str = "CIAO_INSTANCE_UUID=";

/// What was told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Book {
    /// Instances that were acknowledged and not deleted since.
    acknowledged: BTreeSet<String>,
    /// Into which each process of an instance has written its number.
    pub(crate) files: BTreeSet<PathBuf>,
}

impl Book {
    /// A command was done, and printed this.
    pub(crate) fn note(&mut self, line: &str, more: &[&str], said: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "run" if words.contains(&"--quiet") => {
                self.acknowledged.extend(said.lines().map(str::to_owned));
            }
            "delete" => {
                let gone = |uuid: &String| !more.contains(&uuid.as_str());
                self.acknowledged.retain(gone);
            }
            _ => {}
        }
    }

    /// Waits until the leader lists all that was acknowledged, as waiting, running or ended.
    pub(crate) async fn is_listed(&self, pair: &Pair) {
        let mut look = Look::new();
        loop {
            let mut listed = String::new();
            for of in ["queue", "instances", "history"] {
                listed += &pair.done(of, &[]).await;
            }
            let is_lost = |uuid: &&String| !listed.contains(&uuid[..8]);
            let Some(lost) = self.acknowledged.iter().find(is_lost) else {
                return;
            };
            let lost = format!("{lost} was acknowledged: {listed}");
            look.again(|| lost).await;
        }
    }

    /// No instance has begun a second time.
    pub(crate) fn ran_once(&self) {
        for file in &self.files {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let begun = text.lines().filter(|line| line.parse::<u32>().is_ok());
            let begun: Vec<&str> = begun.collect();
            assert!(begun.len() < 2, "{} began twice: {text}", file.display());
        }
    }

    /// Waits until what the leader lists as active is a process of a node, and nothing else of what was told is one; at no
    /// time is any instance two.
    pub(crate) async fn runs_once(&self, pair: &Pair) {
        let mut look = Look::new();
        loop {
            // Before and after: what ends or begins meanwhile is looked at again.
            let before = pair.done("instances", &[]).await;
            let processes = processes();
            let after = pair.done("instances", &[]).await;
            let mut wrong = Vec::new();
            for uuid in &self.acknowledged {
                let sessions = processes.get(uuid).map_or(0, BTreeSet::len);
                assert!(sessions < 2, "{uuid} runs {sessions} times");
                let is_active = |listed: &str| {
                    let mut lines = listed.lines().filter(|line| line.contains(&uuid[..8]));
                    lines.any(|line| line.contains("active"))
                };
                if [&before, &after].map(|it| is_active(it)) != [sessions == 1; 2] {
                    wrong.push(format!("{uuid} has {sessions} processes"));
                }
            }
            if wrong.is_empty() {
                return;
            }
            look.again(|| format!("{wrong:?}: {after}")).await;
        }
    }
}

/// Sessions of processes that run, by the instance that they are.
fn processes() -> BTreeMap<String, BTreeSet<u32>> {
    let mut found: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        let read = |file| std::fs::read_to_string(path.join(file)).unwrap_or_default();
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let mut variables = environment.split('\0');
        let Some(uuid) = variables.find_map(|it| it.strip_prefix(VARIABLE)) else {
            continue;
        };
        let stat = read("stat");
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' '));
        if let Some(session) = fields.and_then(|mut it| it.nth(3)) {
            let sessions = found.entry(uuid.to_owned()).or_default();
            sessions.insert(session.parse().unwrap());
        }
    }
    found
}
