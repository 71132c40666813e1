//! Options of the commands that change single entries of the cluster configuration.

use clap::{Args, Subcommand};

/// `ciaoctl aggregate`.
#[derive(Debug, Subcommand)]
pub enum AggregateCommand {
    /// List aggregates and zones, with the keys that each has
    List,
    /// Add an aggregate or a zone, or change keys of one: zone=eu-1 'nodes=[host-1, host-2]'
    Set(EntryArgs),
    /// Take an aggregate away; its nodes stay
    Delete(NameArgs),
}

/// `ciaoctl tenant`.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// List tenants that have defaults of their own
    List,
    /// Say what STARTs of a tenant ask for that do not say it themselves: queue=10m priority=70
    Set(EntryArgs),
    /// Take a tenant's defaults away; those for all count
    Delete(NameArgs),
}

/// An entry of a section, and what is changed of it.
#[derive(Debug, Args)]
pub struct EntryArgs {
    /// Name of the aggregate, tenant or node; of a node the host name or UUID
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Values as YAML, by the keys that the configuration has; KEY= takes one away
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = pair)]
    pub pairs: Vec<(String, String)>,
}

/// An entry of a section.
#[derive(Debug, Args)]
pub struct NameArgs {
    /// Name of the aggregate or tenant
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// A key and a value, which may be empty.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}
