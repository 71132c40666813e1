//! What the sources define, and what a name means in a module: types with their fields, traits, functions.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::{Bound, Ty};

/// A struct, enum or alias.
pub(crate) struct TypeDef<'a> {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) module: String,
    pub(crate) parameters: Vec<String>,
    pub(crate) shape: Shape<'a>,
}

/// What a type is made of.
pub(crate) enum Shape<'a> {
    Struct(&'a syn::Fields),
    Enum(BTreeMap<String, &'a syn::Fields>),
    Alias(&'a syn::Type),
}

/// Whose method a function is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A free function.
    Free,
    /// That of a type of the core.
    Type(usize),
    /// A trait's, with or without a body.
    Trait(usize),
    /// Of a trait of the core that is implemented for a type of others.
    Other(String),
    /// Of a trait of the core that is implemented for a parameter: for all types.
    All,
}

/// What a function is walked through.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    None,
    Block(&'a syn::Block),
    /// The value of a constant, which may name functions.
    Value(&'a syn::Expr),
}

/// A function, or the value of a constant.
pub(crate) struct FnDef<'a> {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) scope: Scope,
    pub(crate) owner: Owner,
    /// The trait that it implements a function of: a trait of the core, or 0 with one of others.
    pub(crate) implements: Option<Option<usize>>,
    pub(crate) signature: Option<&'a syn::Signature>,
    pub(crate) body: Body<'a>,
    pub(crate) is_private: bool,
    /// What it takes beside `self`, and what it returns.
    pub(crate) takes: Vec<Ty>,
    pub(crate) returns: Ty,
    pub(crate) has_self: bool,
}

/// Where a name or type is looked up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    pub(crate) module: String,
    /// What `Self` is.
    pub(crate) itself: Option<Ty>,
    /// Parameters of the type and function, and their bounds.
    pub(crate) bounds: BTreeMap<String, Vec<Bound>>,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Named {
    Module(String),
    Type(usize),
    Trait(usize),
    Fn(usize),
    /// A constant: its value as a function, and its type.
    Const(usize),
    Use(Vec<String>),
}

/// The names of a module.
#[derive(Debug, Default)]
pub(crate) struct Module {
    pub(crate) names: BTreeMap<String, Vec<Named>>,
    pub(crate) globs: Vec<Vec<String>>,
}

/// All that the sources define.
#[derive(Default)]
pub(crate) struct Index<'a> {
    pub(crate) types: Vec<TypeDef<'a>>,
    /// How many traits there are; each is its number.
    pub(crate) traits: usize,
    pub(crate) fns: Vec<FnDef<'a>>,
    pub(crate) modules: BTreeMap<String, Module>,
    /// Functions by owner and name.
    pub(crate) owned: BTreeMap<(Owner, String), Vec<usize>>,
    /// Methods by name, of all types.
    pub(crate) by_name: BTreeMap<String, Vec<usize>>,
    /// Which traits of the core each type implements, and which types implement each.
    pub(crate) traits_of: BTreeMap<usize, BTreeSet<usize>>,
    /// What a type dereferences to, and what it is walked through by.
    pub(crate) targets: BTreeMap<usize, Ty>,
    pub(crate) items: BTreeMap<usize, Ty>,
    /// Types that can be collected into.
    pub(crate) collected: BTreeSet<usize>,
}

/// What a path leads to: things by that name, and what of the path is left after a type or trait.
pub(crate) struct Found {
    pub(crate) named: Vec<Named>,
    pub(crate) rest: Vec<String>,
}

/// How many steps names are followed from `use` to `use`.
const MAX_STEPS: usize = 16;

