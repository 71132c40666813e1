//! The rules find what they forbid: small sources with one fault each, and the same without it.

use std::collections::BTreeSet;

use crate::list::{Difference, compare};
use crate::{build, rules, source, walk};

/// A scheduler of two components.
const SCHEDULER: (&str, &str) = (
    "scheduler",
    "use crate::cluster::Cluster;
     use crate::queue::Queue;
     pub struct Scheduler { pub(crate) cluster: Cluster, pub(crate) queue: Queue, pub(crate) count: usize }
     impl Scheduler { pub fn handle(&mut self) { self.count += 1; } }",
);

const COMPONENTS: [(&str, &str); 2] = [
    (
        "cluster",
        "pub(crate) struct Cluster { nodes: Vec<Node> }
         pub(crate) struct Node { free: u32 }
         impl Cluster {
             pub(crate) fn get(&self, at: usize) -> Option<&Node> { self.nodes.get(at) }
             pub(crate) fn nodes(&self) -> &Vec<Node> { &self.nodes }
         }
         impl Node { pub(crate) fn free(&self) -> u32 { self.free } }",
    ),
    (
        "queue",
        "pub(crate) struct Queue { waiting: Vec<u32> }
         impl Queue {
             pub(crate) fn len(&self) -> usize { self.waiting.len() }
             pub(crate) fn clear(&mut self) { self.waiting.clear() }
         }",
    ),
];

/// What is found in a core of these files beside the scheduler and its components.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let all = [SCHEDULER]
        .into_iter()
        .chain(COMPONENTS)
        .chain(files.iter().copied());
    let all = all.map(|(path, text)| (path.to_owned(), text.to_owned()));
    let sources = source::parse(all.collect());
    let index = build::index(&sources);
    let calls = walk::calls(&index);
    rules::findings(&index, &calls).into_iter().collect()
}

#[test]
fn a_flow_that_calls_another_is_found() {
    let start = "use crate::scheduler::Scheduler;
                 pub(crate) fn start(scheduler: &Scheduler) { super::stats::stats(scheduler) }";
    let stats = "use crate::scheduler::Scheduler;
                 pub(crate) fn stats(scheduler: &Scheduler) { scheduler.queue.len(); }";
    let files = [("flows/start", start), ("flows/stats", stats)];
    assert_eq!(found(&files), ["flow flows/start -> flows/stats"]);
    let alone = "use crate::scheduler::Scheduler;
                 pub(crate) fn start(scheduler: &Scheduler) { scheduler.queue.len(); }";
    assert_eq!(
        found(&[("flows/start", alone), ("flows/stats", stats)]),
        [""; 0]
    );
}

#[test]
fn files_of_one_flow_may_call_each_other() {
    let outer = "mod inner; pub(crate) fn start() { inner::step(0) }";
    let inner = "pub(crate) fn step(of: u32) { drop(of) }";
    assert_eq!(
        found(&[("flows/start", outer), ("flows/start/inner", inner)]),
        [""; 0]
    );
}

#[test]
fn a_cycle_of_two_files_through_a_method_is_found() {
    let line = "use crate::queue::tree::Tree;
                pub(crate) struct Line { tree: Tree }
                impl Line {
                    pub(crate) fn first(&self) -> u32 { self.tree.nodes().iter().map(|it| it.least()).sum() }
                    pub(crate) fn is_due(at: u32) -> bool { at > 1 }
                }";
    let tree = "use crate::queue::line::Line;
                pub(crate) struct Tree { nodes: Vec<Leaf> }
                pub(crate) struct Leaf { at: u32 }
                impl Tree { pub(crate) fn nodes(&self) -> &[Leaf] { &self.nodes } }
                impl Leaf { pub(crate) fn least(&self) -> u32 { u32::from(Line::is_due(self.at)) } }";
    let both = [
        "cycle queue/line -> queue/tree",
        "cycle queue/tree -> queue/line",
    ];
    assert_eq!(found(&[("queue/line", line), ("queue/tree", tree)]), both);
    let alone = tree.replace("u32::from(Line::is_due(self.at))", "self.at");
    assert_eq!(
        found(&[("queue/line", line), ("queue/tree", &alone)]),
        [""; 0]
    );
}

