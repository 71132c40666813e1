//! Flags that say in which variables of the environment programs read which devices they have, and what those are called
//! there.

use std::collections::BTreeMap;

use ciao_scheduler::launcher::agent::{DeviceVariable, MAX_DEVICES};
use proto_frames::payload::expression::MAX_NAME_LEN;

use super::{FeaturesError, pair};

/// What the names of variables begin with that are the launcher's own.
const OWN_VARIABLES: &str = "CIAO_";

/// The variables that tell units, each with the names of its units.
pub(super) fn device_variables(
    resources: &BTreeMap<String, i64>,
    variables: Vec<(String, String)>,
    mut names: BTreeMap<String, Vec<String>>,
) -> Result<Vec<DeviceVariable>, FeaturesError> {
    let amount_of = |flag, resource: &String| {
        let amount = resources.get(resource).copied().unwrap_or(0);
        match (1..=i64::from(MAX_DEVICES)).contains(&amount) {
            true => Ok(amount),
            false => Err(FeaturesError::NoUnits {
                flag,
                resource: resource.clone(),
                amount,
            }),
        }
    };
    for (resource, names) in &names {
        let amount = amount_of("device-names", resource)?;
        if i64::try_from(names.len()) != Ok(amount) {
            return Err(FeaturesError::Names {
                resource: resource.clone(),
                names: names.len(),
                amount,
            });
        }
    }
    let mut found: Vec<DeviceVariable> = Vec::new();
    for (resource, name) in variables {
        amount_of("device-variable", &resource)?;
        let is_same = |it: &DeviceVariable| it.resource == resource && it.name == name;
        if found.iter().any(is_same) {
            return Err(FeaturesError::Twice {
                flag: "device-variable",
                name: format!("{resource}={name}"),
            });
        }
        let units = names.get(&resource).cloned().unwrap_or_default();
        found.push(DeviceVariable {
            name,
            resource,
            units,
        });
    }
    names.retain(|resource, _| !found.iter().any(|it| it.resource == *resource));
    match names.into_keys().next() {
        Some(unused) => Err(FeaturesError::NamesUnused(unused)),
        None => Ok(found),
    }
}

/// The variable must be one that a shell can name (POSIX.1-2017, 8.1), and none of the launcher's own.
pub(super) fn parse_variable(text: &str) -> Result<(String, String), String> {
    let (resource, variable) = pair(text, "RESOURCE=VARIABLE")?;
    let is_part = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
    let is_variable = variable.bytes().all(is_part)
        && !variable.starts_with(|it: char| it.is_ascii_digit())
        && (1..=MAX_NAME_LEN).contains(&variable.len());
    if !is_variable {
        return Err(format!(
            "the variable must be 1 to {MAX_NAME_LEN} letters, digits or '_', and not begin with a digit"
        ));
    }
    if variable.starts_with(OWN_VARIABLES) {
        return Err(format!(
            "variables that begin with {OWN_VARIABLES} are the launcher's"
        ));
    }
    Ok((resource.to_owned(), variable.to_owned()))
}

/// Names that are told with commas between them.
pub(super) fn parse_units(text: &str) -> Result<(String, Vec<String>), String> {
    let (resource, names) = pair(text, "RESOURCE=NAME,NAME")?;
    let names: Vec<String> = names.split(',').map(str::to_owned).collect();
    let is_name = |name: &String| {
        (1..=MAX_NAME_LEN).contains(&name.len()) && name.bytes().all(|it| it.is_ascii_graphic())
    };
    match names.iter().find(|name| !is_name(name)) {
        Some(name) => Err(format!(
            "'{}' is no name of a unit: 1 to {MAX_NAME_LEN} visible ASCII characters",
            name.escape_debug()
        )),
        None => Ok((resource.to_owned(), names)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{flags, found};
    use super::{parse_units, parse_variable};

    #[test]
    fn variables_tell_units_of_resources_that_the_node_has_by_index_or_by_name() {
        let said = flags(&[
            "--device-variable=gpu=CUDA_VISIBLE_DEVICES",
            "--resource=mig-1g=2",
            "--device-variable=mig-1g=CUDA_VISIBLE_DEVICES",
            "--device-names=mig-1g=MIG-a,MIG-b",
        ]);
        let variables = said.features(found()).unwrap().device_variables;
        let told: Vec<_> = variables
            .iter()
            .map(|it| (&*it.name, &*it.resource, it.units.join(" ")))
            .collect();
        let name = "CUDA_VISIBLE_DEVICES";
        let expected = [
            (name, "gpu", String::new()),
            (name, "mig-1g", "MIG-a MIG-b".to_owned()),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_tells_no_units_is_refused_with_what_it_lacks() {
        for (args, reason) in [
            (&["--device-variable=fpga=X"][..], "the node has 0 of fpga"),
            (
                &["--resource=pages=257", "--device-variable=pages=X"],
                "the node has 257 of pages, and units are told apart of 1 to 256",
            ),
            (
                &["--device-variable=gpu=X", "--device-names=gpu=a,b"],
                "2 names, and the node has 8 of gpu",
            ),
            (
                &["--resource=gpu=1", "--device-names=gpu=a"],
                "say --device-variable gpu=VARIABLE as well",
            ),
            (
                &["--device-variable=gpu=X", "--device-variable=gpu=X"],
                "--device-variable: gpu=X is given twice",
            ),
        ] {
            let error = flags(args).features(found()).unwrap_err().to_string();
            assert!(error.contains(reason), "{args:?}: {error}");
        }
        for (text, reason) in [
            ("gpu", "of the form RESOURCE=VARIABLE"),
            ("gpu=", "letters, digits or '_'"),
            ("gpu=1X", "not begin with a digit"),
            ("gpu=A-B", "letters, digits or '_'"),
            ("gpu=CIAO_GPU", "begin with CIAO_ are the launcher's"),
        ] {
            let error = parse_variable(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        for text in ["gpu=a,,b", "gpu=", "gpu=a b"] {
            let error = parse_units(text).unwrap_err();
            assert!(error.contains("no name of a unit"), "{text}: {error}");
        }
    }
}