impl Index<'_> {
    /// What a path means in a module; nothing for what others define.
    pub(crate) fn find(&self, module: &str, path: &[String]) -> Found {
        self.find_in(module, path, true, MAX_STEPS)
    }

    fn find_in(&self, module: &str, path: &[String], is_start: bool, steps: usize) -> Found {
        let nothing = Found {
            named: Vec::new(),
            rest: Vec::new(),
        };
        let Some((first, rest)) = path.split_first() else {
            return Found {
                named: vec![Named::Module(module.to_owned())],
                rest: Vec::new(),
            };
        };
        if steps == 0 {
            return nothing;
        }
        if is_start {
            match first.as_str() {
                "crate" => return self.find_in("", rest, false, steps - 1),
                "self" => return self.find_in(module, rest, true, steps - 1),
                "super" => return self.find_in(parent(module), rest, true, steps - 1),
                _ => {}
            }
        }
        let named = self.names(module, first, steps);
        if rest.is_empty() {
            return Found {
                named,
                rest: Vec::new(),
            };
        }
        for one in &named {
            match one {
                Named::Module(inner) => return self.find_in(inner, rest, false, steps - 1),
                Named::Type(_) | Named::Trait(_) => {
                    return Found {
                        named: vec![one.clone()],
                        rest: rest.to_vec(),
                    };
                }
                _ => {}
            }
        }
        nothing
    }

    /// What one name means in a module, by way of what it uses.
    fn names(&self, module: &str, name: &str, steps: usize) -> Vec<Named> {
        let Some(known) = self.modules.get(module) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for named in known.names.get(name).into_iter().flatten() {
            match named {
                Named::Use(path) if steps > 0 => {
                    found.extend(self.find_used(module, path, steps - 1));
                }
                Named::Use(_) => {}
                named => found.push(named.clone()),
            }
        }
        if found.is_empty() && steps > 0 {
            for glob in &known.globs {
                let mut path = glob.clone();
                path.push(name.to_owned());
                found.extend(self.find_used(module, &path, steps - 1));
            }
        }
        found
    }

    /// What a `use` leads to. A variant of an enum counts as its enum's.
    fn find_used(&self, module: &str, path: &[String], steps: usize) -> Vec<Named> {
        let found = self.find_in(module, path, true, steps);
        if found.rest.is_empty() {
            found.named
        } else {
            Vec::new()
        }
    }

    /// The functions that a call of a method may enter. `None` if the type is not known.
    pub(crate) fn methods(&self, of: &Ty, name: &str, scope: &Scope) -> Option<Vec<usize>> {
        match of {
            Ty::Unknown => None,
            Ty::Own(number, _) => Some(self.methods_of_own(*number, name)),
            Ty::Param(parameter) => {
                let bounds = scope.bounds.get(parameter);
                Some(self.methods_of_bounds(bounds.map_or(&[], Vec::as_slice), name))
            }
            Ty::Bound(bounds) => Some(self.methods_of_bounds(bounds, name)),
            Ty::Other(other, _) => {
                let mut found = self.owned_by(&Owner::Other(other.clone()), name);
                found.extend(self.owned_by(&Owner::All, name));
                if other == "?" {
                    // Which one is not known: any of others' types that a trait of the core is implemented for.
                    let named = self.by_name.get(name).into_iter().flatten();
                    let is_others = |at: &&usize| matches!(self.fns[**at].owner, Owner::Other(_));
                    found.extend(named.filter(is_others));
                }
                Some(found)
            }
            Ty::Tuple(_) | Ty::Fn(..) => Some(self.owned_by(&Owner::All, name)),
        }
    }

    fn methods_of_own(&self, number: usize, name: &str) -> Vec<usize> {
        let found = self.owned_by(&Owner::Type(number), name);
        if !found.is_empty() {
            return found;
        }
        let traits = self.traits_of.get(&number).into_iter().flatten();
        let found: Vec<usize> = traits
            .flat_map(|it| self.owned_by(&Owner::Trait(*it), name))
            .collect();
        if !found.is_empty() {
            return found;
        }
        match self.targets.get(&number) {
            Some(target) => self
                .methods(target, name, &Scope::default())
                .unwrap_or_default(),
            None => self.owned_by(&Owner::All, name),
        }
    }

    /// Those of traits, as each type has them.
    fn methods_of_bounds(&self, bounds: &[Bound], name: &str) -> Vec<usize> {
        let mut found = Vec::new();
        for bound in bounds {
            let Bound::Trait(number) = bound else {
                continue;
            };
            found.extend(self.owned_by(&Owner::Trait(*number), name));
            let named = self.by_name.get(name).into_iter().flatten();
            let implements = |at: &&usize| self.fns[**at].implements == Some(Some(*number));
            found.extend(named.filter(implements));
        }
        found
    }

    fn owned_by(&self, owner: &Owner, name: &str) -> Vec<usize> {
        let found = self.owned.get(&(owner.clone(), name.to_owned()));
        found.cloned().unwrap_or_default()
    }

    /// All methods of a name that take so many arguments.
    pub(crate) fn any_method(&self, name: &str, arguments: usize) -> Vec<usize> {
        let named = self.by_name.get(name).into_iter().flatten().copied();
        named
            .filter(|at| self.fns[*at].takes.len() == arguments)
            .collect()
    }

    /// A function of a type or trait that is named by path.
    pub(crate) fn function_of(&self, of: &Named, name: &str) -> Vec<usize> {
        match of {
            Named::Type(number) => self.methods_of_own(*number, name),
            Named::Trait(number) => self.methods_of_bounds(&[Bound::Trait(*number)], name),
            _ => Vec::new(),
        }
    }

    /// A type by its name, for the rules.
    pub(crate) fn type_named(&self, name: &str) -> Option<usize> {
        self.types.iter().position(|it| it.name == name)
    }

    /// How a function is named in lists: its file and its name.
    pub(crate) fn label(&self, at: usize) -> String {
        let function = &self.fns[at];
        format!("{}::{}", function.file, function.name)
    }
}

/// The module that a module stands in.
pub(crate) fn parent(module: &str) -> &str {
    module.rsplit_once("::").map_or("", |(parent, _)| parent)
}
