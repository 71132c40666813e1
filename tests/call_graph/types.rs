//! Types, as far as calls need them: which of the core's own types a value has, and what a container of others holds.
//! References and pointers that own one value (`Box`, `Arc`) are seen through.

use std::collections::BTreeMap;

/// A type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ty {
    /// Not known: a method of it may be any of that name.
    Unknown,
    /// One of the core's, by number, with its arguments.
    Own(usize, Vec<Ty>),
    /// One of the standard library or of another crate, by its last name, with its arguments. Its methods are none of
    /// the core's, but it may hold what is.
    Other(String, Vec<Ty>),
    /// Several values.
    Tuple(Vec<Ty>),
    /// A parameter of the function or its type.
    Param(String),
    /// `impl` or `dyn` with these bounds.
    Bound(Vec<Bound>),
    /// A function or closure: what it takes and what it returns.
    Fn(Vec<Ty>, Box<Ty>),
}

/// What a parameter or an unnamed type is bound by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Bound {
    /// A trait of the core.
    Trait(usize),
    /// It can be called.
    Fn(Vec<Ty>, Ty),
    /// It is walked through.
    Items(Ty),
}

impl Ty {
    pub(crate) fn other(name: &str) -> Self {
        Self::Other(name.to_owned(), Vec::new())
    }

    pub(crate) fn of(name: &str, inner: Self) -> Self {
        Self::Other(name.to_owned(), vec![inner])
    }

    /// An argument of a type of others.
    pub(crate) fn argument(&self, at: usize) -> Self {
        match self {
            Self::Other(_, arguments) => match arguments.get(at) {
                Some(argument) => argument.clone(),
                None if arguments.iter().any(Self::may_be_own) => Self::Unknown,
                None => Self::other("?"),
            },
            _ => Self::Unknown,
        }
    }

    /// Whether it is, holds, or may be one of the core's types.
    pub(crate) fn may_be_own(&self) -> bool {
        match self {
            Self::Unknown | Self::Own(..) | Self::Param(_) | Self::Bound(_) => true,
            Self::Other(_, inner) | Self::Tuple(inner) => inner.iter().any(Self::may_be_own),
            Self::Fn(_, result) => result.may_be_own(),
        }
    }

    /// The same with parameters replaced; those that are not in the map are not known.
    pub(crate) fn with(&self, parameters: &BTreeMap<String, Self>) -> Self {
        let all = |inner: &[Self]| inner.iter().map(|it| it.with(parameters)).collect();
        match self {
            Self::Param(name) => parameters.get(name).cloned().unwrap_or(Self::Unknown),
            Self::Own(number, inner) => Self::Own(*number, all(inner)),
            Self::Other(name, inner) => Self::Other(name.clone(), all(inner)),
            Self::Tuple(inner) => Self::Tuple(all(inner)),
            Self::Fn(taken, result) => Self::Fn(all(taken), Box::new(result.with(parameters))),
            Self::Bound(bounds) => {
                let with = |bound: &Bound| match bound {
                    Bound::Trait(number) => Bound::Trait(*number),
                    Bound::Fn(taken, result) => Bound::Fn(all(taken), result.with(parameters)),
                    Bound::Items(item) => Bound::Items(item.with(parameters)),
                };
                Self::Bound(bounds.iter().map(with).collect())
            }
            Self::Unknown => Self::Unknown,
        }
    }

    /// What is learned of parameters where a value of type `given` is passed for one of this type.
    pub(crate) fn learn(&self, given: &Self, parameters: &mut BTreeMap<String, Self>) {
        match (self, given) {
            (Self::Param(name), given) if *given != Self::Unknown => {
                parameters
                    .entry(name.clone())
                    .or_insert_with(|| given.clone());
            }
            (Self::Own(a, inner), Self::Own(b, of)) if a == b => learn_all(inner, of, parameters),
            (Self::Other(a, inner), Self::Other(b, of)) if a == b => {
                learn_all(inner, of, parameters);
            }
            (Self::Tuple(inner), Self::Tuple(of)) => learn_all(inner, of, parameters),
            (Self::Fn(_, result), Self::Fn(_, of)) => result.learn(of, parameters),
            (Self::Bound(bounds), Self::Fn(_, of)) => {
                for bound in bounds {
                    if let Bound::Fn(_, result) = bound {
                        result.learn(of, parameters);
                    }
                }
            }
            (Self::Bound(bounds), Self::Other(_, of)) => {
                for bound in bounds {
                    if let (Bound::Items(item), [of, ..]) = (bound, of.as_slice()) {
                        item.learn(of, parameters);
                    }
                }
            }
            _ => {}
        }
    }

    /// The one of two that is known better: of the arms of a `match`.
    pub(crate) fn or(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Unknown, _) => other,
            (Self::Other(name, inner), Self::Other(..))
                if name == "!" || inner.contains(&Self::Unknown) =>
            {
                other
            }
            (Self::Other(name, _), _) if name == "!" => other,
            _ => self,
        }
    }
}

fn learn_all(inner: &[Ty], of: &[Ty], parameters: &mut BTreeMap<String, Ty>) {
    for (inner, of) in inner.iter().zip(of) {
        inner.learn(of, parameters);
    }
}
