//! A directory of certificates, as `ciao-cert -all` makes it: which file is whose, by the names of the files.
//!
//! ```text
//! CAcert-HOST.pem              the CA's certificate
//! cert-ROLE-HOST.pem           certificate and key of one role
//! cert-ROLE-ROLE-HOST.pem      of several: not taken for either
//! ```
//!
//! For flags that are not given: a guess that is plain or none. Nothing is read but names.

use std::path::{Path, PathBuf};

/// Entries of a directory that are looked at: one of certificates has a few for each node. A directory of more is
/// something else, and is not walked to its end.
const MAX_ENTRIES: usize = 100_000;

/// What follows the name of one role in the name of a file for several: the names of roles as `ciao-cert` writes them.
const FURTHER_ROLES: [&str; 6] = [
    "CNAgent-",
    "Scheduler-",
    "Controller-",
    "NetworkingAgent-",
    "Server-",
    "CNCIAgent-",
];

/// The file with certificate and key of a role (`Controller`): that for `localhost`, or else the only one for any host.
/// With none or several, the name of the usual file, which is then said to be missing.
#[must_use]
pub fn cert_file(directory: &Path, role: &str) -> PathBuf {
    find(directory, &format!("cert-{role}-"))
}

/// The file with the CA's certificate: that of `localhost`, or else the only one.
#[must_use]
pub fn ca_file(directory: &Path) -> PathBuf {
    find(directory, "CAcert-")
}

/// The file whose name begins so, by the same rule for all.
fn find(directory: &Path, prefix: &str) -> PathBuf {
    let usual = directory.join(format!("{prefix}localhost.pem"));
    if usual.exists() {
        return usual;
    }
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let names = entries.take(MAX_ENTRIES).flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found = names.filter(|name| is_for_a_host(name, prefix));
    match (found.next(), found.next()) {
        (Some(only), None) => directory.join(only),
        // An error that names the usual file says what is looked for.
        _ => usual,
    }
}

/// Whether what follows the prefix is a host and not a further role.
fn is_for_a_host(name: &str, prefix: &str) -> bool {
    let host = name
        .strip_prefix(prefix)
        .and_then(|rest| rest.strip_suffix(".pem"));
    host.is_some_and(|host| !FURTHER_ROLES.iter().any(|role| host.starts_with(role)))
}

#[cfg(test)]
mod tests {
    use super::{ca_file, cert_file};

    #[test]
    fn the_only_file_of_a_role_is_found_whatever_host_it_is_for() {
        let directory = tempfile::tempdir().unwrap();
        let there = |name: &str| directory.path().join(name);
        for name in [
            "CAcert-sched.example.pem",
            "cert-Controller-sched.example.pem",
            "cert-CNAgent-node-1.example.pem",
            "cert-CNAgent-NetworkingAgent-sched.example.pem",
        ] {
            std::fs::write(there(name), "").unwrap();
        }
        let directory = directory.path();
        assert_eq!(ca_file(directory), there("CAcert-sched.example.pem"));
        let controller = there("cert-Controller-sched.example.pem");
        assert_eq!(cert_file(directory, "Controller"), controller);
        let agent = there("cert-CNAgent-node-1.example.pem");
        assert_eq!(cert_file(directory, "CNAgent"), agent);

        std::fs::write(there("cert-CNAgent-node-2.example.pem"), "").unwrap();
        let usual = there("cert-CNAgent-localhost.pem");
        assert_eq!(cert_file(directory, "CNAgent"), usual, "which is not plain");
        std::fs::write(there("cert-Controller-localhost.pem"), "").unwrap();
        let usual = there("cert-Controller-localhost.pem");
        assert_eq!(cert_file(directory, "Controller"), usual);
    }
}
