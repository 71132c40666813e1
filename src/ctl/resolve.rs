//! From what an operator types to the one node or instance it means.
//!
//! The scheduler is asked with the same text first and answers everything that it may mean: candidates. [`resolve`]
//! picks among them by fixed precedence, so that an operator can always name a thing by its whole UUID, also if
//! another one is called so.

use crate::ctl::units::short;
use crate::printable::Lines;

/// Candidates that an error lists; the rest is counted.
///
/// The rest is counted, because a short beginning can fit thousands.
const MAX_LISTED: usize = 10;

/// A node or instance that a name may mean.
///
/// For an instance `hostname` is its own name, not that of its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its UUID (or other identifier).
    pub uuid: String,
    /// Its name: the host name of a node, the name of an instance.
    ///
    /// `None` for an instance without a name.
    pub hostname: Option<String>,
    /// What distinguishes it, for people: `node-a, READY`.
    pub about: String,
}

/// Why a name does not mean exactly one thing.
///
/// All end a command with [`crate::ctl::exit::Exit::NotFound`], before anything was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// Nothing has that name.
    #[error(
        "no {kind} is called {name:?} or has a UUID that begins so; `ciaoctl {kind}s` lists them"
    )]
    NotFound {
        /// `node` or `instance`.
        kind: &'static str,
        /// What was typed.
        name: String,
    },
    /// No set has that name.
    #[error("there is no set {name}: no living instance is called {name}.VERSION.NUMBER")]
    NoSet {
        /// What was typed.
        name: String,
    },
    /// A set of which no instance is left.
    #[error(
        "no instance of set {name} is left: {ended} ended, the latest {how}; `ciaoctl instances --all` lists them, `ciaoctl set \
         create` starts the set again"
    )]
    SetEnded {
        /// What was typed.
        name: String,
        /// How many ended, such as `3 instances`.
        ended: String,
        /// How and when, such as `2m ago with exit status 1`.
        how: String,
    },
    /// What has it has ended.
    #[error(
        "instance {id} ended {ago}: nothing is there to be ended; `ciaoctl history {id}` says what became of it"
    )]
    Ended {
        /// The instance.
        id: String,
        /// How long ago, such as `12s ago`.
        ago: String,
    },
    /// What has it has ended, on a node that is not connected, so that what it left there cannot be deleted now.
    #[error(
        "instance {id} ended {ago} on {node}, which is not connected: what it left there can be deleted once that node is \
         back"
    )]
    LeftOnLost {
        /// The instance.
        id: String,
        /// How long ago, such as `12s ago`.
        ago: String,
        /// Its node.
        node: String,
    },
    /// Several have.
    #[error("{name:?} means {} {kind}s; give more of the UUID:", candidates.len())]
    Ambiguous {
        /// `node` or `instance`.
        kind: &'static str,
        /// What was typed.
        name: String,
        /// All that it can mean.
        candidates: Vec<Candidate>,
    },
}

/// The one candidate that `name` means: the one with this UUID; else the one with this host name; else the one whose
/// UUID begins so, in either case of letters.
///
/// The three kinds of match are tried in this order, and the first one with a match decides: a name that is also the
/// beginning of another thing's UUID means the thing with that name. An empty name means nothing.
///
/// # Errors
/// [`ResolveError`].
pub fn resolve(
    kind: &'static str,
    name: &str,
    candidates: Vec<Candidate>,
) -> Result<Candidate, ResolveError> {
    // `get(..len)` is `None` where the UUID is shorter, or where the cut would be within a character.
    let tiers: [fn(&Candidate, &str) -> bool; 3] = [
        |candidate, name| candidate.uuid.eq_ignore_ascii_case(name),
        |candidate, name| candidate.hostname.as_deref() == Some(name),
        |candidate, name| {
            candidate
                .uuid
                .get(..name.len())
                .is_some_and(|begin| begin.eq_ignore_ascii_case(name))
        },
    ];
    if !name.is_empty() {
        for fits in tiers {
            let mut fitting: Vec<Candidate> = candidates
                .iter()
                .filter(|c| fits(c, name))
                .cloned()
                .collect();
            match fitting.len() {
                0 => {}
                1 => return Ok(fitting.remove(0)),
                _ => {
                    return Err(ResolveError::Ambiguous {
                        kind,
                        name: name.to_owned(),
                        candidates: fitting,
                    });
                }
            }
        }
    }
    Err(ResolveError::NotFound {
        kind,
        name: name.to_owned(),
    })
}

impl ResolveError {
    /// The things that a name can mean, a line for each; nothing if it means nothing.
    ///
    /// Printed below the error.
    #[must_use]
    pub fn candidates(&self) -> Lines {
        let mut lines = Lines::default();
        let Self::Ambiguous { candidates, .. } = self else {
            return lines;
        };
        for candidate in candidates.iter().take(MAX_LISTED) {
            lines.push(format_args!("  {}  {}", candidate.uuid, candidate.about));
        }
        if let more @ 1.. = candidates.len().saturating_sub(MAX_LISTED) {
            lines.push(format_args!("  and {more} more"));
        }
        lines
    }
}

impl std::fmt::Display for Candidate {
    /// `node-a (4cb19522)`, or the whole UUID of what has no host name.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.hostname {
            Some(hostname) => write!(f, "{hostname} ({})", short(&self.uuid)),
            None => f.write_str(&self.uuid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Vec<Candidate> {
        [
            ("4cb19522-0000", "a"),
            ("4cb19533-0000", "b"),
            ("beef0000-0000", "4cb1"),
            ("cafe0000-0000", "b"),
        ]
        .map(|(uuid, host)| Candidate {
            uuid: uuid.into(),
            hostname: Some(host.into()),
            about: "READY".into(),
        })
        .into()
    }

    fn meant(name: &str) -> Result<String, ResolveError> {
        resolve("node", name, nodes()).map(|candidate| candidate.uuid)
    }

    #[test]
    fn a_uuid_a_host_name_or_a_unique_beginning_will_do() {
        assert_eq!(meant("beef0000-0000").unwrap(), "beef0000-0000");
        assert_eq!(meant("a").unwrap(), "4cb19522-0000");
        assert_eq!(meant("4CB19533").unwrap(), "4cb19533-0000");
        assert_eq!(
            meant("4cb1").unwrap(),
            "beef0000-0000",
            "a host name comes before a beginning"
        );
    }

    #[test]
    fn what_means_several_lists_them() {
        let error = meant("4cb195").unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"4cb195\" means 2 nodes; give more of the UUID:"
        );
        assert_eq!(
            error.candidates().to_string(),
            "  4cb19522-0000  READY\n  4cb19533-0000  READY\n"
        );
        assert!(
            matches!(meant("b"), Err(ResolveError::Ambiguous { .. })),
            "two nodes with one host name"
        );
        let many = (0..25).map(|i| Candidate {
            uuid: format!("ab{i}"),
            hostname: None,
            about: String::new(),
        });
        let error = resolve("instance", "ab", many.collect()).unwrap_err();
        let listed = error.candidates().to_string();
        assert!(listed.ends_with("\n  and 15 more\n"), "{listed}");
    }

    #[test]
    fn what_means_nothing_says_where_to_look() {
        for name in ["zz", "", "4cb19522-0000-and-more", "é"] {
            assert!(
                matches!(meant(name), Err(ResolveError::NotFound { .. })),
                "{name}"
            );
        }
        assert_eq!(
            meant("zz").unwrap_err().to_string(),
            "no node is called \"zz\" or has a UUID that begins so; `ciaoctl nodes` lists them"
        );
    }
}
