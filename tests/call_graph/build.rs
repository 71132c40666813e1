//! From sources to their index: first all names, then what types have as fields and what functions take and return.

use std::collections::BTreeMap;

use syn::{FnArg, GenericParam, ImplItem, Item, ReturnType, TraitItem, UseTree, Visibility};

use crate::index::{Body, FnDef, Index, Module, Named, Owner, Scope, Shape, TypeDef};
use crate::source::Source;
use crate::types::Ty;

/// Defines all that the sources have.
pub(crate) fn index(sources: &[Source]) -> Index<'_> {
    let mut index = Index::default();
    for source in sources {
        let module = match source.path.as_str() {
            "lib" => String::new(),
            path => path.replace('/', "::"),
        };
        let mut path = String::new();
        for part in module.split("::").filter(|it| !it.is_empty()) {
            let inner = join(&path, part);
            let named = Named::Module(inner.clone());
            add(index.modules.entry(path.clone()).or_default(), part, named);
            path = inner;
        }
        names_of(&mut index, &source.path, &module, &source.parsed.items);
    }
    for source in sources {
        let module = match source.path.as_str() {
            "lib" => String::new(),
            path => path.replace('/', "::"),
        };
        functions_of(&mut index, &source.path, &module, &source.parsed.items);
    }
    for at in 0..index.fns.len() {
        let function = &index.fns[at];
        let key = (function.owner.clone(), function.name.clone());
        let is_method = function.has_self;
        if is_method {
            let name = function.name.clone();
            index.by_name.entry(name).or_default().push(at);
        }
        index.owned.entry(key).or_default().push(at);
    }
    index
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() {
        return name.to_owned();
    }
    format!("{module}::{name}")
}

fn add(module: &mut Module, name: &str, named: Named) {
    let all = module.names.entry(name.to_owned()).or_default();
    if !all.contains(&named) {
        all.push(named);
    }
}

fn parameters(generics: &syn::Generics) -> Vec<String> {
    let names = generics.params.iter().filter_map(|it| match it {
        GenericParam::Type(it) => Some(it.ident.to_string()),
        _ => None,
    });
    names.collect()
}

/// Adds the names of types, traits, modules, and of what is used.
fn names_of<'a>(index: &mut Index<'a>, file: &str, module: &str, items: &'a [Item]) {
    for item in items {
        let (name, generics, shape) = match item {
            Item::Struct(it) => (&it.ident, &it.generics, Shape::Struct(&it.fields)),
            Item::Enum(it) => {
                let variants = it.variants.iter();
                let variants = variants.map(|it| (it.ident.to_string(), &it.fields));
                (&it.ident, &it.generics, Shape::Enum(variants.collect()))
            }
            Item::Type(it) => (&it.ident, &it.generics, Shape::Alias(&it.ty)),
            Item::Trait(it) => {
                let name = it.ident.to_string();
                let named = Named::Trait(index.traits);
                index.traits += 1;
                add(
                    index.modules.entry(module.to_owned()).or_default(),
                    &name,
                    named,
                );
                continue;
            }
            Item::Mod(it) => {
                if let Some((_, items)) = &it.content {
                    let inner = join(module, &it.ident.to_string());
                    let outer = index.modules.entry(module.to_owned()).or_default();
                    add(outer, &it.ident.to_string(), Named::Module(inner.clone()));
                    names_of(index, file, &inner, items);
                }
                continue;
            }
            Item::Use(it) => {
                let known = index.modules.entry(module.to_owned()).or_default();
                used(known, &mut Vec::new(), &it.tree);
                continue;
            }
            _ => continue,
        };
        let named = Named::Type(index.types.len());
        index.types.push(TypeDef {
            name: name.to_string(),
            file: file.to_owned(),
            module: module.to_owned(),
            parameters: parameters(generics),
            shape,
        });
        let known = index.modules.entry(module.to_owned()).or_default();
        add(known, &name.to_string(), named);
    }
}

