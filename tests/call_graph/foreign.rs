//! What methods of the standard library take and return, as far as values of the core go through them: options, results,
//! iterators, sequences, maps. Of other types of others the methods return nothing of the core's, unless they hold it.

use crate::types::Ty;

/// What a type of others is, for its methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Option,
    Result,
    Items,
    Sequence,
    Map,
    Entry,
    Plain,
}

fn kind(name: &str) -> Kind {
    match name {
        "Option" => Kind::Option,
        "Result" => Kind::Result,
        "Iterator" => Kind::Items,
        "Vec" | "VecDeque" | "BTreeSet" | "IndexSet" | "BinaryHeap" | "Collected" => Kind::Sequence,
        "BTreeMap" | "IndexMap" => Kind::Map,
        "Entry" => Kind::Entry,
        _ => Kind::Plain,
    }
}

fn option(inner: Ty) -> Ty {
    Ty::of("Option", inner)
}

fn items(inner: Ty) -> Ty {
    Ty::of("Iterator", inner)
}

fn pair(of: &Ty) -> Ty {
    Ty::Tuple(vec![of.argument(0), of.argument(1)])
}

/// What a type of others is walked through by; `None` if it is not known.
pub(crate) fn item(of: &Ty) -> Option<Ty> {
    let Ty::Other(name, _) = of else {
        return None;
    };
    Some(match kind(name) {
        Kind::Map => pair(of),
        _ => of.argument(0),
    })
}

/// What a closure is called with that is passed to such a method; `first` is the type of its first argument.
pub(crate) fn closure_takes(of: &Ty, method: &str, first: &Ty) -> Vec<Ty> {
    let Ty::Other(name, _) = of else {
        return Vec::new();
    };
    match (kind(name), method) {
        (Kind::Result, "map_err" | "unwrap_or_else" | "or_else" | "is_err_and" | "inspect_err") => {
            vec![of.argument(1)]
        }
        (Kind::Items, "fold" | "try_fold" | "scan") => vec![first.clone(), of.argument(0)],
        (
            Kind::Items | Kind::Sequence,
            "reduce" | "min_by" | "max_by" | "sort_by" | "sort_unstable_by" | "dedup_by"
            | "is_sorted_by" | "sorted_by",
        ) => vec![of.argument(0), of.argument(0)],
        (Kind::Map, _) => vec![of.argument(0), of.argument(1)],
        (Kind::Entry, _) => vec![of.argument(1)],
        _ => vec![of.argument(0)],
    }
}

/// What a method of a type of others returns. `given` are the types of its arguments; those of closures are what they
/// return.
pub(crate) fn returns(of: &Ty, method: &str, given: &[Ty]) -> Ty {
    let Ty::Other(name, _) = of else {
        return Ty::Unknown;
    };
    if let Some(known) = returns_as_any(of, name, method) {
        return known;
    }
    let known = match kind(name) {
        Kind::Option => of_option(of, method, given),
        Kind::Result => of_result(of, method, given),
        Kind::Items => of_items(of, method, given),
        Kind::Sequence => of_sequence(of, method, given),
        Kind::Map => of_map(of, method, given),
        Kind::Entry => of_entry(of, method),
        Kind::Plain => of_plain(name, method, given),
    };
    known.unwrap_or_else(
        || match of.may_be_own() || given.iter().any(Ty::may_be_own) {
            true => Ty::Unknown,
            false => Ty::other("?"),
        },
    )
}

/// What methods return that mean the same on all types which have them.
fn returns_as_any(of: &Ty, name: &str, method: &str) -> Option<Ty> {
    match method {
        "clone" | "to_owned" | "borrow" | "borrow_mut" | "as_ref" | "as_mut" | "by_ref"
        | "into_boxed_slice" | "to_vec" | "into_vec" | "as_slice" | "as_mut_slice" | "as_deref"
        | "as_deref_mut" | "copied" | "cloned" | "min" | "max" | "inspect" => {
            // Of an iterator, `min` and `max` are the least and the greatest of it.
            let is_extreme = matches!(method, "min" | "max") && kind(name) == Kind::Items;
            (!is_extreme).then(|| of.clone())
        }
        "len"
        | "is_empty"
        | "contains"
        | "contains_key"
        | "count"
        | "cmp"
        | "eq"
        | "partial_cmp"
        | "any"
        | "all"
        | "position"
        | "is_some"
        | "is_none"
        | "is_ok"
        | "is_err"
        | "is_some_and"
        | "is_none_or"
        | "is_ok_and"
        | "starts_with"
        | "ends_with"
        | "capacity"
        | "retain"
        | "push"
        | "push_back"
        | "push_front"
        | "clear"
        | "for_each"
        | "extend"
        | "sort"
        | "sort_by_key"
        | "sort_unstable"
        | "sort_unstable_by_key"
        | "sort_by"
        | "truncate"
        | "reserve"
        | "shrink_to_fit"
        | "partition_point"
        | "is_subset"
        | "is_disjoint"
        | "iter_sum" => Some(Ty::other("?")),
        "binary_search" | "binary_search_by" | "binary_search_by_key" => Some(Ty::Other(
            "Result".to_owned(),
            vec![Ty::other("?"), Ty::other("?")],
        )),
        _ => None,
    }
}

