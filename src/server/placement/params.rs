//! What stands behind the `?` of a request, and what of it nodes must have.
//!
//! Three forms of the same, one after the other:
//!
//! ```text
//! Params   name and value as they were sent, names checked against the path's and the version
//! Wanted   groups of amounts by class, traits, aggregates: Placement's names, values checked (`groups`)
//! Meant    countables and amounts, labels, aggregates' names: what the core knows, at one moment
//! ```
//!
//! [`Meant`] is used in two ways: as a START and constraints for a search ([`Meant::start`]), and as a test of one node
//! ([`Meant::is_met_by`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use proto_frames::Uuid;
use proto_frames::payload::Scheduling;

use super::fault::{Fault, repeated};
use super::groups::Wanted;
use super::limits::MAX_LABELS_PER_TRAIT;
use super::names::{
    COMPUTE, DISABLED, DISK_GB, MEMORY_MB, MIB_PER_GB, STANDARD_CLASSES, VCPU, aggregate_uuid,
    is_class, is_name, is_standard_trait, is_trait, may_be_trait,
};
use super::version::Version;
use sched_core::{
    Amount, Constraint, Countable, Having, InstanceId, Provider, Resources, Scheduler, StartRequest,
};

/// Largest amount of a resource, as in Placement. Also keeps GiB as MiB within 64 bits.
const MAX_AMOUNT: i64 = i32::MAX as i64;

/// The parameters of a request, in order, percent-decoded. Only [`REPEATED`] ones are there more than once.
#[derive(Debug)]
pub(super) struct Params(Vec<(String, String)>);

/// A parameter, and the minor version from which on it may be given. Behind a name that ends with [`SUFFIX`] stands the
/// suffix of a request group.
pub(super) type Known = (&'static str, u16);

/// What stands for the suffix of a request group.
const SUFFIX: &str = "{S}";

/// The version from which on suffixes are names, rather than numbers.
const NAMED_SUFFIXES: Version = Version(33);

/// Bytes of a suffix, as in Placement.
const MAX_SUFFIX_LEN: usize = 64;

/// Parameters that may be given more than once, from this version on. All of their values must hold.
const REPEATED: [Known; 5] = [
    ("member_of", 24),
    ("member_of{S}", 25),
    ("required", 39),
    ("required{S}", 39),
    ("same_subtree", 36),
];

/// Parameters of which Placement takes the first value, if they are given more than once.
const FIRST_COUNTS: [&str; 2] = ["limit", "group_policy"];

/// One of these is enough; or, if they are forbidden, none of them may be there.
#[derive(Debug)]
pub(super) struct AnyOf<T> {
    pub(super) names: Vec<T>,
    pub(super) is_forbidden: bool,
}

/// The same as this scheduler knows it at the moment when it was looked up.
#[derive(Debug)]
pub(super) struct Meant {
    /// What is asked for, disk in MiB; `None` where none can fit: a resource is asked for that no node has, or several
    /// nodes would be needed.
    pub(super) amounts: Option<Vec<(Countable, i64)>>,
    /// One for each trait or list of them, and for each `member_of`.
    pub(super) constraints: Vec<Constraint>,
    pub(super) node: Option<Uuid>,
}

impl Params {
    /// Reads what stands behind the `?`. `known` are the path's parameters with the version that brought each.
    ///
    /// # Errors
    /// 400: a parameter that is not known in this version, or one given twice that may not be.
    pub(super) fn read(query: &str, known: &[Known], version: Version) -> Result<Self, Fault> {
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
        let mut read: Vec<(String, String)> = Vec::new();
        for (name, value) in pairs {
            let is_in = |list: &[Known]| {
                let mut list = list.iter();
                list.any(|(other, since)| Version(*since) <= version && is(&name, other, version))
            };
            if !is_in(known) {
                let names = known.iter().filter(|(_, since)| Version(*since) <= version);
                let names: Vec<&str> = names.map(|(name, _)| *name).collect();
                let detail = format!(
                    "Invalid query string parameters: '{}' is not known here in version {version}; expected: {}",
                    repeated(&name),
                    names.join(", ")
                );
                return Err(Fault::bad(detail));
            }
            let may_repeat = is_in(&REPEATED) || FIRST_COUNTS.contains(&&*name);
            if !may_repeat && read.iter().any(|(other, _)| *other == name) {
                return Err(Fault::duplicate(&name));
            }
            read.push((name, value));
        }
        Ok(Self(read))
    }

    /// The value of a parameter; of several the first.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let mut named = self.0.iter().filter(|(other, _)| other == name);
        named.next().map(|(_, value)| &**value)
    }

    /// The names of all parameters, one for each value.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }

    /// All values of a parameter.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.0.iter().filter(move |(other, _)| other == name);
        named.map(|(_, value)| &**value)
    }

    /// The value of a parameter that is a UUID.
    ///
    /// # Errors
    /// 400: it is none.
    pub(super) fn uuid(&self, name: &str) -> Result<Option<Uuid>, Fault> {
        let uuid = |text: &str| {
            let said = repeated(text);
            let detail = format!("Invalid query string parameters: {name}: '{said}' is not a UUID");
            read_uuid(text).ok_or_else(|| Fault::bad(detail))
        };
        self.text(name).map(uuid).transpose()
    }

    /// How many of something are wanted; `None` where it does not say.
    ///
    /// # Errors
    /// 400: no whole number, or 0.
    pub(super) fn limit(&self) -> Result<Option<usize>, Fault> {
        let limit = |text: &str| match text.parse() {
            Ok(limit @ 1..) => Ok(limit),
            _ => Err(Fault::bad(format!(
                "Invalid query string parameters: limit: '{}' is not a whole number above 0",
                repeated(text)
            ))),
        };
        self.text("limit").map(limit).transpose()
    }
}