/// Adds the names that a `use` brings.
pub(crate) fn used(module: &mut Module, path: &mut Vec<String>, tree: &UseTree) {
    match tree {
        UseTree::Path(it) => {
            path.push(it.ident.to_string());
            used(module, path, &it.tree);
            path.pop();
        }
        UseTree::Name(it) => {
            let name = it.ident.to_string();
            let mut full = path.clone();
            if name == "self" {
                let last = path.last().cloned().unwrap_or_default();
                return add(module, &last, Named::Use(full));
            }
            full.push(name.clone());
            add(module, &name, Named::Use(full));
        }
        UseTree::Rename(it) => {
            let mut full = path.clone();
            full.push(it.ident.to_string());
            add(module, &it.rename.to_string(), Named::Use(full));
        }
        UseTree::Glob(_) => module.globs.push(path.clone()),
        UseTree::Group(it) => {
            for tree in &it.items {
                used(module, path, tree);
            }
        }
    }
}

/// Adds the functions and constants.
fn functions_of<'a>(index: &mut Index<'a>, file: &str, module: &str, items: &'a [Item]) {
    let scope = Scope {
        module: module.to_owned(),
        ..Scope::default()
    };
    let place = Place {
        file,
        owner: Owner::Free,
        implements: None,
    };
    for item in items {
        match item {
            Item::Fn(it) => {
                let is_private = matches!(it.vis, Visibility::Inherited);
                let body = Body::Block(&it.block);
                let at = place.function(index, &scope, &it.sig, (body, is_private));
                let known = index.modules.entry(module.to_owned()).or_default();
                add(known, &it.sig.ident.to_string(), Named::Fn(at));
            }
            Item::Const(it) => {
                let at = place.constant(index, &scope, &it.ident, (&it.ty, &it.expr));
                let known = index.modules.entry(module.to_owned()).or_default();
                add(known, &it.ident.to_string(), Named::Const(at));
            }
            Item::Static(it) => {
                let at = place.constant(index, &scope, &it.ident, (&it.ty, &it.expr));
                let known = index.modules.entry(module.to_owned()).or_default();
                add(known, &it.ident.to_string(), Named::Const(at));
            }
            Item::Mod(it) => {
                if let Some((_, items)) = &it.content {
                    functions_of(index, file, &join(module, &it.ident.to_string()), items);
                }
            }
            Item::Trait(it) => functions_of_trait(index, file, &scope, it),
            Item::Impl(it) => functions_of_impl(index, file, &scope, it),
            _ => {}
        }
    }
}

fn functions_of_trait<'a>(
    index: &mut Index<'a>,
    file: &str,
    scope: &Scope,
    item: &'a syn::ItemTrait,
) {
    let found = index.find(&scope.module, &[item.ident.to_string()]);
    let Some(Named::Trait(number)) = found
        .named
        .into_iter()
        .find(|it| matches!(it, Named::Trait(_)))
    else {
        return;
    };
    let mut scope = scope.clone();
    scope.itself = Some(Ty::Bound(vec![crate::types::Bound::Trait(number)]));
    index.add_bounds(&mut scope, &item.generics);
    let place = Place {
        file,
        owner: Owner::Trait(number),
        implements: None,
    };
    for item in &item.items {
        if let TraitItem::Fn(it) = item {
            let body = it.default.as_ref().map_or(Body::None, Body::Block);
            place.function(index, &scope, &it.sig, (body, false));
        }
    }
}

fn functions_of_impl<'a>(
    index: &mut Index<'a>,
    file: &str,
    scope: &Scope,
    item: &'a syn::ItemImpl,
) {
    let mut scope = scope.clone();
    index.add_bounds(&mut scope, &item.generics);
    let itself = index.ty(&scope, &item.self_ty);
    scope.itself = Some(itself.clone());
    let owner = match &itself {
        Ty::Own(number, _) => Owner::Type(*number),
        Ty::Other(name, _) => Owner::Other(name.clone()),
        Ty::Param(_) => Owner::All,
        _ => Owner::Other("?".to_owned()),
    };
    let of = item.trait_.as_ref().map(|(path, _)| {
        let names: Vec<String> = path
            .segments
            .iter()
            .map(|it| it.ident.to_string())
            .collect();
        let found = index.find(&scope.module, &names).named;
        let number = found.iter().find_map(|it| match it {
            Named::Trait(number) => Some(*number),
            _ => None,
        });
        (names.last().cloned().unwrap_or_default(), number)
    });
    if let (Ty::Own(number, _), Some((name, trait_))) = (&itself, &of) {
        implemented(index, &scope, item, (*number, name, *trait_));
    }
    let place = Place {
        file,
        owner,
        implements: of.map(|(_, number)| number),
    };
    for item in &item.items {
        match item {
            ImplItem::Fn(it) => {
                let is_private = matches!(it.vis, Visibility::Inherited);
                let is_private = is_private && place.implements.is_none();
                let body = Body::Block(&it.block);
                place.function(index, &scope, &it.sig, (body, is_private));
            }
            ImplItem::Const(it) => {
                place.constant(index, &scope, &it.ident, (&it.ty, &it.expr));
            }
            _ => {}
        }
    }
}

