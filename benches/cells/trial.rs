//! The same STARTs and ends to one core that has all nodes, and to cells behind routers; what becomes of them.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;

use crate::aggregate::View;
use crate::cell::Cell;
use crate::router::{Router, Rule};
use crate::workload::{Kind, Machine, Request, Want, Workload};

/// What is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) cells: usize,
    pub(crate) nodes: usize,
    pub(crate) kind: Kind,
    /// The preset of placement, in the one core as in the cells.
    pub(crate) preset: &'static str,
    pub(crate) rule: Rule,
    pub(crate) routers: usize,
    /// Cells that one START is sent to at most.
    pub(crate) tries: usize,
    /// How often each cell sends its aggregate, and how long it is under way.
    pub(crate) period: Duration,
    pub(crate) delay: Duration,
    /// STARTs a second.
    pub(crate) rate: f64,
    pub(crate) seed: u64,
}

/// What became of some STARTs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) starts: u64,
    pub(crate) refused_by_one: u64,
    pub(crate) refused_by_cells: u64,
    /// Refused by the cells, and placed by the one core.
    pub(crate) lost: u64,
    /// Refused by the one core, and placed by the cells.
    pub(crate) won: u64,
    /// Of those that are lost, how many some cell had a node for by its figures; not of groups.
    pub(crate) missed: u64,
    /// Refused by the one core, and by the cells, by [`Want::place`].
    pub(crate) wants: [[u64; 6]; 2],
    /// Cells that STARTs were sent to.
    pub(crate) tries: u64,
    /// STARTs that the first cell took.
    pub(crate) first: u64,
    /// How old what the router knew was, of each try.
    pub(crate) age: Duration,
    /// Aggregates, and their bytes.
    pub(crate) aggregates: u64,
    pub(crate) bytes: u64,
}

/// Of the memory or the CPUs, whichever is used more, the part in use: when the first START was refused, and when one in a
/// hundred had been.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Reached {
    pub(crate) first: Option<f64>,
    pub(crate) hundredth: Option<f64>,
}

/// What one core or several were given.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    mem_gib: i64,
    vcpus: i64,
}

impl Usage {
    fn change(&mut self, request: &Request, times: i64) {
        self.mem_gib += times * request.mem_gib;
        self.vcpus += times * request.vcpus;
    }

    fn part_of(&self, all: &Self) -> f64 {
        let mem = self.mem_gib as f64 / all.mem_gib as f64;
        mem.max(self.vcpus as f64 / all.vcpus as f64)
    }
}

/// What runs: in which node of the one core, and in which cell and node there.
struct Live {
    request: Request,
    one: Option<usize>,
    cells: Option<(usize, usize)>,
}

/// Where a START was placed: the node of the one core, and cell and node.
pub(crate) type Placed = (Option<usize>, Option<(usize, usize)>);

pub(crate) struct Trial {
    setup: Setup,
    pub(crate) one: Cell,
    pub(crate) cells: Vec<Cell>,
    routers: Vec<Router>,
    workload: Workload,
    rng: Rng,
    live: Vec<Live>,
    all: Usage,
    used: [Usage; 2],
    started: u64,
    published: u64,
    /// Aggregates under way: when they arrive, of which cell, made when.
    under_way: VecDeque<(Duration, usize, Duration, Vec<u8>)>,
    pub(crate) figures: Figures,
}

impl Trial {
    pub(crate) fn new(setup: Setup) -> Self {
        let machines = Machine::some(setup.seed, setup.nodes);
        let per_cell = setup.nodes / setup.cells;
        let cells: Vec<Cell> = machines
            .chunks(per_cell)
            .map(|machines| Cell::new(machines, setup.preset))
            .collect();
        let views = || {
            let view = |cell: &Cell| (View::decode(&cell.aggregate.encode()), cell.zones);
            cells.iter().map(view).collect::<Vec<_>>()
        };
        let router = |number| Router::new(views().into_iter(), setup.rule, setup.seed + number);
        let routers = (0..setup.routers as u64).map(router).collect();
        Self {
            setup,
            one: Cell::new(&machines, setup.preset),
            cells,
            routers,
            workload: Workload::new(setup.kind, setup.seed),
            rng: Rng::with_seed(setup.seed ^ 0x6c69_7665),
            live: Vec::new(),
            all: Usage {
                mem_gib: machines.iter().map(|it| it.mem_gib).sum(),
                vcpus: machines.iter().map(|it| it.vcpus).sum(),
            },
            used: [Usage::default(); 2],
            started: 0,
            published: 0,
            under_way: VecDeque::new(),
            figures: Figures::default(),
        }
    }

    /// The part in use in the one core, and in the cells.
    pub(crate) fn in_use(&self) -> [f64; 2] {
        self.used.map(|used| used.part_of(&self.all))
    }

    /// The time by now.
    pub(crate) fn at(&self) -> Duration {
        Duration::from_secs_f64(self.started as f64 / self.setup.rate)
    }

