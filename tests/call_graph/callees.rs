//! What a call enters: a path with arguments, a method, or a function that is named as a value.

use syn::Expr;

use crate::convert::names;
use crate::foreign;
use crate::index::{Named, Shape};
use crate::types::{Bound, Ty};
use crate::walk::{Given, Walk, filled};

impl Walk<'_, '_> {
    /// A path as a value: a name, a constant, a function that is passed, a variant.
    pub(crate) fn path(&mut self, of: &syn::ExprPath, expected: Option<&Ty>) -> Ty {
        let names = names(&of.path);
        if names.len() == 1
            && let Some(ty) = self.local(&names[0])
        {
            return ty.clone();
        }
        if let Some(ty) = self.function_at(of) {
            return ty;
        }
        let (ty, variant) = self.constructed(&of.path);
        match (&ty, variant) {
            (Ty::Own(number, _), Some(variant)) => match &self.index.types[*number].shape {
                Shape::Enum(variants) => match variants.get(&variant) {
                    Some(fields) if !fields.is_empty() => Ty::Fn(Vec::new(), Box::new(ty)),
                    Some(_) => ty,
                    None => Ty::other("?"),
                },
                _ => Ty::other("?"),
            },
            (Ty::Own(number, _), None) => match &self.index.types[*number].shape {
                Shape::Struct(fields) if !fields.is_empty() => Ty::Fn(Vec::new(), Box::new(ty)),
                _ => ty,
            },
            _ => match names.last().map(String::as_str) {
                Some("None") => match expected {
                    Some(expected) => expected.clone(),
                    None => Ty::of("Option", Ty::Unknown),
                },
                _ => Ty::other("?"),
            },
        }
    }

    /// The functions or constants that a path names, as calls; what they are as a value.
    fn function_at(&mut self, of: &syn::ExprPath) -> Option<Ty> {
        let found = self.functions_at(of);
        let first = *found.first()?;
        for callee in found {
            self.call(callee);
        }
        let function = &self.index.fns[first];
        Some(match function.signature {
            Some(_) => {
                let returns = function.returns.with(&Given::new());
                Ty::Fn(function.takes.clone(), Box::new(returns))
            }
            None => function.returns.clone(),
        })
    }

    /// The functions or constants that a path names.
    fn functions_at(&self, of: &syn::ExprPath) -> Vec<usize> {
        let names = names(&of.path);
        let Some(last) = names.last() else {
            return Vec::new();
        };
        let of_type = match &of.qself {
            Some(itself) => Some(self.index.ty(&self.scope, &itself.ty)),
            None if names.len() == 2 && names[0] == "Self" => self.scope.itself.clone(),
            None if names.len() == 2 && self.scope.bounds.contains_key(&names[0]) => {
                Some(Ty::Param(names[0].clone()))
            }
            None => None,
        };
        if let Some(ty) = of_type {
            return self
                .index
                .methods(&ty, last, &self.scope)
                .unwrap_or_default();
        }
        let found = self.index.find(&self.scope.module, &names);
        let mut functions = Vec::new();
        for named in &found.named {
            match (named, found.rest.as_slice()) {
                (Named::Fn(number) | Named::Const(number), []) => functions.push(*number),
                (Named::Type(number), [name]) => {
                    let alias = self.index.own(*number, Vec::new());
                    if let Ty::Own(number, _) = alias {
                        functions.extend(self.index.function_of(&Named::Type(number), name));
                    }
                }
                (named, [name]) => functions.extend(self.index.function_of(named, name)),
                _ => {}
            }
        }
        functions
    }

    /// A call of what a path names, or of a value.
    pub(crate) fn call_of(&mut self, of: &syn::ExprCall, expected: Option<&Ty>) -> Ty {
        let Expr::Path(path) = &*of.func else {
            let called = self.expr(&of.func, None);
            self.arguments(of.args.iter(), &[]);
            return match called {
                Ty::Fn(_, result) => *result,
                _ => Ty::Unknown,
            };
        };
        let called = names(&path.path);
        if called.len() == 1
            && let Some(local) = self.local(&called[0]).cloned()
        {
            let takes = match &local {
                Ty::Fn(takes, _) => takes.clone(),
                _ => Vec::new(),
            };
            self.arguments(of.args.iter(), &takes);
            return self.result_of_call(&local);
        }
        let found = self.functions_at(path);
        let own: Vec<usize> = found
            .into_iter()
            .filter(|at| self.index.fns[*at].signature.is_some())
            .collect();
        if let Some(first) = own.first() {
            return self.call_own(*first, &own, of, path);
        }
        let value = self.path(path, None);
        if let Ty::Fn(_, result) = value {
            // A variant or struct with its parts: those of the core are values.
            let takes = self.parts(&path.path);
            self.arguments(of.args.iter(), &takes);
            return *result;
        }
        self.call_others(of, &called, path, expected)
    }

