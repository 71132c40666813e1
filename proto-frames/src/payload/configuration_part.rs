//! Configuration and WriteConfiguration: the cluster configuration on its way to or from an operator (added by this
//! project). The document says what it is; the configuration follows it as it is, behind the line that ends it, as the
//! bytes of an image do ([`super::image_chunk`]).

use sched_model::configuration::{
    ConfigurationPart, MAX_CONFIGURATION_LEN, ReadConfiguration, WriteConfiguration,
};

use super::document::payload;
use super::guard::{LARGE, SMALL};
use super::trailing::{Chunk, Part};

payload!(ReadConfiguration under "read_configuration", SMALL);
payload!(WriteConfiguration under "write_configuration", SMALL);
payload!(ConfigurationPart under "configuration", LARGE);

/// An answer about the configuration, with the configuration if that was asked for.
pub type ConfigurationAnswer = Chunk<ConfigurationPart>;

/// A configuration that is to be in force, or to be checked.
pub type ConfigurationWrite = Chunk<WriteConfiguration>;

impl Part for ConfigurationPart {
    const BYTES_KEY: &'static str = "configuration.bytes";
    const MAX_BYTES: usize = MAX_CONFIGURATION_LEN;
    const EXPECTED_BYTES: &'static str = "as many as follow the document, at most 1048576";

    fn bytes(&mut self) -> &mut u64 {
        &mut self.bytes
    }
}

impl Part for WriteConfiguration {
    const BYTES_KEY: &'static str = "write_configuration.bytes";
    const MAX_BYTES: usize = MAX_CONFIGURATION_LEN;
    const EXPECTED_BYTES: &'static str = "as many as follow the document, at most 1048576";

    fn bytes(&mut self) -> &mut u64 {
        &mut self.bytes
    }
}