#[test]
fn an_effect_that_calls_an_effect_a_flow_or_a_search_is_found() {
    let root = "use crate::scheduler::Scheduler;
                impl Scheduler { pub(crate) fn apply(&mut self) { self.claim(); self.release() } }";
    let claims = "use crate::scheduler::Scheduler;
                  impl Scheduler {
                      pub(crate) fn claim(&mut self) { self.take() }
                      pub(crate) fn release(&mut self) { self.queue.clear() }
                      fn take(&mut self) { self.release() }
                  }";
    let effect = ["effect apply/claims::claim -> apply/claims::release"];
    assert_eq!(found(&[("apply", root), ("apply/claims", claims)]), effect);
    let search = "pub(crate) fn choose(at: usize) -> usize { at }";
    let flow = "pub(crate) fn end(at: usize) -> usize { at }";
    let claims = "use crate::scheduler::Scheduler;
                  impl Scheduler {
                      pub(crate) fn claim(&mut self) { crate::placement::choose::choose(self.count); }
                      pub(crate) fn release(&mut self) { [self.count].map(crate::flows::end::end); }
                  }";
    let files = [
        ("apply", root),
        ("apply/claims", claims),
        ("placement/choose", search),
        ("flows/end", flow),
    ];
    let both = [
        "effect apply/claims::claim -> placement/choose::choose",
        "effect apply/claims::release -> flows/end::end",
    ];
    assert_eq!(found(&files), both);
}

#[test]
fn what_changes_two_components_outside_of_apply_is_found() {
    let view = "use crate::cluster::Cluster;
                use crate::queue::Queue;
                pub(crate) struct Both<'a> { cluster: &'a mut Cluster, queue: Option<&'a mut Queue> }
                pub(crate) struct Seen<'a> { cluster: &'a Cluster, queue: &'a mut Queue }
                pub(crate) struct Outer<'a> { inner: Both<'a> }
                impl Both<'_> {
                    pub(crate) fn read(&self) {}
                    pub(crate) fn write(&mut self) {}
                }
                impl Seen<'_> { pub(crate) fn look(&mut self) {} }
                pub(crate) trait Changes { fn change(&mut self); fn change_of(of: &mut Both<'_>); }
                impl Changes for Outer<'_> {
                    fn change(&mut self) {}
                    fn change_of(_of: &mut Both<'_>) {}
                }
                pub(crate) fn free(_of: (u32, &mut crate::scheduler::Scheduler)) {}";
    let expected = [
        "writer views::change",
        "writer views::change_of",
        "writer views::free",
        "writer views::write",
    ];
    assert_eq!(found(&[("views", view)]), expected);
    assert_eq!(found(&[("apply/trial", view)]), [""; 0]);
}

#[test]
fn a_call_that_cannot_be_resolved_counts_as_one_of_all_by_that_name() {
    let of = |call: &str| {
        let text = format!(
            "pub(crate) trait Maker {{ type Made; fn made() -> Self::Made; }}
             pub(crate) fn start<M: Maker>(all: Vec<usize>) {{ {call} }}"
        );
        let stats = "pub(crate) struct Stats { count: usize }
                     impl Stats { pub(crate) fn get(&self, at: usize) -> usize { self.count + at } }";
        found(&[("flows/start", &text), ("flows/stats", stats)])
    };
    let flow = ["flow flows/start -> flows/stats"];
    assert_eq!(of("M::made().get(1);"), flow);
    assert_eq!(
        of("let made = M::made(); [1].map(|at| made.get(at));"),
        flow
    );
    assert_eq!(of("elsewhere!(of made.get(1));"), flow);
    // Nothing by that name takes two.
    assert_eq!(of("M::made().get(1, 2);"), [""; 0]);
    assert_eq!(of("all.get(1);"), [""; 0]);
}

#[test]
fn more_methods_than_allowed_are_counted() {
    let methods: String = (0..60)
        .map(|at| format!("pub(crate) fn effect_{at}(&mut self) {{}}"))
        .collect();
    let text = format!("use crate::scheduler::Scheduler; impl Scheduler {{ {methods} }}");
    assert_eq!(found(&[("apply/all", &text)]), ["methods 61"]);
}

#[test]
fn the_list_only_shrinks() {
    let found = |lines: &[&str]| {
        lines
            .iter()
            .map(|it| (*it).to_owned())
            .collect::<BTreeSet<_>>()
    };
    let listed = |lines: &[&str]| lines.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let list = listed(&["flow a -> b", "flow b -> a", "methods 70"]);
    let all = found(&["flow a -> b", "flow b -> a", "methods 70"]);
    let none = Difference {
        shrunk: list.clone(),
        ..Difference::default()
    };
    assert_eq!(compare(&all, &list), none);
    let less = compare(&found(&["flow b -> a", "flow c -> a", "methods 65"]), &list);
    assert_eq!(less.new, ["flow c -> a"]);
    assert_eq!(less.over, ["flow a -> b", "methods 70"]);
    assert_eq!(less.shrunk, ["flow b -> a", "methods 65"]);
    let more = compare(&found(&["flow a -> b", "flow b -> a", "methods 71"]), &list);
    assert_eq!(
        (more.new, more.over),
        (listed(&["methods 71"]), listed(&["methods 70"]))
    );
}
