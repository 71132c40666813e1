//! The context of `ciaoctl` that a cluster writes while it runs.
//!
//! With `--context NAME`: other terminals then need no variables. The user's file of contexts is the same that
//! `ciaoctl context` changes.

use std::path::PathBuf;

use crate::ctl::contexts::{Contexts, NamedContext, place};

/// A context that was written; dropping it takes it back.
///
/// [`super::run`] holds it until the cluster has stopped.
#[derive(Debug)]
pub(super) struct Written {
    path: PathBuf,
    name: String,
    /// As it was written, to recognise a later change.
    context: NamedContext,
}

impl Written {
    /// Writes a context under a name, in place of an earlier one of that name.
    ///
    /// It becomes the current context only if there is none.
    ///
    /// # Errors
    /// The file of contexts cannot be read or written, or none can be called so.
    pub(super) fn new(name: &str, context: NamedContext) -> anyhow::Result<Self> {
        let path = place()?;
        let mut all = Contexts::read(&path)?;
        all.set(name, context.clone())?;
        all.write(&path)?;
        Ok(Self {
            path,
            name: name.to_owned(),
            context,
        })
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let delete = || {
            let mut all = Contexts::read(&self.path)?;
            // Not if somebody has changed it since.
            if all.contexts.get(&self.name) != Some(&self.context) {
                return Ok(());
            }
            all.delete(&self.name)?;
            all.write(&self.path)
        };
        // The program is ending: a warning is all that can be done.
        if let Err(error) = delete() {
            tracing::warn!(
                event = "context_not_deleted",
                "cannot delete the context {}, whose scheduler has ended: {error}",
                self.name
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Contexts, NamedContext, Written};

    #[test]
    fn a_context_goes_with_its_cluster_unless_somebody_has_changed_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("config.toml");
        let context = |server: &str| NamedContext {
            server: Some(server.to_owned()),
            ..NamedContext::default()
        };
        for (changed, stays) in [(false, false), (true, true)] {
            let mut all = Contexts::default();
            all.set("other", context("other")).unwrap();
            all.set("dev", context("dev")).unwrap();
            all.write(&path).unwrap();
            let written = Written {
                path: path.clone(),
                name: "dev".to_owned(),
                context: context("dev"),
            };
            if changed {
                all.set("dev", context("changed")).unwrap();
                all.write(&path).unwrap();
            }
            drop(written);
            let left = Contexts::read(&path).unwrap();
            assert_eq!(left.contexts.contains_key("dev"), stays);
            assert_eq!(left.current.as_deref(), Some("other"));
        }
    }
}
