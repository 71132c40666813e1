//! From types as they are written to what calls need of them.

use std::collections::BTreeMap;

use syn::{GenericArgument, PathArguments, ReturnType, Type, TypeParamBound};

use crate::index::{Index, Named, Scope, Shape};
use crate::types::{Bound, Ty};

/// Pointers that own one value, or lend it: methods are called through them.
const SEEN_THROUGH: &[&str] = &["Box", "Arc", "Rc", "Cow", "Ref", "RefMut", "ManuallyDrop"];

impl Index<'_> {
    /// A type that is written somewhere.
    pub(crate) fn ty(&self, scope: &Scope, ty: &Type) -> Ty {
        match ty {
            Type::Reference(it) => self.ty(scope, &it.elem),
            Type::Paren(it) => self.ty(scope, &it.elem),
            Type::Group(it) => self.ty(scope, &it.elem),
            Type::Slice(it) => Ty::of("Vec", self.ty(scope, &it.elem)),
            Type::Array(it) => Ty::of("Vec", self.ty(scope, &it.elem)),
            Type::Tuple(it) => Ty::Tuple(it.elems.iter().map(|it| self.ty(scope, it)).collect()),
            Type::Never(_) => Ty::other("!"),
            Type::FnPtr(it) => {
                let taken = it.inputs.iter().map(|it| self.ty(scope, &it.ty));
                Ty::Fn(taken.collect(), Box::new(self.returned(scope, &it.output)))
            }
            Type::ImplTrait(it) => self.bound(scope, it.bounds.iter()),
            Type::TraitObject(it) => self.bound(scope, it.bounds.iter()),
            Type::Path(it) => self.path_type(scope, it),
            _ => Ty::Unknown,
        }
    }

    /// What a function returns.
    pub(crate) fn returned(&self, scope: &Scope, output: &ReturnType) -> Ty {
        match output {
            ReturnType::Default => Ty::Tuple(Vec::new()),
            ReturnType::Type(_, ty) => self.ty(scope, ty),
        }
    }

    /// `impl` or `dyn`: what is walked through counts as an iterator.
    fn bound<'t>(&self, scope: &Scope, of: impl Iterator<Item = &'t TypeParamBound>) -> Ty {
        let bounds = self.bounds(scope, of);
        match bounds.as_slice() {
            [] => Ty::other("?"),
            [Bound::Items(item)] => Ty::of("Iterator", item.clone()),
            _ => Ty::Bound(bounds),
        }
    }

    /// Those bounds that say which methods there are.
    pub(crate) fn bounds<'t>(
        &self,
        scope: &Scope,
        of: impl Iterator<Item = &'t TypeParamBound>,
    ) -> Vec<Bound> {
        let mut found = Vec::new();
        for bound in of {
            let TypeParamBound::Trait(bound) = bound else {
                continue;
            };
            let Some(last) = bound.path.segments.last() else {
                continue;
            };
            if let PathArguments::Parenthesized(it) = &last.arguments {
                let taken = it.inputs.iter().map(|it| self.ty(scope, &it.ty));
                found.push(Bound::Fn(taken.collect(), self.returned(scope, &it.output)));
                continue;
            }
            let names: Vec<String> = names(&bound.path);
            let named = self.find(&scope.module, &names).named;
            let number = named.iter().find_map(|it| match it {
                Named::Trait(number) => Some(*number),
                _ => None,
            });
            if let Some(number) = number {
                found.push(Bound::Trait(number));
            } else if let PathArguments::AngleBracketed(it) = &last.arguments {
                let items = it.args.iter().filter_map(|it| match it {
                    GenericArgument::AssocType(it) if it.ident == "Item" => Some(&it.ty),
                    _ => None,
                });
                found.extend(items.map(|item| Bound::Items(self.ty(scope, item))));
            }
        }
        found
    }

    fn path_type(&self, scope: &Scope, ty: &syn::TypePath) -> Ty {
        let names = names(&ty.path);
        if ty.qself.is_some() {
            return Ty::Unknown;
        }
        let Some(last) = ty.path.segments.last() else {
            return Ty::Unknown;
        };
        if names[0] == "Self" {
            return match names.len() {
                1 => scope.itself.clone().unwrap_or(Ty::Unknown),
                _ => Ty::Unknown,
            };
        }
        if scope.bounds.contains_key(&names[0]) {
            return match names.len() {
                1 => Ty::Param(names[0].clone()),
                _ => Ty::Unknown,
            };
        }
        let arguments = self.arguments(scope, &last.arguments);
        let found = self.find(&scope.module, &names);
        for named in found.named {
            match named {
                Named::Type(number) => return self.own(number, arguments),
                Named::Trait(number) => return Ty::Bound(vec![Bound::Trait(number)]),
                _ => {}
            }
        }
        let name = names.last().cloned().unwrap_or_default();
        if SEEN_THROUGH.contains(&name.as_str()) && !arguments.is_empty() {
            return arguments.into_iter().next().unwrap_or(Ty::Unknown);
        }
        Ty::Other(name, arguments)
    }

    /// A type of the core's own; an alias is what it stands for.
    pub(crate) fn own(&self, number: usize, arguments: Vec<Ty>) -> Ty {
        let known = &self.types[number];
        let Shape::Alias(ty) = &known.shape else {
            return Ty::Own(number, arguments);
        };
        let mut scope = Scope {
            module: known.module.clone(),
            ..Scope::default()
        };
        for name in &known.parameters {
            scope.bounds.insert(name.clone(), Vec::new());
        }
        let given = known.parameters.iter().cloned().zip(arguments);
        self.ty(&scope, ty).with(&given.collect())
    }

    /// The types in angle brackets.
    pub(crate) fn arguments(&self, scope: &Scope, arguments: &PathArguments) -> Vec<Ty> {
        let PathArguments::AngleBracketed(it) = arguments else {
            return Vec::new();
        };
        self.generic(scope, it)
    }

    pub(crate) fn generic(
        &self,
        scope: &Scope,
        arguments: &syn::AngleBracketedGenericArguments,
    ) -> Vec<Ty> {
        let types = arguments.args.iter().filter_map(|it| match it {
            GenericArgument::Type(it) => Some(self.ty(scope, it)),
            _ => None,
        });
        types.collect()
    }

    /// The type of a field, of a struct or of a variant.
    pub(crate) fn field(&self, of: &Ty, variant: Option<&str>, name: &str) -> Ty {
        let Ty::Own(number, arguments) = of else {
            return match of {
                Ty::Tuple(inner) => {
                    let at = name.parse::<usize>().ok();
                    let inner = at.and_then(|at| inner.get(at));
                    inner.cloned().unwrap_or(Ty::Unknown)
                }
                // What others define holds what the core does only as an argument.
                Ty::Other(..) if !of.may_be_own() => Ty::other("?"),
                _ => Ty::Unknown,
            };
        };
        let known = &self.types[*number];
        let fields = match (&known.shape, variant) {
            (Shape::Struct(fields), _) => Some(*fields),
            (Shape::Enum(variants), Some(variant)) => variants.get(variant).copied(),
            _ => None,
        };
        let found = fields.and_then(|fields| {
            let mut fields = fields.iter().enumerate();
            let is_it = |(at, field): &(usize, &syn::Field)| match &field.ident {
                Some(ident) => ident == name,
                None => at.to_string() == name,
            };
            fields.find(is_it).map(|(_, field)| &field.ty)
        });
        let Some(ty) = found else {
            return match self.targets.get(number) {
                Some(target) => self.field(&self.of_type(*number, arguments, target), None, name),
                None => Ty::Unknown,
            };
        };
        let mut scope = Scope {
            module: known.module.clone(),
            itself: Some(of.clone()),
            ..Scope::default()
        };
        for name in &known.parameters {
            scope.bounds.insert(name.clone(), Vec::new());
        }
        self.of_type(*number, arguments, &self.ty(&scope, ty))
    }

    /// A type within a type of the core, with that one's arguments for its parameters.
    pub(crate) fn of_type(&self, number: usize, arguments: &[Ty], inner: &Ty) -> Ty {
        let known = &self.types[number];
        let given = known.parameters.iter().cloned().zip(arguments.to_vec());
        let given: BTreeMap<String, Ty> = given.collect();
        if known.parameters.is_empty() {
            return inner.clone();
        }
        inner.with(&given)
    }
}

/// The names of a path.
pub(crate) fn names(path: &syn::Path) -> Vec<String> {
    path.segments
        .iter()
        .map(|it| it.ident.to_string())
        .collect()
}
