//! The names that there are: resource classes and traits. Clients ask for them to check names before they use them.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::door::{Call, Reply};
use super::fault::{Fault, repeated};
use super::names::{STANDARD_CLASSES, custom_class, is_standard_trait, standard_traits};
use super::params::{Known, labels_of};
use super::providers::{each, traits_of};

/// `GET /resource_classes`.
pub(super) fn list(call: &Call<'_>) -> Result<Reply, Fault> {
    call.params(&[])?;
    let classes: Vec<Value> = names(call)
        .iter()
        .map(|name| document(call, name))
        .collect();
    Ok(Reply::ok(json!({ "resource_classes": classes })))
}

/// `GET /resource_classes/{name}`.
pub(super) fn one(call: &Call<'_>, name: &str) -> Result<Reply, Fault> {
    match names(call).iter().any(|other| other == name) {
        true => Ok(Reply::ok(document(call, name))),
        false => Err(Fault::not_found(format!(
            "No such resource class {}.",
            repeated(name)
        ))),
    }
}

/// All classes: the standard's, and those of custom resources that nodes have, each once.
fn names(call: &Call<'_>) -> Vec<String> {
    // A set, because resources whose names differ in signs alone share a class.
    let custom: BTreeSet<String> = call
        .hub
        .read_now(|scheduler, _| scheduler.resource_names().map(custom_class).collect());
    let standard = STANDARD_CLASSES.iter().map(|name| (*name).to_owned());
    standard.chain(custom).collect()
}

/// A class as a row.
fn document(call: &Call<'_>, name: &str) -> Value {
    let href = format!("{}/resource_classes/{name}", call.base);
    let link = json!({"rel": "self", "href": href});
    json!({"name": name, "links": [link]})
}

/// Parameters of the traits' list, each with the microversion that brought it.
const PARAMS: [Known; 2] = [("name", 6), ("associated", 6)];

/// `GET /traits`: the standard's traits, and those that nodes have, found by looking at all nodes. `associated=true` asks
/// for those that a node has, and `associated=false` for the others. `name` narrows the list: `in:A,B` or
/// `startswith:PREFIX`.
///
/// # Errors
/// 400 for another form of either.
pub(super) async fn traits(call: &Call<'_>) -> Result<Reply, Fault> {
    let params = call.params(&PARAMS)?;
    let standard = || standard_traits().map(str::to_owned);
    let mut traits = BTreeSet::new();
    each(call.hub, |provider| traits.extend(traits_of(provider))).await;
    match params.text("associated") {
        None => traits.extend(standard()),
        Some(text) if text.eq_ignore_ascii_case("true") => {}
        Some(text) if text.eq_ignore_ascii_case("false") => {
            traits = standard().filter(|name| !traits.contains(name)).collect();
        }
        Some(other) => {
            let detail = format!(
                "associated: '{}' is neither true nor false",
                repeated(other)
            );
            return Err(Fault::bad(detail));
        }
    }
    match params.text("name") {
        None => {}
        // The two forms that Placement has; a bare name is neither.
        Some(name) => match (name.strip_prefix("in:"), name.strip_prefix("startswith:")) {
            (Some(list), _) => traits.retain(|it| list.split(',').any(|other| other == it)),
            (_, Some(prefix)) => traits.retain(|it| it.starts_with(prefix)),
            _ => {
                let detail = format!(
                    "name: expected in:A,B or startswith:PREFIX. Got: {}",
                    repeated(name)
                );
                return Err(Fault::bad(detail));
            }
        },
    }
    Ok(Reply::ok(json!({ "traits": traits })))
}

/// `GET /traits/{name}`: 204 if it is one of the standard's or a compute node has it, else 404. By the index of labels,
/// so that not all nodes are looked at.
pub(super) fn has_trait(call: &Call<'_>, name: &str) -> Result<Reply, Fault> {
    // At least one label with this name means that a node has the trait.
    let is_label = || {
        let labels = call.hub.read_now(|scheduler, _| labels_of(scheduler, name));
        !labels.is_empty()
    };
    match !is_standard_trait(name) && !is_label() {
        false => Ok(Reply::empty(StatusCode::NO_CONTENT)),
        true => Err(Fault::not_found(format!(
            "No such trait(s): {}.",
            repeated(name)
        ))),
    }
}
