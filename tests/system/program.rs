//! Programs that leave traces: where and how often they began, that no two of them ever run at once, and whether they do
//! anything.

use std::path::PathBuf;

use crate::processes::is_stopped;
pub(crate) use crate::processes::runs;
use crate::world::{Cluster, until};

/// A program that never ends by itself, and the directory of its traces.
pub(crate) struct Program {
    dir: PathBuf,
    /// What the shell is to run.
    pub(crate) script: String,
}

impl Program {
    /// One with this name.
    ///
    /// It holds a lock while it lives, however it ends, and says so if somebody else does; then a line for each time it
    /// begins, with its process and its node; and then a beat for as long as it is not stopped and its directory is there.
    pub(crate) fn new(cluster: &Cluster, name: &str) -> Self {
        let dir = cluster.site.path(name);
        std::fs::create_dir(&dir).unwrap();
        let at = dir.display();
        let script = format!(
            "exec 9>>{at}/lock; flock -n 9 || echo $$ >>{at}/twice; \
             echo $$ $CIAO_NODE_UUID >>{at}/begun; \
             while echo >>{at}/beats; do sleep 0.02; done"
        );
        Self { dir, script }
    }

    fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.dir.join(file)).unwrap_or_default()
    }

    /// The process and the node of each time it began, in order.
    pub(crate) fn begun(&self) -> Vec<(i32, String)> {
        let text = self.text("begun");
        // A line that is being written is none yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let line = |line: &str| {
            let (process, node) = line.split_once(' ').unwrap();
            (process.parse().unwrap(), node.to_owned())
        };
        whole.lines().map(line).collect()
    }

    /// Waits until it has begun so often; its latest process, and that one's node.
    pub(crate) async fn runs(&self, times: usize) -> (i32, String) {
        until("its beginning", || self.begun().len() >= times).await;
        let begun = self.begun();
        assert_eq!(begun.len(), times, "{begun:?}");
        assert_eq!(self.text("twice"), "", "two of it at a time");
        begun.into_iter().next_back().unwrap()
    }

    /// Waits until it does something.
    pub(crate) async fn beats(&self) {
        let before = self.text("beats").len();
        until("a beat", || self.text("beats").len() > before).await;
    }

    /// How often it has beaten.
    pub(crate) fn beaten(&self) -> usize {
        self.text("beats").len()
    }
}

/// Waits until a process stands still because it was told to: it comes to its stop when it is next given a processor.
pub(crate) async fn stands_still(process: i32) {
    until("its stop", || is_stopped(process)).await;
}