/// What a closure or function that is passed returns.
fn result_of(given: Option<&Ty>) -> Ty {
    match given {
        Some(Ty::Fn(_, result)) => (**result).clone(),
        _ => Ty::Unknown,
    }
}

fn of_option(of: &Ty, method: &str, given: &[Ty]) -> Option<Ty> {
    Some(match method {
        "map" => option(result_of(given.first())),
        "and_then" | "and" if method == "and" => given.first().cloned()?,
        "and_then" => result_of(given.first()),
        "map_or" => given.first().cloned()?.or(result_of(given.get(1))),
        "map_or_else" => result_of(given.first()).or(result_of(given.get(1))),
        "filter" | "or" | "or_else" | "take" | "replace" | "xor" | "take_if" => of.clone(),
        "unwrap"
        | "expect"
        | "unwrap_or"
        | "unwrap_or_default"
        | "unwrap_or_else"
        | "insert"
        | "get_or_insert_with"
        | "get_or_insert"
        | "flatten"
        | "get_or_insert_default" => of.argument(0),
        "ok_or" => Ty::Other(
            "Result".to_owned(),
            vec![of.argument(0), given.first().cloned()?],
        ),
        "ok_or_else" => Ty::Other(
            "Result".to_owned(),
            vec![of.argument(0), result_of(given.first())],
        ),
        "zip" => option(Ty::Tuple(vec![of.argument(0), given.first()?.argument(0)])),
        "iter" | "iter_mut" | "into_iter" => items(of.argument(0)),
        _ => return None,
    })
}

fn of_result(of: &Ty, method: &str, given: &[Ty]) -> Option<Ty> {
    let result = |ok, error| Ty::Other("Result".to_owned(), vec![ok, error]);
    Some(match method {
        "map" => result(result_of(given.first()), of.argument(1)),
        "map_err" => result(of.argument(0), result_of(given.first())),
        "ok" => option(of.argument(0)),
        "err" => option(of.argument(1)),
        "and_then" => result_of(given.first()),
        "map_or" => given.first().cloned()?.or(result_of(given.get(1))),
        "map_or_else" => result_of(given.first()).or(result_of(given.get(1))),
        "unwrap" | "expect" | "unwrap_or" | "unwrap_or_default" | "unwrap_or_else" => {
            of.argument(0)
        }
        "unwrap_err" | "expect_err" => of.argument(1),
        _ => return None,
    })
}

fn of_items(of: &Ty, method: &str, given: &[Ty]) -> Option<Ty> {
    let inner = of.argument(0);
    Some(match method {
        "map" => items(result_of(given.first())),
        "filter_map" | "flat_map" | "map_while" => {
            let result = result_of(given.first());
            items(item(&result).unwrap_or(Ty::Unknown))
        }
        "flatten" => items(item(&inner).unwrap_or(Ty::Unknown)),
        "filter" | "chain" | "rev" | "skip" | "take" | "take_while" | "skip_while" | "step_by"
        | "peekable" | "fuse" | "cycle" | "into_iter" | "iter" => of.clone(),
        "enumerate" => items(Ty::Tuple(vec![Ty::other("usize"), inner])),
        "zip" => {
            let other = given.first().and_then(item).unwrap_or(Ty::Unknown);
            items(Ty::Tuple(vec![inner, other]))
        }
        "next" | "last" | "nth" | "find" | "min" | "max" | "min_by_key" | "max_by_key"
        | "min_by" | "max_by" | "next_back" | "peek" | "peek_mut" | "next_if" | "reduce"
        | "rfind" => option(inner),
        "find_map" => result_of(given.first()),
        "fold" => given.first().cloned()?.or(result_of(given.get(1))),
        "try_fold" => result_of(given.get(1)),
        "sum" | "product" => inner,
        "collect" => Ty::of("Collected", inner),
        "partition" => {
            let part = Ty::of("Collected", inner);
            Ty::Tuple(vec![part.clone(), part])
        }
        "unzip" => match inner {
            Ty::Tuple(parts) => Ty::Tuple(
                parts
                    .into_iter()
                    .map(|it| Ty::of("Collected", it))
                    .collect(),
            ),
            _ => Ty::Unknown,
        },
        _ => return None,
    })
}