    /// The types of a tuple struct's or variant's parts.
    fn parts(&self, path: &syn::Path) -> Vec<Ty> {
        let (ty, variant) = self.constructed(path);
        let part = |at: usize| self.index.field(&ty, variant.as_deref(), &at.to_string());
        (0..8).map(part).collect()
    }

    fn call_own(
        &mut self,
        first: usize,
        all: &[usize],
        of: &syn::ExprCall,
        path: &syn::ExprPath,
    ) -> Ty {
        for callee in all {
            self.call(*callee);
        }
        let function = &self.index.fns[first];
        let mut takes = function.takes.clone();
        if function.has_self {
            takes.insert(0, function.scope.itself.clone().unwrap_or(Ty::Unknown));
        }
        let returns = function.returns.clone();
        let given = self.arguments(of.args.iter(), &takes);
        let mut known = Given::new();
        if let Some(last) = path.path.segments.last()
            && let Some(signature) = function.signature
        {
            let written = self.index.arguments(&self.scope, &last.arguments);
            let names = signature
                .generics
                .type_params()
                .map(|it| it.ident.to_string());
            known.extend(names.zip(written));
        }
        for (takes, given) in takes.iter().zip(&given) {
            takes.learn(given, &mut known);
        }
        returns.with(&known)
    }

    /// A function of others: what it returns can be the core's only by way of its arguments.
    fn call_others(
        &mut self,
        of: &syn::ExprCall,
        called: &[String],
        path: &syn::ExprPath,
        expected: Option<&Ty>,
    ) -> Ty {
        let name = called.last().map_or("", String::as_str);
        let inner = match (name, expected) {
            ("Some" | "Ok" | "Box" | "Arc", Some(expected @ Ty::Other(..))) => {
                Some(expected.argument(0))
            }
            _ => None,
        };
        let takes: Vec<Ty> = inner.into_iter().collect();
        let given = self.arguments(of.args.iter(), &takes);
        let first = given.first().cloned();
        let owner = called
            .len()
            .checked_sub(2)
            .map_or("", |at| called[at].as_str());
        match (owner, name) {
            ("", "Some") | ("Option", "Some") => Ty::of("Option", first.unwrap_or(Ty::Unknown)),
            ("", "Ok") => {
                let error = expected.map_or(Ty::Unknown, |it| it.argument(1));
                Ty::Other(
                    "Result".to_owned(),
                    vec![first.unwrap_or(Ty::Unknown), error],
                )
            }
            ("", "Err") => {
                let value = expected.map_or(Ty::Unknown, |it| it.argument(0));
                Ty::Other(
                    "Result".to_owned(),
                    vec![value, first.unwrap_or(Ty::Unknown)],
                )
            }
            ("Box" | "Arc" | "Rc", "new" | "from" | "clone" | "make_mut" | "unwrap_or_clone")
            | ("mem", "take" | "replace")
            | ("", "Reverse") => first.unwrap_or(Ty::Unknown),
            ("iter", "once") => Ty::of("Iterator", first.unwrap_or(Ty::Unknown)),
            ("iter", "repeat_with" | "from_fn" | "successors") => match first {
                Some(Ty::Fn(_, result)) => {
                    Ty::of("Iterator", foreign::item(&result).unwrap_or(*result))
                }
                _ => Ty::Unknown,
            },
            ("Default", "default") => expected.cloned().unwrap_or(Ty::Unknown),
            (_, "default" | "new" | "with_capacity" | "from" | "from_iter") => {
                let ty = self.owner_type(path);
                match (ty, expected) {
                    (Ty::Other(name, inner), _) if !inner.is_empty() => Ty::Other(name, inner),
                    (Ty::Other(name, _), Some(Ty::Other(other, inner))) if name == *other => {
                        Ty::Other(name, inner.clone())
                    }
                    (Ty::Other(name, _), _) => match first {
                        Some(Ty::Other(_, inner)) if name != "String" => Ty::Other(name, inner),
                        _ if foreign::holds(&name) => Ty::of(&name, Ty::Unknown),
                        _ => Ty::other(&name),
                    },
                    (ty, _) => ty,
                }
            }
            _ => match given.iter().any(Ty::may_be_own) {
                true => Ty::Unknown,
                false => Ty::other("?"),
            },
        }
    }

