//! The sources that are looked at: the core's files without tests and without what is made for tests and benchmarks.

use crate::modules::sources;

use syn::punctuated::Punctuated;
use syn::{Attribute, Item, Meta, Token};

/// The core's folder.
pub(crate) const CORE: &str = "sched-core/src";

/// A file: where it is below its folder, without `.rs`, what it says, and the same parsed.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) parsed: syn::File,
}

/// The files of the core, by path, without those that only tests have.
pub(crate) fn of_the_core() -> Vec<Source> {
    parse(sources(CORE))
}

/// Parses files, given as path and text, and leaves out those that tests alone have.
pub(crate) fn parse(files: Vec<(String, String)>) -> Vec<Source> {
    let parse = |(path, text): (String, String)| {
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        Source { path, text, parsed }
    };
    let mut sources: Vec<Source> = files.into_iter().map(parse).collect();
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    let of_tests: Vec<String> = sources.iter().flat_map(modules_of_tests).collect();
    let is_of_tests = |path: &str| {
        of_tests.iter().any(|module| {
            let below = path.strip_prefix(module.as_str());
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    sources.retain(|source| !is_of_tests(&source.path));
    for source in &mut sources {
        without_tests(&mut source.parsed.items);
    }
    sources
}

/// The modules of a file that are for tests: their paths as files.
fn modules_of_tests(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for item in &source.parsed.items {
        if let Item::Mod(module) = item
            && module.content.is_none()
            && is_for_tests(&module.attrs)
        {
            let name = module.ident.to_string();
            found.push(match source.path.as_str() {
                "lib" => name,
                path => format!("{path}/{name}"),
            });
        }
    }
    found
}

/// Takes out items that tests alone have.
fn without_tests(items: &mut Vec<Item>) {
    items.retain(|item| match item {
        Item::Const(it) => !is_for_tests(&it.attrs),
        Item::Enum(it) => !is_for_tests(&it.attrs),
        Item::Fn(it) => !is_for_tests(&it.attrs),
        Item::Impl(it) => !is_for_tests(&it.attrs),
        Item::Mod(it) => !is_for_tests(&it.attrs),
        Item::Static(it) => !is_for_tests(&it.attrs),
        Item::Struct(it) => !is_for_tests(&it.attrs),
        Item::Trait(it) => !is_for_tests(&it.attrs),
        Item::Type(it) => !is_for_tests(&it.attrs),
        Item::Use(it) => !is_for_tests(&it.attrs),
        _ => true,
    });
    for item in items {
        match item {
            Item::Mod(module) => {
                if let Some((_, items)) = &mut module.content {
                    without_tests(items);
                }
            }
            Item::Impl(block) => block.items.retain(|item| match item {
                syn::ImplItem::Fn(it) => !is_for_tests(&it.attrs),
                syn::ImplItem::Const(it) => !is_for_tests(&it.attrs),
                _ => true,
            }),
            _ => {}
        }
    }
}

/// Whether an item is there in tests alone: `#[cfg(test)]`, a feature for tests, or a list of which all or any is that.
fn is_for_tests(attrs: &[Attribute]) -> bool {
    let conditions = attrs.iter().filter(|it| it.path().is_ident("cfg"));
    let mut conditions = conditions.filter_map(|it| it.parse_args::<Meta>().ok());
    conditions.any(|condition| names_tests(&condition))
}

fn names_tests(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::NameValue(pair) => match &pair.value {
            syn::Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Str(text) => text.value() == "test-support",
                _ => false,
            },
            _ => false,
        },
        Meta::List(list) if list.path.is_ident("any") || list.path.is_ident("all") => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .is_ok_and(|inner| inner.iter().any(names_tests)),
        Meta::List(_) => false,
    }
}

/// Lines of the core: all, and those that are neither empty nor a comment.
pub(crate) fn lines(sources: &[Source]) -> (usize, usize) {
    let (mut all, mut code) = (0, 0);
    for source in sources {
        let text = source.text.split("#[cfg(test)]\nmod tests {").next();
        for line in text.unwrap_or_default().lines() {
            let line = line.trim();
            all += 1;
            code += usize::from(!line.is_empty() && !line.starts_with("//"));
        }
    }
    (all, code)
}
