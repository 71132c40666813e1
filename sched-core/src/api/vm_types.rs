//! What runs an instance, and which of it launchers run: `start.vm_type`, and `vm_types` of READY and STATS.

/// What runs an instance: `start.vm_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VmType {
    /// A virtual machine.
    Qemu,
    /// A container.
    Docker,
    /// A process, which the original's launchers do not know.
    Process,
    /// Any other type: no launcher known to this project runs it.
    Other,
}

impl VmType {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Qemu, Self::Docker, Self::Process, Self::Other];

    /// By its word in payloads; a START without one is of a virtual machine, as the original's launchers take it.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        match name {
            "" | "qemu" => Self::Qemu,
            "docker" => Self::Docker,
            "process" => Self::Process,
            _ => Self::Other,
        }
    }

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Docker => "docker",
            Self::Process => "process",
            Self::Other => "other",
        }
    }
}

/// Types of workload, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VmTypes(u8);

impl VmTypes {
    /// What the original's launchers take: everything but processes.
    pub const ORIGINAL: Self = Self(!Self::bit(VmType::Process));

    /// Those of these words.
    #[must_use]
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let bits = names
            .into_iter()
            .map(|name| Self::bit(VmType::from_name(name)));
        Self(bits.fold(0, |all, bit| all | bit))
    }

    /// Whether this type is among them.
    #[must_use]
    pub fn contains(self, one: VmType) -> bool {
        self.0 & Self::bit(one) != 0
    }

    const fn bit(one: VmType) -> u8 {
        1 << one as u8
    }
}