    /// The type before the last name of a path.
    fn owner_type(&self, path: &syn::ExprPath) -> Ty {
        let mut owner = path.path.clone();
        owner.segments.pop();
        owner.segments.pop_punct();
        if owner.segments.is_empty() {
            return Ty::Unknown;
        }
        let ty = syn::TypePath {
            attrs: Vec::new(),
            qself: None,
            path: owner,
        };
        self.index.ty(&self.scope, &syn::Type::Path(ty))
    }

    /// What a value that is called returns.
    fn result_of_call(&self, of: &Ty) -> Ty {
        let bounds = match of {
            Ty::Fn(_, result) => return (**result).clone(),
            Ty::Bound(bounds) => bounds.clone(),
            Ty::Param(name) => self.scope.bounds.get(name).cloned().unwrap_or_default(),
            _ => Vec::new(),
        };
        let result = bounds.iter().find_map(|it| match it {
            Bound::Fn(_, result) => Some(result.clone()),
            _ => None,
        });
        result.unwrap_or(Ty::Unknown)
    }

    /// Walks through arguments; the types that are expected say what closures among them are called with.
    fn arguments<'e>(&mut self, of: impl Iterator<Item = &'e Expr>, takes: &[Ty]) -> Vec<Ty> {
        let mut given = Vec::new();
        for (at, argument) in of.enumerate() {
            let expected = takes.get(at);
            given.push(self.expr(argument, expected));
        }
        given
    }

    /// What a function that is expected is called with.
    pub(crate) fn taken_by(&self, expected: &Ty) -> Vec<Ty> {
        let bounds = match expected {
            Ty::Fn(takes, _) => return takes.clone(),
            Ty::Bound(bounds) => bounds.clone(),
            Ty::Param(name) => self.scope.bounds.get(name).cloned().unwrap_or_default(),
            _ => Vec::new(),
        };
        let takes = bounds.into_iter().find_map(|it| match it {
            Bound::Fn(takes, _) => Some(takes),
            _ => None,
        });
        takes.unwrap_or_default()
    }

    /// A method call.
    pub(crate) fn method_call(&mut self, of: &syn::ExprMethodCall, expected: Option<&Ty>) -> Ty {
        let receiver = self.expr(&of.receiver, None);
        let name = of.method.to_string();
        match self.index.methods(&receiver, &name, &self.scope) {
            None => self.unknown_call(of, &name),
            Some(found) if found.is_empty() => {
                self.calls.known += 1;
                self.others_method(of, &receiver, &name, expected)
            }
            Some(found) => {
                self.calls.known += 1;
                self.own_method(of, &receiver, &found)
            }
        }
    }

    /// The type is not known: a call of every method of that name.
    fn unknown_call(&mut self, of: &syn::ExprMethodCall, name: &str) -> Ty {
        let found = self.index.any_method(name, of.args.len());
        if !found.is_empty() {
            self.calls.unknown.push((self.caller, name.to_owned()));
        }
        for callee in &found {
            self.call(*callee);
        }
        let takes = match found.as_slice() {
            [only] => self.index.fns[*only].takes.clone(),
            _ => Vec::new(),
        };
        self.arguments(of.args.iter(), &takes);
        match found.as_slice() {
            [only] => self.index.fns[*only].returns.with(&Given::new()),
            _ => Ty::Unknown,
        }
    }

    fn own_method(&mut self, of: &syn::ExprMethodCall, receiver: &Ty, found: &[usize]) -> Ty {
        for callee in found {
            self.call(*callee);
        }
        let function = &self.index.fns[found[0]];
        let mut known = Given::new();
        if let Some(itself) = &function.scope.itself {
            itself.learn(&self.as_self(receiver, itself), &mut known);
        }
        if let (Some(written), Some(signature)) = (&of.turbofish, function.signature) {
            let written = self.index.generic(&self.scope, written);
            let names = signature
                .generics
                .type_params()
                .map(|it| it.ident.to_string());
            known.extend(names.zip(written));
        }
        let (takes, returns) = (function.takes.clone(), function.returns.clone());
        // What closures are called with may depend on what is known of the receiver, or be bound by a parameter.
        let bounds = &function.scope.bounds;
        let expected: Vec<Ty> = takes
            .iter()
            .map(|it| match it {
                Ty::Param(name) if !known.contains_key(name) => {
                    let bounds = bounds.get(name).cloned().unwrap_or_default();
                    Ty::Bound(bounds).with(&known)
                }
                it => it.with(&known),
            })
            .collect();
        let given = self.arguments(of.args.iter(), &expected);
        for (takes, given) in takes.iter().zip(&given) {
            takes.learn(given, &mut known);
            if let (Ty::Param(name), Ty::Fn(..)) = (takes, given) {
                let bounds = bounds.get(name).cloned().unwrap_or_default();
                Ty::Bound(bounds).learn(given, &mut known);
            }
        }
        returns.with(&known)
    }

    /// The receiver as the type whose method it is: itself, or what it dereferences to.
    fn as_self(&self, receiver: &Ty, itself: &Ty) -> Ty {
        if let (Ty::Own(number, arguments), Ty::Own(wanted, _)) = (receiver, itself)
            && number != wanted
            && let Some(target) = self.index.targets.get(number)
        {
            let target = self.index.of_type(*number, arguments, target);
            return self.as_self(&target, itself);
        }
        receiver.clone()
    }

    /// A method that is not the core's, on whatever type.
    fn others_method(
        &mut self,
        of: &syn::ExprMethodCall,
        receiver: &Ty,
        name: &str,
        expected: Option<&Ty>,
    ) -> Ty {
        let receiver = match receiver {
            Ty::Own(..) | Ty::Bound(_) | Ty::Param(_) => match self.seen_as_others(receiver) {
                Some(seen) => seen,
                None => {
                    self.arguments(of.args.iter(), &[]);
                    return match name {
                        "clone" | "to_owned" | "min" | "max" | "borrow" | "as_ref" | "as_mut" => {
                            receiver.clone()
                        }
                        "into" => expected.cloned().unwrap_or(Ty::Unknown),
                        _ => Ty::Unknown,
                    };
                }
            },
            receiver => receiver.clone(),
        };
        let is_folding = matches!(name, "fold" | "try_fold" | "scan");
        let mut given = Vec::new();
        for argument in &of.args {
            let first = given.first().cloned().unwrap_or(Ty::Unknown);
            given.push(match argument {
                Expr::Closure(closure) => {
                    let takes = foreign::closure_takes(&receiver, name, &first);
                    self.closure(closure, &takes)
                }
                argument => {
                    let own = receiver.argument(0);
                    let is_inner = !is_folding && own != Ty::Unknown;
                    self.expr(argument, is_inner.then_some(&own))
                }
            });
        }
        let written = of.turbofish.as_ref();
        let written = written.and_then(|it| self.index.generic(&self.scope, it).into_iter().next());
        match name {
            "collect" | "sum" | "product" | "parse" => {
                let found = foreign::returns(&receiver, name, &given);
                match written.as_ref().or(expected) {
                    Some(wanted) => filled(wanted, &found),
                    // What is collected into is not known: it may be one of the core's.
                    None => found,
                }
            }
            "into" | "unwrap_or_default" if receiver.argument(0) == Ty::Unknown => {
                expected.cloned().unwrap_or(Ty::Unknown)
            }
            "into" => expected
                .cloned()
                .unwrap_or_else(|| foreign::returns(&receiver, name, &given)),
            _ => foreign::returns(&receiver, name, &given),
        }
    }

    /// A type of the core as one of others, whose methods it has by way of a trait: an iterator of its own, or what it
    /// dereferences to.
    fn seen_as_others(&mut self, receiver: &Ty) -> Option<Ty> {
        match receiver {
            Ty::Own(number, arguments) => {
                if let Some(target) = self.index.targets.get(number) {
                    let target = self.index.of_type(*number, arguments, target);
                    return match target {
                        Ty::Other(..) => Some(target),
                        target => self.seen_as_others(&target),
                    };
                }
                self.index.items.get(number)?;
                let item = self.item_of(receiver);
                Some(Ty::of("Iterator", item))
            }
            Ty::Bound(_) | Ty::Param(_) => match self.item_of(receiver) {
                Ty::Unknown => None,
                item => Some(Ty::of("Iterator", item)),
            },
            _ => None,
        }
    }
}