/// Whether a parameter is a known one, which may end with [`SUFFIX`].
fn is(name: &str, known: &str, version: Version) -> bool {
    match known.strip_suffix(SUFFIX) {
        None => name == known,
        Some(key) => name
            .strip_prefix(key)
            .is_some_and(|suffix| is_suffix(suffix, version)),
    }
}

/// Whether this may tell request groups apart: a number without leading zeros, from 1.33 on any name.
fn is_suffix(text: &str, version: Version) -> bool {
    if version < NAMED_SUFFIXES {
        return text.bytes().all(|byte| byte.is_ascii_digit())
            && !matches!(text.as_bytes(), [] | [b'0', ..]);
    }
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MAX_SUFFIX_LEN).contains(&text.len()) && text.bytes().all(is_sign)
}

/// A UUID, with hyphens or without. Also accepts what the `uuid` crate accepts besides, such as braces.
pub(super) fn read_uuid(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok()
}

/// Reads `VCPU:1,MEMORY_MB:512`. Each class may be there once.
pub(super) fn resources(text: &str) -> Result<BTreeMap<String, i64>, Fault> {
    let mut resources = BTreeMap::new();
    for part in text.split(',') {
        let (class, amount) = part.split_once(':').unwrap_or((part, ""));
        let amount = amount
            .parse()
            .ok()
            .filter(|it| (1..=MAX_AMOUNT).contains(it));
        let is_new = || !resources.contains_key(class);
        match amount {
            Some(amount) if is_name(class) && is_new() => {
                resources.insert(class.to_owned(), amount);
            }
            _ => {
                return Err(Fault::bad(format!(
                    "Badly formed resources parameter. Expected resources query string parameter in form: \
                     ?resources=VCPU:2,MEMORY_MB:1024, each class once and each amount from 1 to {MAX_AMOUNT}. Got: \
                     {}.",
                    repeated(text)
                )));
            }
        }
    }
    Ok(resources)
}

