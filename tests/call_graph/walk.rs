//! Walks through the bodies of functions and finds what they call, by name and type.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Expr, Stmt};

use crate::index::{Body, FnDef, Index, Scope};
use crate::types::Ty;

/// Who calls whom, by number of the function.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Caller and callee.
    pub(crate) edges: BTreeSet<(usize, usize)>,
    /// Method calls whose type is known, and those that count as calls of all methods of the name.
    pub(crate) known: usize,
    pub(crate) unknown: Vec<(usize, String)>,
}

/// All calls of the index's functions.
pub(crate) fn calls(index: &Index<'_>) -> Calls {
    let mut calls = Calls::default();
    for (at, function) in index.fns.iter().enumerate() {
        let mut walk = Walk {
            index,
            caller: at,
            scope: function.scope.clone(),
            returns: function.returns.clone(),
            locals: Vec::new(),
            calls: &mut calls,
        };
        walk.function(function);
    }
    // A constant that names no function is none.
    let calling: BTreeSet<usize> = calls.edges.iter().map(|(from, _)| *from).collect();
    let is_call = |to: usize| index.fns[to].signature.is_some() || calling.contains(&to);
    calls.edges.retain(|(from, to)| from != to && is_call(*to));
    calls
}

/// One function that is being walked through.
pub(crate) struct Walk<'w, 'a> {
    pub(crate) index: &'w Index<'a>,
    pub(crate) caller: usize,
    pub(crate) scope: Scope,
    pub(crate) returns: Ty,
    /// Names and their types, the latest last.
    pub(crate) locals: Vec<(String, Ty)>,
    pub(crate) calls: &'w mut Calls,
}

impl Walk<'_, '_> {
    fn function(&mut self, function: &FnDef<'_>) {
        if let Some(signature) = function.signature {
            if function.has_self {
                let itself = self.scope.itself.clone().unwrap_or(Ty::Unknown);
                self.locals.push(("self".to_owned(), itself));
            }
            for taken in &signature.inputs {
                if let syn::FnArg::Typed(taken) = taken {
                    let ty = self.index.ty(&self.scope, &taken.ty);
                    self.bind(&taken.pat, &ty);
                }
            }
        }
        let returns = self.returns.clone();
        match function.body {
            Body::None => {}
            Body::Block(block) => {
                self.block(block, Some(&returns));
            }
            Body::Value(value) => {
                self.expr(value, Some(&returns));
            }
        }
    }

    /// Notes that the function calls another.
    pub(crate) fn call(&mut self, callee: usize) {
        self.calls.edges.insert((self.caller, callee));
    }

    /// The type of a name.
    pub(crate) fn local(&self, name: &str) -> Option<&Ty> {
        let mut locals = self.locals.iter().rev();
        locals.find(|(known, _)| known == name).map(|(_, ty)| ty)
    }

    pub(crate) fn block(&mut self, block: &syn::Block, expected: Option<&Ty>) -> Ty {
        let depth = self.locals.len();
        let mut result = Ty::Tuple(Vec::new());
        let count = block.stmts.len();
        for (at, statement) in block.stmts.iter().enumerate() {
            let is_last = at + 1 == count;
            match statement {
                Stmt::Local(local) => self.let_(local),
                Stmt::Expr(value, None) if is_last => result = self.expr(value, expected),
                Stmt::Expr(value, _) => {
                    let ty = self.expr(value, None);
                    if is_last && ty == Ty::other("!") {
                        result = ty;
                    }
                }
                Stmt::Macro(it) => {
                    let ty = self.macro_(&it.mac);
                    if is_last && it.semi_token.is_none() {
                        result = ty;
                    }
                }
                Stmt::Item(item) => self.inner_item(item),
            }
        }
        self.locals.truncate(depth);
        result
    }

    /// A function or constant within a function counts as a part of it.
    fn inner_item(&mut self, item: &syn::Item) {
        match item {
            syn::Item::Fn(inner) => {
                let locals = std::mem::take(&mut self.locals);
                for taken in &inner.sig.inputs {
                    if let syn::FnArg::Typed(taken) = taken {
                        let ty = self.index.ty(&self.scope, &taken.ty);
                        self.bind(&taken.pat, &ty);
                    }
                }
                self.block(&inner.block, None);
                self.locals = locals;
            }
            syn::Item::Const(inner) => {
                self.expr(&inner.expr, None);
            }
            _ => {}
        }
    }

