//! What must not be: the findings, each as one line that the list of what is allowed may have.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{Files, edges_within};
use crate::index::{FnDef, Index, Owner, Shape};
use crate::modules::cycles;
use crate::walk::Calls;

/// The folders whose files decide, and never call each other.
pub(crate) const FLOWS: &[&str] = &["workflow", "flows"];

/// The one file or folder whose functions write several components.
const APPLY: &str = "apply";

/// The file of the type that owns all components, and of the loop.
const SCHEDULER: &str = "scheduler";

/// Where a node is searched for, or one that waits: no effect does that.
const SEARCH: &[&str] = &[
    "placement/choose",
    "placement/search",
    "pending/search",
    "queue/search",
];

/// Methods on the type that owns all components, and functions that write several, at most.
pub(crate) const MAX_METHODS: usize = 60;

/// All findings.
pub(crate) fn findings(index: &Index<'_>, calls: &Calls) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let files = Files::new(index, calls);
    for (from, to) in files.pairs() {
        if let (Some(a), Some(b)) = (flow(from), flow(to))
            && a != b
        {
            found.insert(format!("flow {from} -> {to}"));
        }
    }
    for cycle in cycles(&files.edges) {
        for (from, to) in edges_within(&files.edges, &cycle) {
            found.insert(format!("cycle {from} -> {to}"));
        }
    }
    effects(index, calls, &mut found);
    writers(index, &mut found);
    let count = methods(index).len();
    if count > MAX_METHODS {
        found.insert(format!("methods {count}"));
    }
    found
}

/// Which flow a file is of: what stands directly in the folder, a file with the folder of its name.
pub(crate) fn flow(file: &str) -> Option<&str> {
    let (folder, rest) = file.split_once('/')?;
    FLOWS
        .contains(&folder)
        .then(|| rest.split('/').next().unwrap_or(rest))
}

fn is_in(file: &str, folder: &str) -> bool {
    let rest = file.strip_prefix(folder);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// An effect is what other files call of `apply`, but for the function that hands out effects (`apply`). Neither it nor
/// what is private to it calls another effect, a flow or a search.
fn effects(index: &Index<'_>, calls: &Calls, found: &mut BTreeSet<String>) {
    let is_of_apply = |at: usize| is_in(&index.fns[at].file, APPLY);
    let is_dispatcher = |at: usize| index.fns[at].name == APPLY;
    let effects = (0..index.fns.len()).filter(|at| is_of_apply(*at) && !index.fns[*at].is_private);
    for effect in effects {
        let (mut seen, mut left) = (BTreeSet::from([effect]), vec![effect]);
        while let Some(from) = left.pop() {
            let called = calls.edges.range((from, 0)..=(from, usize::MAX));
            for (_, to) in called {
                let callee = &index.fns[*to];
                let is_effect = is_of_apply(*to) && !callee.is_private;
                let is_search = SEARCH.iter().any(|it| is_in(&callee.file, it));
                let is_wrong = flow(&callee.file).is_some()
                    || is_search
                    || is_effect && !is_dispatcher(effect) && *to != effect;
                if is_wrong {
                    let (from, to) = (index.label(effect), index.label(*to));
                    found.insert(format!("effect {from} -> {to}"));
                } else if is_of_apply(*to) && callee.is_private && seen.insert(*to) {
                    left.push(*to);
                }
            }
        }
    }
}

/// What takes `&mut` of several components at once, outside of the two places that may.
fn writers(index: &Index<'_>, found: &mut BTreeSet<String>) {
    let wide = wide(index);
    for function in &index.fns {
        let is_allowed = is_in(&function.file, APPLY) || function.file == SCHEDULER;
        if !is_allowed && takes_mut_of(index, function, &wide) {
            found.insert(format!("writer {}::{}", function.file, function.name));
        }
    }
}

/// Types that hold two components or more: by value, or lent to be changed.
pub(crate) fn wide(index: &Index<'_>) -> BTreeSet<usize> {
    let components = components(index);
    let mut holds: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    // A struct may hold one that holds one: as often as structs are within each other.
    for _ in 0..8 {
        for (number, known) in index.types.iter().enumerate() {
            let Shape::Struct(fields) = known.shape else {
                continue;
            };
            if components.contains(&number) {
                continue;
            }
            let mut held = BTreeSet::new();
            for field in fields {
                for inner in changeable(index, &known.module, &field.ty, true) {
                    match components.contains(&inner) {
                        true => _ = held.insert(inner),
                        false => held.extend(holds.get(&inner).into_iter().flatten().copied()),
                    }
                }
            }
            holds.insert(number, held);
        }
    }
    let wide = holds.into_iter().filter(|(_, held)| held.len() > 1);
    let mut wide: BTreeSet<usize> = wide.map(|(number, _)| number).collect();
    wide.extend(index.type_named("Scheduler"));
    wide
}

/// The components: what the scheduler holds by value and is defined neither by it nor in `api`.
fn components(index: &Index<'_>) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let Some(scheduler) = index.type_named("Scheduler") else {
        return found;
    };
    let known = &index.types[scheduler];
    if let Shape::Struct(fields) = known.shape {
        for field in fields {
            found.extend(changeable(index, &known.module, &field.ty, true));
        }
    }
    found.retain(|number| {
        let file = &index.types[*number].file;
        *file != known.file && !is_in(file, "api") && file != "lib"
    });
    found
}