/// Reads `HW_CPU_X86_VMX,!CUSTOM_SLOW`: each trait by itself must be there, or with `!`, from 1.22 on, must not. From
/// 1.39 on also `in:CUSTOM_A,CUSTOM_B`: one of these is enough.
pub(super) fn required(text: &str, version: Version) -> Result<Vec<AnyOf<String>>, Fault> {
    let wrong = || {
        Fault::bad(format!(
            "Invalid query string parameters: Expected 'required' parameter value of the form: \
             HW_CPU_X86_VMX,CUSTOM_MAGIC; with ! before a trait that is forbidden from 1.22 on, or in:CUSTOM_A,CUSTOM_B \
             from 1.39 on. Got: {}",
            repeated(text)
        ))
    };
    let name = |name: &str| match is_name(name) {
        true => Ok(name.to_owned()),
        false => Err(wrong()),
    };
    if let Some(any) = text.strip_prefix("in:").filter(|_| version >= Version(39)) {
        return Ok(vec![AnyOf {
            names: any.split(',').map(name).collect::<Result<_, _>>()?,
            is_forbidden: false,
        }]);
    }
    let one = |part: &str| {
        let forbidden = part.strip_prefix('!').filter(|_| version >= Version(22));
        Ok(AnyOf {
            names: vec![name(forbidden.unwrap_or(part))?],
            is_forbidden: forbidden.is_some(),
        })
    };
    text.split(',').map(one).collect()
}

/// Reads `in:UUID,UUID`, of which one is enough, or one UUID; from 1.32 on with `!` before it for those that are
/// forbidden.
pub(super) fn member_of(text: &str, version: Version) -> Result<AnyOf<Uuid>, Fault> {
    let forbidden = text.strip_prefix('!').filter(|_| version >= Version(32));
    let list = forbidden.unwrap_or(text);
    let uuids: Option<Vec<Uuid>> = match list.strip_prefix("in:") {
        Some(list) => list.split(',').map(read_uuid).collect(),
        None => read_uuid(list).map(|uuid| vec![uuid]),
    };
    let names = uuids.ok_or_else(|| {
        Fault::bad(format!(
            "Invalid query string parameters: Expected 'member_of' parameter to contain valid UUID(s), as UUID or \
             in:UUID,UUID. Got: {}",
            repeated(text)
        ))
    })?;
    Ok(AnyOf {
        names,
        is_forbidden: forbidden.is_some(),
    })
}

impl Wanted {
    /// What that is here, now. Run under the core's lock, and short: at most [`MAX_NAMED`](super::limits::MAX_NAMED) names, of which each trait
    /// looks through the index of labels.
    ///
    /// # Errors
    /// 400: a class, or a trait, that is neither the standard's nor some node's. Aggregates that are not known are no error: a forbidden one is not there, and no node is in another.
    pub(super) fn meant(&self, scheduler: &Scheduler) -> Result<Meant, Fault> {
        let mut amounts = (!self.needs_several_nodes()).then(Vec::new);
        for (class, amount) in self.resources() {
            match countable(scheduler, class)? {
                Some(of) => {
                    // Placement counts disk in GiB.
                    let of_one = match of {
                        Countable::Every(Amount::Disk) => MIB_PER_GB,
                        _ => 1,
                    };
                    amounts
                        .iter_mut()
                        .for_each(|it| it.push((of.clone(), amount * of_one)));
                }
                // One resource that no node has is enough for nothing to fit; the rest is still checked for names that
                // are wrong.
                None => amounts = None,
            }
        }
        let mut constraints = Vec::new();
        for any in self.traits() {
            constraints.push(with_traits(scheduler, any)?);
        }
        for any in self.aggregates() {
            // The way from a UUID back to a name: by making each name's UUID.
            let is_named = |name: &&str| any.names.contains(&aggregate_uuid(name));
            let names = scheduler.aggregate_names().filter(is_named);
            constraints.push(Constraint {
                any_of: names.map(|name| Having::Aggregate(name.into())).collect(),
                is_forbidden: any.is_forbidden,
            });
        }
        Ok(Meant {
            amounts,
            constraints,
            node: self.node(),
        })
    }
}

/// What a class counts; `None` for one of the standard's that no node here can have.
///
/// # Errors
/// 400: there is no such class.
fn countable(scheduler: &Scheduler, class: &str) -> Result<Option<Countable>, Fault> {
    let every = match class {
        VCPU => Some(Amount::Vcpus),
        MEMORY_MB => Some(Amount::Memory),
        DISK_GB => Some(Amount::Disk),
        _ => None,
    };
    let custom = || {
        let mut names = scheduler.resource_names();
        let name = names.find(|name| is_class(name, class))?;
        Some(Countable::Custom(name.into()))
    };
    let of = every.map(Countable::Every).or_else(custom);
    if of.is_none() && !STANDARD_CLASSES.contains(&class) {
        let detail = format!(
            "Invalid resource class in resources parameter: No such resource class {class}."
        );
        return Err(Fault::bad(detail));
    }
    Ok(of)
}

