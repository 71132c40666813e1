//! What is not well in the cluster, in words: what, and what to do about it.
//!
//! The same for `ciaoctl status`, the page and `/readyz?verbose`. Names of hosts, sets and files, and texts of launchers,
//! are others': whoever prints these sentences escapes them.

use std::net::SocketAddr;

use sched_core::{Condition, NEWCOMER_TIME, NamedInstance, NamedNode, Unwell};
use sched_model::{ConditionView, Role, StoreView};

use super::drain;

/// Seconds in a day.
const DAY_S: i64 = 86_400;

/// A condition with its sentences. `store` is how the state directory is, with its sentence.
pub(in crate::server) fn worded(condition: &Condition, store: &StoreView) -> ConditionView {
    let (what, advice) = words(&condition.what, store);
    let (subject, name) = subject(&condition.what);
    ConditionView {
        kind: condition.what.kind().to_owned(),
        severity: severity(&condition.what).to_owned(),
        subject,
        name,
        what,
        since_s: condition
            .for_s
            .map(|for_s| i64::try_from(for_s).unwrap_or(i64::MAX)),
        advice,
    }
}

/// How bad it is, where that is graded: a certificate that has ended is an error, one that will is a warning. It is valid to
/// the end of its last second.
fn severity(what: &Unwell) -> &'static str {
    match what {
        Unwell::PeerCertificate { left_s, .. } | Unwell::OwnCertificate(_, left_s) => {
            match left_s {
                ..0 => "error",
                _ => "warning",
            }
        }
        Unwell::ReloadRefused(_) => "error",
        _ => "",
    }
}

/// What it is about: an identifier, and a name for people.
fn subject(what: &Unwell) -> (String, String) {
    match what {
        Unwell::Store | Unwell::Recovering | Unwell::NoNode(_) | Unwell::More(..) => {
            (String::new(), String::new())
        }
        Unwell::Lost(node, _)
        | Unwell::Silent(node)
        | Unwell::Stalled(node)
        | Unwell::Fault(node, _)
        | Unwell::DiskFull(node, ..)
        | Unwell::ShortOfMemory(node)
        | Unwell::OutOfService(node, _)
        | Unwell::Drained(node, _)
        | Unwell::Cordoned(node)
        | Unwell::TwoMachines(node, ..) => (node.uuid.to_string(), node.hostname.to_string()),
        Unwell::InstanceLost(instance, ..)
        | Unwell::InstanceFails(instance, _)
        | Unwell::CrashLoop(instance, ..) => {
            (instance.instance.to_string(), instance.name.to_string())
        }
        Unwell::Set { name, .. } => (name.to_string(), String::new()),
        Unwell::PeerCertificate { uuid, hostname, .. } => (uuid.to_string(), hostname.to_string()),
        Unwell::OwnCertificate(file, _) => (file.to_string(), String::new()),
        Unwell::ReloadRefused(_) => (String::new(), String::new()),
    }
}

/// The same of a certificate that ends, or has.
pub(in crate::server) fn certificate(what: &Unwell) -> (String, String) {
    words(what, &StoreView::default())
}