/// The core's types that are in a type and can be changed through it. `is_open`: not behind a shared reference.
fn changeable(index: &Index<'_>, module: &str, ty: &syn::Type, is_open: bool) -> BTreeSet<usize> {
    use syn::Type;
    match ty {
        Type::Reference(it) => {
            let is_open = is_open && it.mutability.is_some();
            changeable(index, module, &it.elem, is_open)
        }
        Type::Paren(it) => changeable(index, module, &it.elem, is_open),
        Type::Tuple(it) => {
            let inner = it.elems.iter();
            inner
                .flat_map(|it| changeable(index, module, it, is_open))
                .collect()
        }
        Type::Path(it) => {
            let mut found = BTreeSet::new();
            let names = crate::convert::names(&it.path);
            if is_open {
                let named = index.find(module, &names).named;
                found.extend(named.iter().find_map(|it| match it {
                    crate::index::Named::Type(number) => Some(*number),
                    _ => None,
                }));
            }
            if let Some(last) = it.path.segments.last()
                && let syn::PathArguments::AngleBracketed(arguments) = &last.arguments
            {
                // What an `Arc` holds is not changed through it.
                let is_open = is_open && last.ident != "Arc" && last.ident != "Rc";
                for argument in &arguments.args {
                    if let syn::GenericArgument::Type(inner) = argument {
                        found.extend(changeable(index, module, inner, is_open));
                    }
                }
            }
            found
        }
        _ => BTreeSet::new(),
    }
}

/// Whether a function takes `&mut` of one of these types, as `self` or otherwise.
fn takes_mut_of(index: &Index<'_>, function: &FnDef<'_>, wide: &BTreeSet<usize>) -> bool {
    use syn::{FnArg, ReceiverKind, Type};
    let Some(signature) = function.signature else {
        return false;
    };
    let is_own_wide = matches!(&function.owner, Owner::Type(number) if wide.contains(number));
    signature.inputs.iter().any(|taken| match taken {
        FnArg::Receiver(it) => {
            is_own_wide
                && match &it.kind {
                    ReceiverKind::Reference(_, _, mutability) => mutability.is_some(),
                    ReceiverKind::Typed(_, ty) => {
                        matches!(&**ty, Type::Reference(it) if it.mutability.is_some())
                    }
                    _ => false,
                }
        }
        FnArg::Typed(it) => {
            let mut lent = Vec::new();
            lent_to_change(&it.ty, &mut lent);
            lent.iter().any(|ty| {
                let is_itself = matches!(ty, Type::Path(it) if it.path.is_ident("Self"));
                let inner = changeable(index, &function.scope.module, ty, true);
                is_itself && is_own_wide || inner.iter().any(|it| wide.contains(it))
            })
        }
    })
}

/// The types behind `&mut` in a type.
fn lent_to_change<'t>(ty: &'t syn::Type, found: &mut Vec<&'t syn::Type>) {
    use syn::Type;
    match ty {
        Type::Reference(it) if it.mutability.is_some() => found.push(&it.elem),
        Type::Reference(it) => lent_to_change(&it.elem, found),
        Type::Paren(it) => lent_to_change(&it.elem, found),
        Type::Tuple(it) => it.elems.iter().for_each(|it| lent_to_change(it, found)),
        Type::Path(it) => {
            for segment in &it.path.segments {
                if let syn::PathArguments::AngleBracketed(arguments) = &segment.arguments {
                    for argument in &arguments.args {
                        if let syn::GenericArgument::Type(inner) = argument {
                            lent_to_change(inner, found);
                        }
                    }
                }
            }
        }
        _ => {}
    }
}

/// The methods of the type that owns all components, and the functions of `apply`.
pub(crate) fn methods(index: &Index<'_>) -> Vec<usize> {
    let scheduler = index.type_named("Scheduler");
    let counts = |at: &usize| {
        let function = &index.fns[*at];
        let is_method = match (&function.owner, scheduler) {
            (Owner::Type(number), Some(scheduler)) => *number == scheduler,
            _ => false,
        };
        function.signature.is_some() && (is_method || is_in(&function.file, APPLY))
    };
    (0..index.fns.len()).filter(counts).collect()
}