/// Traits as what nodes have. One of the standard's is known, and no node has it, but for [`COMPUTE`] and [`DISABLED`]:
/// it adds nothing, so that it cannot be met, nor violated. Any other must be had by a node.
///
/// # Errors
/// 400: there is no such trait.
fn with_traits(scheduler: &Scheduler, any: &AnyOf<String>) -> Result<Constraint, Fault> {
    let mut any_of = Vec::new();
    for name in &any.names {
        match &**name {
            COMPUTE => any_of.push(Having::Compute),
            DISABLED => any_of.push(Having::Cordon),
            _ => {}
        }
        if is_standard_trait(name) {
            continue;
        }
        let labels = labels_of(scheduler, name);
        if labels.is_empty() {
            return Err(Fault::bad(format!("No such trait(s): {name}.")));
        }
        any_of.extend(
            labels
                .into_iter()
                .map(|(key, value)| Having::Label(key, value)),
        );
    }
    Ok(Constraint {
        any_of,
        is_forbidden: any.is_forbidden,
    })
}

/// The labels that are a trait, at most [`MAX_LABELS_PER_TRAIT`]; none where no node has it.
pub(super) fn labels_of(scheduler: &Scheduler, name: &str) -> Vec<(Box<str>, Box<str>)> {
    scheduler.labels_where(
        &|key| may_be_trait(key, name),
        &|key, value| is_trait(key, value, name),
        MAX_LABELS_PER_TRAIT,
    )
}

impl Meant {
    /// A START that asks for this, to be searched for and never placed; `None` where no node could have it. It has no
    /// instance name. Constraints are not part of it: the search takes them beside it.
    pub(super) fn start(&self) -> Option<Arc<StartRequest>> {
        let mut asked = Resources::ZERO;
        let mut scheduling = Scheduling::default();
        for (of, amount) in self.amounts.as_ref()? {
            match of {
                Countable::Every(Amount::Vcpus) => asked.vcpus = *amount,
                Countable::Every(Amount::Memory) => asked.mem_mib = *amount,
                Countable::Every(Amount::Disk) => asked.disk_mib = *amount,
                Countable::Custom(name) => {
                    scheduling.resources.insert(name.to_string(), *amount);
                }
            }
        }
        // Only custom resources need scheduling values; without them the request is as plain as one that asks for none.
        let has_custom = !scheduling.resources.is_empty();
        Some(Arc::new(StartRequest {
            asked,
            node_id: self.node.map(|uuid| uuid.to_string().into()),
            scheduling: has_custom.then(|| Box::new(scheduling)),
            ..StartRequest::plain(InstanceId::new(""))
        }))
    }

    /// Whether a node has all of this, by its figures: capacity less what is claimed. The policy's filters and a cordon
    /// do not count.
    pub(super) fn is_met_by(&self, provider: &Provider<'_>) -> bool {
        let Some(amounts) = &self.amounts else {
            return false;
        };
        let is_it = self.node.is_none_or(|node| node == provider.uuid());
        is_it && self.constraints.iter().all(|it| meets(provider, it)) && has(provider, amounts)
    }
}

/// Whether a node meets one constraint.
fn meets(provider: &Provider<'_>, constraint: &Constraint) -> bool {
    let mut any_of = constraint.any_of.iter();
    let has = any_of.any(|having| match having {
        Having::Label(key, value) => provider.labels().any(|label| label == (&**key, &**value)),
        Having::Aggregate(name) => provider.aggregates().any(|other| other == &**name),
        Having::Cordon => provider.is_cordoned(),
        Having::Compute => provider.is_compute(),
    });
    has != constraint.is_forbidden
}

/// Whether a node has these amounts free. A resource that it does not report it has none of.
fn has(provider: &Provider<'_>, amounts: &[(Countable, i64)]) -> bool {
    if amounts.is_empty() {
        return true;
    }
    let stocks = provider.stocks();
    amounts.iter().all(|(of, amount)| {
        let mut stocks = stocks.iter();
        let stock = stocks.find(|stock| stock.of == *of);
        stock.is_some_and(|stock| stock.capacity - stock.claimed >= *amount)
    })
}
