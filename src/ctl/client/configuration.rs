//! The cluster configuration: it is read, with its versions, and replaced.

use bytes::Bytes;
use proto_frames::Kind;
use proto_frames::payload::{
    ConfigurationAnswer, ConfigurationFailure, ConfigurationPart, ConfigurationWrite, Payload,
    ReadConfiguration, WriteConfiguration,
};

use super::{Client, ClientError};
use crate::ctl::event::{Event, refused_kind};

/// Why nothing came of a request about the configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// There is no answer, or the scheduler does not know the question.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The scheduler refuses it.
    ///
    /// For example a configuration with a mistake, or another version than the sender takes for the one in force.
    #[error("{detail} ({failure})")]
    Refused {
        /// The reason code.
        failure: ConfigurationFailure,
        /// More about that.
        detail: String,
    },
}

/// Which configuration is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The one in force.
    Current,
    /// The version of this number.
    Version(u64),
    /// The scheduler's own file.
    File,
    /// The node file, as the scheduler has read it last.
    Nodes,
    /// The node file, as it is now.
    NodeFile,
}

impl Client {
    /// A configuration with what is known of it, and all versions that are kept.
    ///
    /// # Errors
    /// [`ConfigurationError`].
    pub async fn configuration(
        &mut self,
        which: Which,
    ) -> Result<(ConfigurationPart, Bytes), ConfigurationError> {
        let id = self.next_id();
        let read = ReadConfiguration {
            id,
            version: match which {
                Which::Version(number) => Some(number),
                _ => None,
            },
            file: matches!(which, Which::File | Which::NodeFile),
            nodes: matches!(which, Which::Nodes | Which::NodeFile),
        };
        self.ask_about_configuration(id, Kind::READ_CONFIGURATION, read.encode())
            .await
    }

    /// Puts a configuration into force, or with `check` asks what would come of it.
    ///
    /// The number in `asked` is set here.
    ///
    /// # Errors
    /// [`ConfigurationError`].
    pub async fn configure(
        &mut self,
        asked: WriteConfiguration,
        document: Bytes,
    ) -> Result<ConfigurationPart, ConfigurationError> {
        let id = self.next_id();
        let write = ConfigurationWrite::new(WriteConfiguration { id, ..asked }, document);
        let answer = self.ask_about_configuration(id, Kind::WRITE_CONFIGURATION, write.encode());
        Ok(answer.await?.0)
    }

    async fn ask_about_configuration(
        &mut self,
        id: u64,
        kind: Kind,
        payload: Bytes,
    ) -> Result<(ConfigurationPart, Bytes), ConfigurationError> {
        self.send(kind, payload).await.map_err(ClientError::from)?;
        let answer = self.wait_for(
            "answer about the configuration",
            self.answer_timeout,
            |event| match event {
                Event::Configuration(answer) if answer.part.id == id => Ok(Ok(*answer)),
                Event::Refused(refusal) if refused_kind(&refusal) == kind => Ok(Err(refusal)),
                other => Err(other),
            },
        );
        let refused = |refusal| ClientError::Refused(Box::new(refusal));
        let ConfigurationAnswer { part, data } = answer.await?.map_err(refused)?;
        match part.is_failure() {
            true => Err(ConfigurationError::Refused {
                failure: part.failure,
                detail: part.detail,
            }),
            false => Ok((part, data)),
        }
    }
}