fn of_sequence(of: &Ty, method: &str, given: &[Ty]) -> Option<Ty> {
    let inner = of.argument(0);
    let is_set = matches!(of, Ty::Other(name, _) if name.ends_with("Set"));
    Some(match method {
        "iter" | "iter_mut" | "into_iter" | "drain" | "range" | "difference" | "union"
        | "intersection" | "extract_if" => items(inner),
        "insert" | "remove" if is_set => Ty::other("bool"),
        "remove" if matches!(of, Ty::Other(name, _) if name == "VecDeque") => option(inner),
        "remove" | "swap_remove" => inner,
        "get" if matches!(given.first(), Some(Ty::Other(name, _)) if name == "Range") => {
            option(of.clone())
        }
        "get" | "get_mut" | "first" | "last" | "first_mut" | "last_mut" | "front" | "back"
        | "front_mut" | "back_mut" | "pop" | "pop_front" | "pop_back" | "pop_first"
        | "pop_last" | "take" | "get_index" | "swap_remove_index" | "pop_if" | "peek" => {
            option(inner)
        }
        "windows" | "chunks" | "split" | "chunks_exact" => items(of.clone()),
        "split_off" | "concat" => of.clone(),
        "split_first" | "split_last" => option(Ty::Tuple(vec![inner, of.clone()])),
        "split_at" | "split_at_mut" => Ty::Tuple(vec![of.clone(), of.clone()]),
        _ => return None,
    })
}

fn of_map(of: &Ty, method: &str, _given: &[Ty]) -> Option<Ty> {
    Some(match method {
        "get" | "get_mut" | "remove" | "insert" | "swap_remove" | "shift_remove" => {
            option(of.argument(1))
        }
        "iter" | "iter_mut" | "into_iter" | "range" | "range_mut" | "drain" | "extract_if" => {
            items(pair(of))
        }
        "keys" | "into_keys" => items(of.argument(0)),
        "values" | "values_mut" | "into_values" => items(of.argument(1)),
        "first_key_value" | "last_key_value" | "pop_first" | "pop_last" | "get_key_value"
        | "first" | "last" | "get_index" | "swap_remove_index" | "shift_remove_index" | "pop"
        | "remove_entry" | "get_index_mut" | "shift_remove_entry" | "swap_remove_entry" => {
            option(pair(of))
        }
        "entry" => Ty::Other("Entry".to_owned(), vec![of.argument(0), of.argument(1)]),
        "first_entry" | "last_entry" => option(Ty::Other(
            "Entry".to_owned(),
            vec![of.argument(0), of.argument(1)],
        )),
        "split_off" => of.clone(),
        _ => return None,
    })
}

fn of_entry(of: &Ty, method: &str) -> Option<Ty> {
    Some(match method {
        "or_default" | "or_insert" | "or_insert_with" | "get" | "get_mut" | "into_mut"
        | "insert" | "remove" => of.argument(1),
        "and_modify" => of.clone(),
        "key" => of.argument(0),
        "remove_entry" => pair(of),
        _ => return None,
    })
}

fn of_plain(name: &str, method: &str, given: &[Ty]) -> Option<Ty> {
    Some(match method {
        "then" if given.first().is_some_and(|it| matches!(it, Ty::Fn(..))) => {
            option(result_of(given.first()))
        }
        "then_some" => option(given.first().cloned()?),
        "step_by" | "rev" | "into_iter" | "map" | "filter" | "find" | "filter_map" | "zip"
        | "take_while" | "skip" | "flat_map" | "find_map" | "take"
            if name.starts_with("Range") || name == "Chars" =>
        {
            return of_items(&items(Ty::other("?")), method, given);
        }
        "split" | "lines" | "chars" | "bytes" | "split_whitespace" | "split_terminator" => {
            items(Ty::other("str"))
        }
        "split_once" | "rsplit_once" => option(Ty::Tuple(vec![Ty::other("str"), Ty::other("str")])),
        "strip_prefix" | "strip_suffix" => option(Ty::other("str")),
        _ if method.starts_with("checked_") => option(Ty::other(name)),
        "get" | "find" | "rfind" | "try_into" => option(Ty::other("?")),
        _ => return None,
    })
}

/// Whether a type of others holds values of a type that is not known yet.
pub(crate) fn holds(name: &str) -> bool {
    kind(name) != Kind::Plain
}
