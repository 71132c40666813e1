//! Why no node fits, as data: how many nodes lack what. The sentences are the server's.

use crate::api::text::MAX_TEXT_LEN;

/// Why no node of a pool fits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NoFit {
    /// Whether it is about network nodes; else about compute nodes.
    pub is_network: bool,
    /// So many nodes of that kind are connected, or lost and may come back with what it asks for.
    pub nodes: usize,
    /// What they lack, the most frequent first, and how many of them.
    pub lacks: Vec<(usize, Lack)>,
    /// Why waiting does not help; `None` where it may.
    pub never: Option<Never>,
}

/// Why waiting does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Never {
    /// No node is of the kind that is asked for.
    NoMatch,
    /// No node has as much in all.
    TooLarge,
}

/// What keeps a node from being chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// It has not reported what it has yet.
    Report,
    /// It goes offline.
    Offline,
    /// It is in maintenance.
    Maintenance,
    /// It calls itself full: of this, as far as its figures tell.
    Full(Option<Amount>),
    /// It takes no work, for a fault of its own.
    Fault,
    /// It is cordoned.
    Cordoned,
    /// Its queue is full.
    Queue,
    /// It does not say how much it has free of these.
    Figures(Unsaid),
    /// It has too little of something.
    Room(Box<Shortage>),
    /// It was tried already.
    Untried,
    /// It is the node that the instance is to leave.
    Left,
    /// It is lost, and may come back.
    Lost,
    /// It has room, which is for others that wait before it.
    Reserved,
    /// It has no value of this scope of a group.
    Scope {
        /// The scope's label.
        scope: Box<str>,
        /// The group.
        group: Box<str>,
    },
    /// It has not said yet what runs on it, which matters to this group.
    Listing(Box<str>),
    /// There is no member of this group in its value of the scope.
    Member {
        /// The group.
        group: Box<str>,
        /// The scope's label.
        scope: Box<str>,
    },
    /// There are as many members of this group in its value of the scope as may be.
    Vacancy {
        /// The group.
        group: Box<str>,
        /// So many may be.
        max: u32,
        /// The scope's label.
        scope: Box<str>,
    },
    /// A group keeps it out.
    Group,
    /// It has so many instances, or more.
    Instances(i64),
    /// So many STARTs are under way to it, or more.
    Starts(i64),
    /// Its load is above this.
    Load(i64),
    /// Its load by CPU is above this, in hundredths.
    LoadPerCpu(i64),
    /// This expression or label does not hold of it.
    Label(Box<str>),
    /// It has no lease.
    Lease,
    /// It is not in the same value of a scope as what has this label.
    Near {
        /// The scope's label.
        scope: Box<str>,
        /// The label to be near to.
        label: Box<str>,
    },
    /// It is not near what is asked for.
    Nearness,
    /// It is not the node of this UUID.
    Node(Box<str>),
    /// It is not the host of this name.
    Host(Box<str>),
    /// It has none of the instances that the START must be with.
    SameNode,
    /// It has an instance that the START must not be with.
    DifferentNode,
    /// It is reserved for images of which the START's is none.
    OtherImages,
    /// The START's image runs on other nodes alone.
    ForImage,
    /// It does not have this volume or port, which another node has.
    Volume(Box<str>),
    /// It is reserved for other tenants.
    Tenant,
    /// Its launcher cannot fetch the START's image, and it does not have it.
    ImageFetch,
    /// Its launcher fetches no images beside the program.
    MoreImages,
    /// Its launcher neither ends instances in time nor starts them again.
    RunLimits,
    /// Its launcher does not run this kind of workload.
    VmType(&'static str),
}

/// What a START asks for that every node has some of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Amount {
    /// Memory, in MiB.
    Memory,
    /// Virtual CPUs.
    Vcpus,
    /// Disk, in MiB.
    Disk,
}

impl Amount {
    /// Its name in answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Vcpus => "vcpus",
            Self::Disk => "disk",
        }
    }
}

/// Of what a node does not say how much it has free: of each amount, in their order. At least one.
pub type Unsaid = [Option<Amount>; 3];

/// Something that nodes have too little of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// The resource that is short.
    pub of: Countable,
    /// So much is asked for.
    pub asked: i64,
    /// The most that any of the nodes has free.
    pub best: i64,
    /// The host name of that node; empty if it has none.
    pub host: Box<str>,
    /// The most that any of them has in all, where that is not enough.
    pub largest: Option<i64>,
}

/// Something that nodes have a number of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Countable {
    /// What every node has.
    Every(Amount),
    /// A custom resource.
    Custom(Box<str>),
}

impl Lack {
    /// Bytes of the names in it.
    fn text_len(&self) -> usize {
        match self {
            Self::Scope { scope, group } | Self::Member { group, scope } => {
                scope.len() + group.len()
            }
            Self::Vacancy { group, scope, .. } => scope.len() + group.len(),
            Self::Near { scope, label } => scope.len() + label.len(),
            Self::Listing(text)
            | Self::Label(text)
            | Self::Node(text)
            | Self::Host(text)
            | Self::Volume(text) => text.len(),
            Self::Room(shortage) => {
                let of = match &shortage.of {
                    Countable::Every(_) => 0,
                    Countable::Custom(name) => name.len(),
                };
                size_of::<Shortage>() + shortage.host.len() + of
            }
            _ => 0,
        }
    }

    /// Bytes that it takes.
    fn len(&self) -> usize {
        size_of::<(usize, Self)>() + self.text_len()
    }
}

impl NoFit {
    /// Bytes that it takes.
    pub(crate) fn len(&self) -> usize {
        let lacks = self.lacks.iter().map(|(_, lack)| lack.len());
        size_of::<Self>() + lacks.sum::<usize>()
    }

    /// Whether there is more of it than a text may have: what is beyond is never read.
    pub(crate) fn is_too_long(&self) -> bool {
        self.kept_lacks() < self.lacks.len()
    }

    /// The same without what is beyond the longest text.
    pub(crate) fn cut(&self) -> Self {
        Self {
            lacks: self.lacks[..self.kept_lacks()].to_vec(),
            ..self.clone()
        }
    }

    /// So many of the first are as long as a text may be.
    fn kept_lacks(&self) -> usize {
        let mut len = 0;
        let is_within = |(_, lack): &&(usize, Lack)| {
            let before = len;
            // At least the number of nodes, a blank and a semicolon.
            len += 3 + lack.text_len().saturating_sub(size_of::<Shortage>());
            before < MAX_TEXT_LEN
        };
        self.lacks.iter().take_while(is_within).count()
    }
}
