//! The names that patterns bind, with their types.

use syn::Pat;

use crate::convert::names;
use crate::index::{Index, Named, Shape};
use crate::types::Ty;
use crate::walk::{Walk, member};

impl Walk<'_, '_> {
    /// Binds the names of a pattern to parts of a type.
    pub(crate) fn bind(&mut self, pattern: &Pat, ty: &Ty) {
        match pattern {
            Pat::Ident(it) => {
                let name = it.ident.to_string();
                // `None`, a constant or a unit variant binds nothing.
                if !name.starts_with(char::is_uppercase) {
                    self.locals.push((name, ty.clone()));
                }
                if let Some((_, inner)) = &it.subpat {
                    self.bind(inner, ty);
                }
            }
            Pat::Guard(it) => {
                self.bind(&it.pat, ty);
                self.expr(&it.guard, None);
            }
            Pat::Or(it) => {
                for case in &it.cases {
                    self.bind(case, ty);
                }
            }
            Pat::Paren(it) => self.bind(&it.pat, ty),
            Pat::Reference(it) => self.bind(&it.pat, ty),
            Pat::Type(it) => {
                let written = self.index.ty(&self.scope, &it.ty);
                let ty = if written == Ty::Unknown {
                    ty.clone()
                } else {
                    written
                };
                self.bind(&it.pat, &ty);
            }
            Pat::Slice(it) => {
                for inner in &it.elems {
                    // `rest @ ..` is the same sequence.
                    let is_rest = matches!(inner, Pat::Ident(it) if it.subpat.is_some());
                    let part = if is_rest { ty.clone() } else { ty.argument(0) };
                    self.bind(inner, &part);
                }
            }
            Pat::Tuple(it) => {
                let parts = match ty {
                    Ty::Tuple(parts) => parts.clone(),
                    Ty::Other(..) if !ty.may_be_own() => vec![Ty::other("?"); it.elems.len()],
                    _ => Vec::new(),
                };
                self.bind_all(it.elems.iter(), |at| parts.get(at).cloned(), parts.len());
            }
            Pat::TupleStruct(it) => self.bind_tuple_struct(it, ty),
            Pat::Struct(it) => {
                let (of, variant) = self.matched(&it.path, ty);
                for field in &it.fields {
                    let inner = self
                        .index
                        .field(&of, variant.as_deref(), &member(&field.member));
                    self.bind(&field.pat, &inner);
                }
            }
            _ => {}
        }
    }

    /// Binds patterns that stand side by side, of which one may be `..`.
    fn bind_all<'p>(
        &mut self,
        patterns: impl ExactSizeIterator<Item = &'p Pat>,
        part: impl Fn(usize) -> Option<Ty>,
        count: usize,
    ) {
        let left_out = count.saturating_sub(patterns.len().saturating_sub(1));
        let mut at = 0;
        for pattern in patterns {
            if matches!(pattern, Pat::Rest(_)) {
                at += left_out;
                continue;
            }
            self.bind(pattern, &part(at).unwrap_or(Ty::Unknown));
            at += 1;
        }
    }

    fn bind_tuple_struct(&mut self, pattern: &syn::PatTupleStruct, ty: &Ty) {
        let last = names(&pattern.path).pop().unwrap_or_default();
        if let Ty::Other(..) = ty {
            let parts = match last.as_str() {
                "Err" => vec![ty.argument(1)],
                "Some" | "Ok" | "Break" | "Continue" => vec![ty.argument(0)],
                // An entry of a map that is there or not.
                "Occupied" | "Vacant" => vec![ty.clone()],
                _ if !ty.may_be_own() => vec![Ty::other("?"); pattern.elems.len()],
                _ => Vec::new(),
            };
            return self.bind_all(
                pattern.elems.iter(),
                |at| parts.get(at).cloned(),
                parts.len(),
            );
        }
        let (of, variant) = self.matched(&pattern.path, ty);
        let count = self.index.fields_of(&of, variant.as_deref());
        let index = self.index;
        let part = |at: usize| Some(index.field(&of, variant.as_deref(), &at.to_string()));
        self.bind_all(pattern.elems.iter(), part, count);
    }

    /// The type and variant that a pattern names; its arguments are those of what is matched.
    fn matched(&self, path: &syn::Path, ty: &Ty) -> (Ty, Option<String>) {
        let (of, variant) = self.constructed(path);
        match (&of, ty) {
            (Ty::Own(a, _), Ty::Own(b, _)) if a == b => (ty.clone(), variant),
            // Of others' enums no more is known than whether they may hold what is the core's.
            (Ty::Unknown | Ty::Other(..), _) => (ty.clone(), None),
            _ => (of, variant),
        }
    }

    /// The type that a path constructs, and the variant.
    pub(crate) fn constructed(&self, path: &syn::Path) -> (Ty, Option<String>) {
        let names = names(path);
        if names[0] == "Self" {
            let itself = self.scope.itself.clone().unwrap_or(Ty::Unknown);
            return (itself, names.get(1).cloned());
        }
        let found = self.index.find(&self.scope.module, &names);
        for named in &found.named {
            if let Named::Type(number) = named {
                let arguments = vec![Ty::Unknown; self.index.types[*number].parameters.len()];
                let ty = self.index.own(*number, arguments);
                return (ty, found.rest.first().cloned());
            }
        }
        if found.named.is_empty() {
            return (Ty::other("?"), None);
        }
        (Ty::Unknown, None)
    }
}

impl Index<'_> {
    /// How many fields a struct or variant has.
    fn fields_of(&self, of: &Ty, variant: Option<&str>) -> usize {
        let Ty::Own(number, _) = of else {
            return 0;
        };
        match (&self.types[*number].shape, variant) {
            (Shape::Struct(fields), _) => fields.len(),
            (Shape::Enum(variants), Some(variant)) => {
                variants.get(variant).map_or(0, |it| it.len())
            }
            _ => 0,
        }
    }
}