    /// STARTs until one in a hundred was refused by the one core and by the cells, of at least `least`.
    pub(crate) fn fill(&mut self, least: u64) -> [Reached; 2] {
        let mut reached = [Reached::default(); 2];
        while reached.iter().any(|it| it.hundredth.is_none()) {
            self.step();
            let figures = &self.figures;
            let refused = [figures.refused_by_one, figures.refused_by_cells];
            for ((reached, refused), used) in reached.iter_mut().zip(refused).zip(self.in_use()) {
                if refused > 0 {
                    reached.first.get_or_insert(used);
                }
                if self.started >= least && refused * 100 > self.started {
                    reached.hundredth.get_or_insert(used);
                }
            }
        }
        reached
    }

    /// STARTs until so much is in use in the one core; then so many, before each of which others end until no more is in
    /// use. What is counted is these.
    pub(crate) fn churn(&mut self, level: f64, starts: u64) -> Figures {
        while self.in_use()[0] < level {
            self.step();
        }
        self.figures = Figures::default();
        for _ in 0..starts {
            while self.in_use()[0] >= level {
                self.end_one();
            }
            self.step();
        }
        self.figures
    }

    /// One START more.
    pub(crate) fn step(&mut self) -> Placed {
        self.started += 1;
        let at = self.at();
        self.publish(at);
        let request = self.workload.next();
        let one = self.one.start(at, &request);
        let cells = self.route(at, &request);
        let figures = &mut self.figures;
        figures.starts += 1;
        figures.refused_by_one += u64::from(one.is_none());
        figures.refused_by_cells += u64::from(cells.is_none());
        figures.lost += u64::from(one.is_some() && cells.is_none());
        figures.wants[0][request.want.place()] += u64::from(one.is_none());
        figures.wants[1][request.want.place()] += u64::from(cells.is_none());
        figures.won += u64::from(one.is_none() && cells.is_some());
        if one.is_some() && cells.is_none() && self.fits_a_cell(&request) {
            self.figures.missed += 1;
        }
        self.used[0].change(&request, i64::from(one.is_some()));
        self.used[1].change(&request, i64::from(cells.is_some()));
        self.live.push(Live {
            request,
            one,
            cells,
        });
        (one, cells)
    }

    /// One that runs, any, ends.
    pub(crate) fn end_one(&mut self) {
        let at = self.at();
        let ended = self.live.swap_remove(self.rng.usize(..self.live.len()));
        if let Some(node) = ended.one {
            self.one.end(at, &ended.request, node);
            self.used[0].change(&ended.request, -1);
        }
        if let Some((cell, node)) = ended.cells {
            self.cells[cell].end(at, &ended.request, node);
            self.used[1].change(&ended.request, -1);
        }
    }

    /// Cells send their aggregates, one after the other, and those that have arrived are read.
    fn publish(&mut self, at: Duration) {
        let cells = self.cells.len() as u64;
        loop {
            let due = self
                .setup
                .period
                .mul_f64(self.published as f64 / cells as f64);
            if due > at {
                break;
            }
            let cell = (self.published % cells) as usize;
            let bytes = self.cells[cell].aggregate.encode();
            self.published += 1;
            self.figures.aggregates += 1;
            self.figures.bytes += bytes.len() as u64;
            self.under_way
                .push_back((due + self.setup.delay, cell, due, bytes));
        }
        while let Some((arrives, ..)) = self.under_way.front()
            && *arrives <= at
        {
            let (_, cell, made, bytes) = self.under_way.pop_front().expect("it is there");
            for router in &mut self.routers {
                router.learn(cell, made, &bytes);
            }
        }
    }

    /// Has a router try cells with a START.
    fn route(&mut self, at: Duration, request: &Request) -> Option<(usize, usize)> {
        // The members of a group by one router.
        let turn = match request.want {
            Want::Together(group) => u64::from(group),
            _ => self.started,
        };
        let routers = self.routers.len() as u64;
        let router = &mut self.routers[(turn % routers) as usize];
        let mut tried = Vec::new();
        while tried.len() < self.setup.tries {
            let cell = router.next(request, &tried)?;
            self.figures.tries += 1;
            self.figures.age += at.saturating_sub(router.made(cell));
            if let Some(node) = self.cells[cell].start(at, request) {
                router.taken(cell, at, request);
                self.figures.first += u64::from(tried.is_empty());
                return Some((cell, node));
            }
            router.refused(cell, at, request);
            tried.push(cell);
        }
        None
    }

    /// Whether some node of a cell has what a START asks for; not for those of groups, which depend on others.
    pub(crate) fn fits_a_cell(&self, request: &Request) -> bool {
        let zone = match request.want {
            Want::Together(_) | Want::Apart(_) => return false,
            Want::Zone(zone) => Some(zone),
            _ => None,
        };
        let gpus = match request.want {
            Want::Gpus(count) => count,
            _ => 0,
        };
        let cells = self.cells.iter();
        let mut nodes = cells.flat_map(|cell| cell.machines.iter().zip(&cell.free));
        nodes.any(|(machine, free)| {
            free.mem_gib >= request.mem_gib
                && free.vcpus >= request.vcpus
                && free.gpus >= gpus
                && (request.want != Want::Ssd || free.ssd)
                && zone.is_none_or(|zone| zone == machine.zone)
        })
    }
}