    fn let_(&mut self, local: &syn::Local) {
        let annotated = match &local.pat {
            syn::Pat::Type(it) => Some(self.index.ty(&self.scope, &it.ty)),
            _ => None,
        };
        let Some(init) = &local.init else {
            return self.bind(&local.pat, &annotated.unwrap_or(Ty::Unknown));
        };
        let found = self.expr(&init.expr, annotated.as_ref());
        if let Some((_, otherwise)) = &init.diverge {
            self.expr(otherwise, None);
        }
        let ty = match annotated {
            Some(annotated) => filled(&annotated, &found),
            None => found,
        };
        self.bind(&local.pat, &ty);
    }

    /// The type of an expression, all of whose calls are noted on the way.
    pub(crate) fn expr(&mut self, of: &Expr, expected: Option<&Ty>) -> Ty {
        match of {
            Expr::Assign(it) => {
                let ty = self.expr(&it.left, None);
                self.expr(&it.right, Some(&ty));
                Ty::Tuple(Vec::new())
            }
            Expr::Binary(it) => self.binary(it),
            Expr::Block(it) => self.block(&it.block, expected),
            Expr::Unsafe(it) => self.block(&it.block, expected),
            Expr::Break(it) => {
                if let Some(value) = &it.expr {
                    self.expr(value, None);
                }
                Ty::other("!")
            }
            Expr::Continue(_) => Ty::other("!"),
            Expr::Call(it) => self.call_of(it, expected),
            Expr::Cast(it) => {
                self.expr(&it.expr, None);
                self.index.ty(&self.scope, &it.ty)
            }
            Expr::Closure(it) => {
                let takes = expected.map_or_else(Vec::new, |it| self.taken_by(it));
                self.closure(it, &takes)
            }
            Expr::Field(it) => {
                let base = self.expr(&it.base, None);
                let name = member(&it.member);
                self.index.field(&base, None, &name)
            }
            Expr::Group(it) => self.expr(&it.expr, expected),
            Expr::Paren(it) => self.expr(&it.expr, expected),
            Expr::If(it) => self.if_(it, expected),
            Expr::Index(it) => self.index_of(it),
            Expr::Let(it) => {
                let ty = self.expr(&it.expr, None);
                self.bind(&it.pat, &ty);
                Ty::other("bool")
            }
            of => self.value(of, expected),
        }
    }

    /// The same of expressions that are no calls and no places.
    fn value(&mut self, of: &Expr, expected: Option<&Ty>) -> Ty {
        match of {
            Expr::Array(it) => {
                let inner = expected.map(|it| it.argument(0));
                let inner = it.elems.iter().map(|it| self.expr(it, inner.as_ref()));
                Ty::of("Vec", inner.fold(Ty::Unknown, Ty::or))
            }
            Expr::ForLoop(it) => {
                let over = self.expr(&it.expr, None);
                let depth = self.locals.len();
                let item = self.item_of(&over);
                self.bind(&it.pat, &item);
                self.block(&it.body, None);
                self.locals.truncate(depth);
                Ty::Tuple(Vec::new())
            }
            Expr::Lit(it) => Ty::other(match &it.lit {
                syn::Lit::Str(_) => "str",
                _ => "?",
            }),
            Expr::Loop(it) => {
                self.block(&it.body, None);
                Ty::Unknown
            }
            Expr::Macro(it) => self.macro_(&it.mac),
            Expr::Match(it) => self.match_(it, expected),
            Expr::MethodCall(it) => self.method_call(it, expected),
            Expr::Path(it) => self.path(it, expected),
            Expr::Range(it) => {
                for end in [&it.start, &it.end].into_iter().flatten() {
                    self.expr(end, None);
                }
                Ty::of("Range", Ty::other("?"))
            }
            Expr::Reference(it) => self.expr(&it.expr, expected),
            Expr::Repeat(it) => Ty::of("Vec", self.expr(&it.expr, None)),
            Expr::Return(it) => {
                if let Some(value) = &it.expr {
                    let returns = self.returns.clone();
                    self.expr(value, Some(&returns));
                }
                Ty::other("!")
            }
            Expr::Struct(it) => self.struct_(it),
            Expr::Try(it) => match self.expr(&it.expr, None) {
                of @ Ty::Other(..) => of.argument(0),
                _ => Ty::Unknown,
            },
            Expr::Tuple(it) => {
                let parts = match expected {
                    Some(Ty::Tuple(parts)) => parts.as_slice(),
                    _ => &[],
                };
                let all = it.elems.iter().enumerate();
                Ty::Tuple(all.map(|(at, it)| self.expr(it, parts.get(at))).collect())
            }
            Expr::Unary(it) => self.expr(&it.expr, None),
            Expr::While(it) => {
                let depth = self.locals.len();
                self.expr(&it.cond, None);
                self.block(&it.body, None);
                self.locals.truncate(depth);
                Ty::Tuple(Vec::new())
            }
            _ => Ty::Unknown,
        }
    }

