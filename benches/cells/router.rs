//! A router: it forwards each START to a cell of which it knows an aggregate some time old, and on refusal to the next.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use fastrand::Rng;

use crate::aggregate::{Fits, View};
use crate::workload::{Request, Want};

/// How often two cells that fit are looked for by chance before all are looked at.
const DRAWS: usize = 8;

/// How a router chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Of two cells that fit, drawn by chance, the emptier.
    Emptier,
    /// Of all cells that fit, the fullest.
    Fullest,
    /// Any cell, by chance, whatever is known of it.
    Blind,
}

/// What a router knows of one cell.
struct Known {
    view: View,
    made: Duration,
    zones: u32,
    /// What it sent there since the view was made.
    sent: VecDeque<(Duration, Request)>,
    sent_mem_gib: i64,
    /// What was refused there since the view was made: fewer of both than a START asks for, and the same else, were too
    /// many.
    refused: Vec<(Duration, Request)>,
}

pub(crate) struct Router {
    cells: Vec<Known>,
    rule: Rule,
    rng: Rng,
    /// Where groups are whose members are to be together.
    groups: BTreeMap<u32, usize>,
}

impl Router {
    /// One that knows a first view of each cell, and its zones.
    pub(crate) fn new(cells: impl Iterator<Item = (View, u32)>, rule: Rule, seed: u64) -> Self {
        let known = |(view, zones)| Known {
            view,
            made: Duration::ZERO,
            zones,
            sent: VecDeque::new(),
            sent_mem_gib: 0,
            refused: Vec::new(),
        };
        Self {
            cells: cells.map(known).collect(),
            rule,
            rng: Rng::with_seed(seed ^ 0x726f_7574),
            groups: BTreeMap::new(),
        }
    }

    /// A newer view of a cell is there.
    pub(crate) fn learn(&mut self, cell: usize, made: Duration, bytes: &[u8]) {
        let known = &mut self.cells[cell];
        (known.view, known.made) = (View::decode(bytes), made);
        while let Some((at, request)) = known.sent.front()
            && *at < made
        {
            known.sent_mem_gib -= request.mem_gib;
            known.sent.pop_front();
        }
        known.refused.retain(|(at, _)| *at >= made);
    }

    /// When the view of a cell was made.
    pub(crate) fn made(&self, cell: usize) -> Duration {
        self.cells[cell].made
    }

    /// The cell to try next. One is always tried first, whatever is known: a refusal has a cell's reasons.
    pub(crate) fn next(&mut self, request: &Request, tried: &[usize]) -> Option<usize> {
        if let Want::Together(group) = request.want
            && let Some(&cell) = self.groups.get(&group)
        {
            return tried.is_empty().then_some(cell);
        }
        if self.rule == Rule::Emptier
            && let Some(cell) = self.drawn(request, tried)
        {
            return Some(cell);
        }
        let may = |(at, known): (usize, &Known)| {
            (!tried.contains(&at) && known.has_zone(request)).then_some(at)
        };
        let may = self.cells.iter().enumerate().filter_map(may);
        let may: Vec<usize> = may.collect();
        if self.rule == Rule::Blind {
            return self.rng.choice(may);
        }
        let best = *may.iter().max_by_key(|&&at| self.rank(at, request))?;
        let fits = self.cells[best].fits(request);
        // What is known may be wrong by now: once no cell seems to fit, any is as good.
        match fits.surely + fits.maybe > 0 || tried.is_empty() {
            true => Some(best),
            false => self.rng.choice(may),
        }
    }

    /// A cell took it.
    pub(crate) fn taken(&mut self, cell: usize, at: Duration, request: &Request) {
        let known = &mut self.cells[cell];
        known.sent.push_back((at, *request));
        known.sent_mem_gib += request.mem_gib;
        if let Want::Together(group) = request.want {
            self.groups.insert(group, cell);
        }
    }

    /// A cell refused it.
    pub(crate) fn refused(&mut self, cell: usize, at: Duration, request: &Request) {
        self.cells[cell].refused.push((at, *request));
    }

    /// The emptier of two cells that surely fit; `None` if chance does not find two.
    fn drawn(&mut self, request: &Request, tried: &[usize]) -> Option<usize> {
        let mut first = None;
        for _ in 0..DRAWS {
            let at = self.rng.usize(..self.cells.len());
            let known = &self.cells[at];
            let is_good = !tried.contains(&at)
                && first != Some(at)
                && known.has_zone(request)
                && known.fits(request).surely > 0;
            match first {
                _ if !is_good => {}
                None => first = Some(at),
                Some(other) => {
                    let emptier = |at: usize| self.cells[at].left();
                    return Some(if emptier(other) >= emptier(at) {
                        other
                    } else {
                        at
                    });
                }
            }
        }
        None
    }

    /// The greater, the sooner it is tried: one that surely fits before one that may, and that before the others.
    fn rank(&self, cell: usize, request: &Request) -> (u32, i64) {
        let known = &self.cells[cell];
        match (known.fits(request), self.rule) {
            (Fits { surely: 1.., .. }, Rule::Fullest) => (2, -known.left()),
            (Fits { surely: 1.., .. }, _) => (2, known.left()),
            (Fits { maybe: 0, .. }, _) => (0, known.left()),
            (Fits { maybe, .. }, _) => (1, i64::from(maybe)),
        }
    }
}

impl Known {
    fn has_zone(&self, request: &Request) -> bool {
        match request.want {
            Want::Zone(zone) => self.zones & 1 << zone != 0,
            _ => true,
        }
    }

    /// What memory is left, after what was sent since.
    fn left(&self) -> i64 {
        self.view.mem_gib - self.sent_mem_gib
    }

    /// How many nodes fit: each that was sent since, if it is half as large, may have taken one; none where as much was
    /// refused.
    fn fits(&self, request: &Request) -> Fits {
        let covers = |other: &Request| {
            other.mem_gib <= request.mem_gib
                && other.vcpus <= request.vcpus
                && (other.want == request.want || other.want == Want::Nothing)
        };
        if self.refused.iter().any(|(_, other)| covers(other)) {
            return Fits {
                surely: 0,
                maybe: 0,
            };
        }
        let fits = self.view.fits(request);
        if fits.surely as usize > self.sent.len() {
            return fits;
        }
        let large = |(_, other): &&(Duration, Request)| {
            2 * other.mem_gib >= request.mem_gib || 2 * other.vcpus >= request.vcpus
        };
        let taken = self.sent.iter().filter(large).count() as u32;
        Fits {
            surely: fits.surely.saturating_sub(taken),
            maybe: fits.maybe + fits.surely.min(taken),
        }
    }
}