/// What is not well, and what to do.
#[expect(clippy::too_many_lines, reason = "a table")]
fn words(what: &Unwell, store: &StoreView) -> (String, String) {
    match what {
        Unwell::Store => (
            format!("the scheduler cannot write its state directory: {}", store.detail),
            "make its disk writable again, or free space on it: what has to survive a restart is refused until then"
                .to_owned(),
        ),
        Unwell::Recovering => (
            "the scheduler was restarted and still waits for nodes that it knew".to_owned(),
            "`ciaoctl nodes` lists those that are EXPECTED; `ciaoctl node forget NODE` for one that never returns"
                .to_owned(),
        ),
        Unwell::NoNode(0) => (
            "no node takes new work: none is connected".to_owned(),
            "start a launcher, or see its log for why it cannot connect".to_owned(),
        ),
        Unwell::NoNode(connected) => (
            format!("no node takes new work, of {connected} that are connected"),
            "`ciaoctl nodes` lists how they are".to_owned(),
        ),
        Unwell::Lost(node, instances) => (
            format!("node {} is lost, with {}", named(node), instances_of(*instances)),
            "bring it back, or `ciaoctl node forget` it if it never returns".to_owned(),
        ),
        Unwell::Silent(node) => (
            format!("node {} is connected and reports nothing", named(node)),
            "see whether its launcher hangs (the machine is overloaded, or the process stopped), and start that again"
                .to_owned(),
        ),
        Unwell::Stalled(node) => (
            format!("node {} does not take what is queued for it", named(node)),
            "see whether its launcher hangs, and the network to it".to_owned(),
        ),
        Unwell::Fault(node, fault) => (
            format!("node {} takes no work: {fault}", named(node)),
            "mend that on the node; it takes work again by itself".to_owned(),
        ),
        Unwell::DiskFull(node, left, total) => (
            format!("the disk of node {} is full: {left} of {total} MB available", named(node)),
            "free space on the disk of its --state-dir".to_owned(),
        ),
        Unwell::ShortOfMemory(node) => (
            format!("node {} is short of memory", named(node)),
            "`ciaoctl top` lists what uses it; move or end some of that".to_owned(),
        ),
        Unwell::OutOfService(node, status) => (
            format!("node {} is in status {status} and takes no work", named(node)),
            "`ciaoctl restore` it, to end an evacuation".to_owned(),
        ),
        Unwell::Drained(node, drain) => (
            format!("node {} is being drained: {}", named(node), drain::summary(drain)),
            "make room elsewhere or delete what it waits for; `ciaoctl drain --abort` ends the drain, `ciaoctl uncordon` \
             lets the node take work again"
                .to_owned(),
        ),
        Unwell::Cordoned(node) => (
            format!("node {} is cordoned and takes no new work", named(node)),
            "`ciaoctl uncordon` it once it is to take work again".to_owned(),
        ),
        Unwell::TwoMachines(node, here, other) => (
            format!("two machines seem to have the UUID of node {}, {}{}", named(node), node.uuid, from(*here, *other)),
            format!(
                "where one was copied from the other, give the copy a UUID of its own: end its launcher, remove its \
                 --state-dir, start it again. This goes away once only one has connected for {} minutes",
                NEWCOMER_TIME.as_secs() / 60
            ),
        ),
        Unwell::InstanceLost(instance, host, left_ms) => {
            let left = left_ms.map(|ms| format!("; it is given up in {}", time(to_s(ms / 1000))));
            (
                format!(
                    "instance {} is on the lost node {host}{}",
                    called(instance),
                    left.unwrap_or_default()
                ),
                "bring the node back; `ciaoctl instance forget` gives it up before".to_owned(),
            )
        }
        Unwell::InstanceFails(instance, tried) => {
            let nodes = if *tried == 1 { "one node".to_owned() } else { format!("{tried} nodes") };
            (
                format!("instance {} could not be started on {nodes} and waits", called(instance)),
                "`ciaoctl history` says why each node could not start it; `ciaoctl explain --instance` why it waits"
                    .to_owned(),
            )
        }
        Unwell::CrashLoop(instance, host, restarts, code) => {
            let how = match code {
                None => String::new(),
                Some(signal @ ..0) => format!(", the latest time by signal {}", -signal),
                Some(code) => format!(", the latest time with exit status {code}"),
            };
            (
                format!(
                    "instance {} ends again and again on {host}: it was started again {restarts} times and has ended{how}",
                    called(instance)
                ),
                "`ciaoctl logs` shows what it says; `ciaoctl delete` ends it".to_owned(),
            )
        }
        Unwell::Set { name, ended, living, exit_code } => {
            let how = match exit_code {
                signal @ ..0 => format!("by signal {}", -signal),
                code => format!("with exit status {code}"),
            };
            let ended = instances_of(*ended as u64);
            let rest = match living {
                0 => "none is left".to_owned(),
                living => format!("{living} are left"),
            };
            (
                format!("{ended} of set {name} ended by itself, the latest {how}; {rest}"),
                "`ciaoctl instances --all` lists them, `ciaoctl logs` what they wrote; create or scale the set again"
                    .to_owned(),
            )
        }
        Unwell::PeerCertificate { uuid, role, hostname, left_s } => {
            let of = match (&**hostname, role.intersects(Role::AGENT | Role::NETAGENT)) {
                ("", true) => format!("node {uuid}"),
                (hostname, true) => format!("node {hostname}"),
                (_, false) => format!("{role} {uuid}"),
            };
            (
                format!("the certificate of {of} {}", ends(*left_s)),
                "make another with `ciao-cert -renew`: this project's programs read it at their next connection, and no new \
                 connection is accepted with the old one once it has ended"
                    .to_owned(),
            )
        }
        Unwell::OwnCertificate(file, left_s) => (
            format!("{file}, which the scheduler was given, {}", ends(*left_s)),
            "make a new certificate with `ciao-cert -renew`, or a new revocation list with `ciao-cert -renew-crl`, and have it \
             read with `ciaoctl reload`"
                .to_owned(),
        ),
        Unwell::ReloadRefused(why) => (
            format!("files that changed are not in force: {why}"),
            "mend that, and run `ciaoctl reload`; until then all is as it was before".to_owned(),
        ),
        Unwell::More(kind, count) => (
            format!("and {count} more of this kind ({kind})"),
            "`ciaoctl nodes` and `ciaoctl instances` list all".to_owned(),
        ),
    }
}

/// The host name of a node, or its UUID where it has none.
fn named(node: &NamedNode) -> String {
    match &*node.hostname {
        "" => node.uuid.to_string(),
        hostname => hostname.to_owned(),
    }
}

/// Where the two machines of one UUID connect from, as far as is known.
fn from(here: Option<SocketAddr>, other: Option<SocketAddr>) -> String {
    match (here, other) {
        (Some(here), Some(other)) => format!(": one at {here}, the other at {other}"),
        (Some(here), None) => format!(": one at {here}"),
        (None, Some(other)) => format!(": the other at {other}"),
        (None, None) => String::new(),
    }
}

/// The name of an instance, or its identifier where it has none.
fn called(instance: &NamedInstance) -> String {
    match &*instance.name {
        "" => instance.instance.to_string(),
        name => name.to_owned(),
    }
}

fn instances_of(count: u64) -> String {
    match count {
        1 => "1 instance".to_owned(),
        count => format!("{count} instances"),
    }
}

/// When a certificate ends that has so many seconds left: it is valid to the end of its last second.
fn ends(left_s: i64) -> String {
    match left_s {
        left_s @ 0.. => format!("ends in {}", time(left_s)),
        over => format!("ended {} ago", time(over.saturating_neg())),
    }
}

/// Seconds in the largest unit that fits: `3 days`, `5h`.
fn time(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..DAY_S => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / DAY_S),
    }
}

fn to_s(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