/// Notes what a type has by implementing a trait: a trait of the core's, or what others' traits have it dereference to, be
/// walked through by, or be collected from.
fn implemented(
    index: &mut Index<'_>,
    scope: &Scope,
    item: &syn::ItemImpl,
    (number, name, trait_): (usize, &str, Option<usize>),
) {
    if let Some(trait_) = trait_ {
        index.traits_of.entry(number).or_default().insert(trait_);
    }
    let mut aliases = item.items.iter().filter_map(|it| match it {
        ImplItem::Type(it) => Some(it),
        _ => None,
    });
    let mut alias = |wanted: &str| {
        let found = aliases.find(|it| it.ident == wanted);
        found.map(|it| index.ty(scope, &it.ty))
    };
    match name {
        "Deref" => {
            if let Some(target) = alias("Target") {
                index.targets.insert(number, target);
            }
        }
        "Iterator" | "IntoIterator" => {
            if let Some(item) = alias("Item") {
                index.items.insert(number, item);
            }
        }
        "FromIterator" => {
            index.collected.insert(number);
        }
        _ => {}
    }
}

/// Where functions stand.
struct Place<'p> {
    file: &'p str,
    owner: Owner,
    implements: Option<Option<usize>>,
}

impl Place<'_> {
    fn function<'a>(
        &self,
        index: &mut Index<'a>,
        scope: &Scope,
        signature: &'a syn::Signature,
        (body, is_private): (Body<'a>, bool),
    ) -> usize {
        let mut scope = scope.clone();
        index.add_bounds(&mut scope, &signature.generics);
        let takes = signature.inputs.iter().filter_map(|it| match it {
            FnArg::Typed(it) => Some(index.ty(&scope, &it.ty)),
            FnArg::Receiver(_) => None,
        });
        let takes = takes.collect();
        let returns = match &signature.output {
            ReturnType::Default => Ty::Tuple(Vec::new()),
            ReturnType::Type(_, ty) => index.ty(&scope, ty),
        };
        let has_self = matches!(signature.inputs.first(), Some(FnArg::Receiver(_)));
        index.fns.push(FnDef {
            name: signature.ident.to_string(),
            file: self.file.to_owned(),
            scope,
            owner: self.owner.clone(),
            implements: self.implements,
            signature: Some(signature),
            body,
            is_private,
            takes,
            returns,
            has_self,
        });
        index.fns.len() - 1
    }

    fn constant<'a>(
        &self,
        index: &mut Index<'a>,
        scope: &Scope,
        name: &syn::Ident,
        (ty, value): (&'a syn::Type, &'a syn::Expr),
    ) -> usize {
        let returns = index.ty(scope, ty);
        index.fns.push(FnDef {
            name: name.to_string(),
            file: self.file.to_owned(),
            scope: scope.clone(),
            owner: self.owner.clone(),
            implements: None,
            signature: None,
            body: Body::Value(value),
            is_private: true,
            takes: Vec::new(),
            returns,
            has_self: false,
        });
        index.fns.len() - 1
    }
}

impl Index<'_> {
    /// Adds the parameters of an item to a scope.
    fn add_bounds(&self, scope: &mut Scope, generics: &syn::Generics) {
        for name in parameters(generics) {
            scope.bounds.entry(name).or_default();
        }
        let mut found: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for parameter in &generics.params {
            if let GenericParam::Type(it) = parameter {
                let bounds = self.bounds(scope, it.bounds.iter());
                found
                    .entry(it.ident.to_string())
                    .or_default()
                    .extend(bounds);
            }
        }
        let clauses = generics.where_clause.iter().flat_map(|it| &it.predicates);
        for clause in clauses {
            if let syn::WherePredicate::Type(it) = clause
                && let Ty::Param(name) = self.ty(scope, &it.bounded_ty)
            {
                let bounds = self.bounds(scope, it.bounds.iter());
                found.entry(name).or_default().extend(bounds);
            }
        }
        for (name, bounds) in found {
            scope.bounds.entry(name).or_default().extend(bounds);
        }
    }
}