    fn if_(&mut self, of: &syn::ExprIf, expected: Option<&Ty>) -> Ty {
        let depth = self.locals.len();
        self.expr(&of.cond, None);
        let mut result = self.block(&of.then_branch, expected);
        self.locals.truncate(depth);
        if let Some((_, otherwise)) = &of.else_branch {
            result = result.or(self.expr(otherwise, expected));
        }
        result
    }

    fn match_(&mut self, of: &syn::ExprMatch, expected: Option<&Ty>) -> Ty {
        let matched = self.expr(&of.expr, None);
        let mut result = Ty::other("!");
        for arm in &of.arms {
            let depth = self.locals.len();
            self.bind(&arm.pat, &matched);
            result = result.or(self.expr(&arm.body, expected));
            self.locals.truncate(depth);
        }
        result
    }

    fn binary(&mut self, of: &syn::ExprBinary) -> Ty {
        use syn::BinOp;
        let left = self.expr(&of.left, None);
        self.expr(&of.right, None);
        let (method, is_value) = match of.op {
            BinOp::Add(_) => ("add", true),
            BinOp::Sub(_) => ("sub", true),
            BinOp::Mul(_) => ("mul", true),
            BinOp::BitAnd(_) => ("bitand", true),
            BinOp::BitOr(_) => ("bitor", true),
            BinOp::AddAssign(_) => ("add_assign", false),
            BinOp::SubAssign(_) => ("sub_assign", false),
            BinOp::BitOrAssign(_) => ("bitor_assign", false),
            BinOp::Eq(_) | BinOp::Ne(_) => ("eq", false),
            BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_) => ("partial_cmp", false),
            _ => ("", true),
        };
        // Operators of types that are not known are those of numbers.
        if let Ty::Own(..) = left {
            let found = self.index.methods(&left, method, &self.scope);
            for callee in found.unwrap_or_default() {
                self.call(callee);
            }
        }
        if is_value { left } else { Ty::other("bool") }
    }

    fn index_of(&mut self, of: &syn::ExprIndex) -> Ty {
        let base = self.expr(&of.expr, None);
        let by = self.expr(&of.index, None);
        match &base {
            Ty::Other(name, _) if name == "BTreeMap" || name == "IndexMap" => base.argument(1),
            Ty::Other(..) if matches!(&by, Ty::Other(name, _) if name == "Range") => base,
            Ty::Other(..) => base.argument(0),
            _ => Ty::Unknown,
        }
    }

    /// A closure: its calls are those of the function that it stands in.
    pub(crate) fn closure(&mut self, of: &syn::ExprClosure, takes: &[Ty]) -> Ty {
        let depth = self.locals.len();
        for (at, taken) in of.inputs.iter().enumerate() {
            let ty = takes.get(at).cloned().unwrap_or(Ty::Unknown);
            self.bind(taken, &ty);
        }
        let outer = match &of.output {
            syn::ReturnType::Default => std::mem::replace(&mut self.returns, Ty::Unknown),
            written => {
                let returns = self.index.returned(&self.scope, written);
                std::mem::replace(&mut self.returns, returns)
            }
        };
        let returns = self.returns.clone();
        let result = self.expr(&of.body, None);
        self.returns = outer;
        self.locals.truncate(depth);
        let result = if returns == Ty::Unknown {
            result
        } else {
            returns
        };
        Ty::Fn(Vec::new(), Box::new(result))
    }

    fn struct_(&mut self, of: &syn::ExprStruct) -> Ty {
        let (ty, variant) = self.constructed(&of.path);
        for field in &of.fields {
            let expected = self
                .index
                .field(&ty, variant.as_deref(), &member(&field.member));
            let expected = (expected != Ty::Unknown).then_some(expected);
            self.expr(&field.expr, expected.as_ref());
        }
        if let Some(rest) = &of.rest {
            self.expr(rest, None);
        }
        ty
    }

    /// The arguments of a macro that is written like a call; of any other, whatever looks like a call is one.
    pub(crate) fn macro_(&mut self, of: &syn::Macro) -> Ty {
        use syn::punctuated::Punctuated;
        let name = of.path.segments.last().map(|it| it.ident.to_string());
        let name = name.unwrap_or_default();
        let all = Punctuated::<Expr, syn::Token![,]>::parse_terminated;
        if name == "matches" {
            let parse = |input: syn::parse::ParseStream<'_>| {
                let value: Expr = input.parse()?;
                input.parse::<syn::Token![,]>()?;
                let pattern = syn::Pat::parse_multi_with_leading_vert(input)?;
                let guard = match input.parse::<Option<syn::Token![if]>>()? {
                    Some(_) => Some(input.parse::<Expr>()?),
                    None => None,
                };
                input.parse::<Option<syn::Token![,]>>()?;
                Ok((value, pattern, guard))
            };
            if let Ok((value, pattern, guard)) = of.parse_body_with(parse) {
                let depth = self.locals.len();
                let ty = self.expr(&value, None);
                self.bind(&pattern, &ty);
                if let Some(guard) = guard {
                    self.expr(&guard, None);
                }
                self.locals.truncate(depth);
                return Ty::other("bool");
            }
        }
        if let Ok(arguments) = of.parse_body_with(all) {
            let types: Vec<Ty> = arguments.iter().map(|it| self.expr(it, None)).collect();
            return match name.as_str() {
                "vec" => Ty::of("Vec", types.into_iter().fold(Ty::Unknown, Ty::or)),
                "panic" | "unreachable" | "todo" => Ty::other("!"),
                _ => Ty::other("?"),
            };
        }
        if let Ok(repeat) = of.parse_body_with(|input: syn::parse::ParseStream<'_>| {
            let value: Expr = input.parse()?;
            input.parse::<syn::Token![;]>()?;
            input.parse::<Expr>()?;
            Ok(value)
        }) {
            return Ty::of("Vec", self.expr(&repeat, None));
        }
        self.unread(&of.tokens.to_string());
        Ty::Unknown
    }

    /// Text that is no expression: every name before a parenthesis counts as a call of all methods of that name.
    fn unread(&mut self, text: &str) {
        for (before, _) in text.match_indices('(').map(|(at, _)| text.split_at(at)) {
            let before = before.trim_end();
            let name = before
                .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
                .next();
            let name = name.unwrap_or_default();
            let named = self.index.by_name.get(name).cloned().unwrap_or_default();
            for callee in named {
                self.call(callee);
            }
        }
    }

    /// What a loop over a value has in each round.
    pub(crate) fn item_of(&mut self, over: &Ty) -> Ty {
        match over {
            Ty::Own(number, arguments) => {
                if let Some(item) = self.index.items.get(number) {
                    for callee in self
                        .index
                        .methods(over, "next", &self.scope)
                        .unwrap_or_default()
                    {
                        self.call(callee);
                    }
                    return self.index.of_type(*number, arguments, item);
                }
                // Walked through by way of `impl IntoIterator for &T`, or of what it dereferences to.
                match self.index.targets.get(number) {
                    Some(target) => {
                        let target = self.index.of_type(*number, arguments, target);
                        self.item_of(&target)
                    }
                    None => Ty::Unknown,
                }
            }
            Ty::Bound(bounds) => {
                let items = bounds.iter().find_map(|it| match it {
                    crate::types::Bound::Items(item) => Some(item.clone()),
                    _ => None,
                });
                items.unwrap_or(Ty::Unknown)
            }
            Ty::Param(name) => {
                let bounds = self.scope.bounds.get(name).cloned();
                self.item_of(&Ty::Bound(bounds.unwrap_or_default()))
            }
            over => crate::foreign::item(over).unwrap_or(Ty::Unknown),
        }
    }
}

/// A type as it is written, with what is left open in it (`Vec<_>`) taken from what was found.
pub(crate) fn filled(written: &Ty, found: &Ty) -> Ty {
    match (written, found) {
        (Ty::Unknown, found) => found.clone(),
        (Ty::Other(name, inner), Ty::Other(other, of)) if name == other || other == "Collected" => {
            // What is collected into a map are pairs.
            let pairs = match of.as_slice() {
                [Ty::Tuple(pair)] if inner.len() == 2 => pair.clone(),
                of => of.to_vec(),
            };
            let fill = |(at, inner): (usize, &Ty)| match pairs.get(at) {
                Some(of) => filled(inner, of),
                None => inner.clone(),
            };
            Ty::Other(name.clone(), inner.iter().enumerate().map(fill).collect())
        }
        (written, _) => written.clone(),
    }
}

pub(crate) fn member(of: &syn::Member) -> String {
    match of {
        syn::Member::Named(name) => name.to_string(),
        syn::Member::Unnamed(index) => index.index.to_string(),
    }
}

/// Parameters and what they are.
pub(crate) type Given = BTreeMap<String, Ty>;
