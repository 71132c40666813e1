//! START files: read as bytes, sent as bytes. The only things ever put in are an instance's UUID and, for a dry run,
//! what makes it one; they are put into the text, so that whatever else the file says arrives as its author wrote it.
//! Where its style has no plain place for them, as JSON, its first document is written again with everything that is
//! in it.
//!
//! ```text
//! file ─▶ StartFile::read ─▶ requests(n)  ─▶ StartRequest (UUID put in)     ─▶ START
//!                           └ member(…)    ─▶ StartRequest (UUID and name)   ─▶ START of a set
//! StartRequest.payload ─▶ DryRun::ask ─▶ START with scheduling.dry_run
//! ```
//!
//! Every edited text is decoded again and compared with what is wanted before it is used: an edit that would change
//! anything else is not sent.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use proto_frames::limits::MAX_PAYLOAD_LEN;
use proto_frames::payload::guard::{SMALL, first_document};
use proto_frames::payload::identifier::usual_form;
use proto_frames::payload::{Payload, PayloadError, Start};

use crate::edit;
use crate::printable::Lines;
use crate::start_warnings::StartWarnings;

/// A START payload as a file has it.
///
/// Read once; many requests are made of it.
#[derive(Debug, Clone)]
pub struct StartFile {
    /// For messages: the path, or `standard input`.
    name: String,
    /// The whole file, with documents behind the first, which belong to the workload.
    bytes: Bytes,
    /// What it says; without an instance's UUID if it names none.
    start: Start,
}

/// One START to send.
///
/// Ready to send. Cloning does not copy the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartRequest {
    /// Where it comes from, for messages: a file's name, or the program's.
    pub name: String,
    /// The instance it starts.
    pub instance_uuid: String,
    /// The payload to send.
    pub payload: Bytes,
}

/// Why a START file cannot be used.
///
/// All end with exit code 2: the file is the caller's, and nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartFileError {
    /// It cannot be read.
    #[error("cannot read {name}: {source}")]
    Unreadable {
        /// The file.
        name: String,
        /// The underlying error.
        source: io::Error,
    },
    /// It has what would be warned of, and that is to be a mistake.
    #[error(
        "{name}: {}, which --strict takes for a mistake; nothing was started",
        .warnings.summary()
    )]
    Doubtful {
        /// The file.
        name: String,
        /// What.
        warnings: StartWarnings,
    },
    /// It is to be run as a process, and no program is named.
    #[error(
        "{name}: start.command is missing or empty: `vm_type: process` needs a program there, such as \
         `command: [sleep, \"60\"]`, or an `image`; nothing was started"
    )]
    NoProgram {
        /// The file.
        name: String,
    },
    /// It is larger than a frame may be.
    #[error("{name}: larger than the {MAX_PAYLOAD_LEN} bytes that a frame may carry")]
    TooLarge {
        /// The file.
        name: String,
    },
    /// Its first document is not a START.
    #[error("{name}: not a START payload: {reason}")]
    NotAStart {
        /// The file.
        name: String,
        /// What the parser says.
        reason: String,
    },
    /// It needs an instance UUID, and one cannot be put in without another value becoming something else.
    #[error(
        "{name}: no place to put an instance UUID without changing another value; write `start:` on a line of its own and \
         under it, indented, `instance_uuid:` with a UUID or with nothing"
    )]
    NoPlace {
        /// The file.
        name: String,
    },
}

impl StartFileError {
    /// A line for each thing that its text counts.
    #[must_use]
    pub fn details(&self) -> Lines {
        let mut lines = Lines::default();
        if let Self::Doubtful { warnings, .. } = self {
            for mistake in warnings.mistakes() {
                lines.push(format_args!("  {mistake}"));
            }
        }
        lines
    }
}

impl StartFile {
    /// Reads a file; `-` is the standard input.
    ///
    /// At most one byte more than a frame may carry is read, so that a huge file costs no memory.
    ///
    /// # Errors
    /// [`StartFileError`], naming the file.
    pub fn read(path: &Path) -> Result<Self, StartFileError> {
        let name = if path == Path::new("-") {
            "standard input".into()
        } else {
            path.display().to_string()
        };
        let mut bytes = Vec::new();
        // One byte more than allowed, to know that there is more.
        let limit = MAX_PAYLOAD_LEN as u64 + 1;
        let read = if path == Path::new("-") {
            io::stdin().lock().take(limit).read_to_end(&mut bytes)
        } else {
            std::fs::File::open(PathBuf::from(path))
                .and_then(|file| file.take(limit).read_to_end(&mut bytes))
        };
        match read {
            Err(source) => Err(StartFileError::Unreadable { name, source }),
            Ok(len) if len > MAX_PAYLOAD_LEN => Err(StartFileError::TooLarge { name }),
            Ok(_) => Self::parse(name, bytes.into()),
        }
    }

    /// Takes a payload from elsewhere; `name` is for messages.
    ///
    /// A file without an instance's UUID is accepted. Everything else is checked as the scheduler checks it.
    ///
    /// # Errors
    /// [`StartFileError::NotAStart`].
    pub fn parse(name: String, bytes: Bytes) -> Result<Self, StartFileError> {
        // What else is wrong with it is said before a UUID is asked for.
        match Start::decode_template(&bytes) {
            Ok(start) if start == Start::default() && is_empty(&bytes) => {
                Err(StartFileError::NotAStart {
                    name,
                    reason: "`start:` has nothing under it".to_owned(),
                })
            }
            Ok(start) => Ok(Self { name, bytes, start }),
            Err(e) => Err(StartFileError::NotAStart {
                name,
                reason: e.to_string(),
            }),
        }
    }

    /// The STARTs that `count` instances of this file need: the file as it is for one that names its instance, with a
    /// UUID from `new_uuid` put in otherwise.
    ///
    /// A file that names its instance is sent as it is only if one instance is wanted; several need different UUIDs.
    ///
    /// # Errors
    /// [`StartFileError::NoPlace`] where one is needed and cannot be put in.
    pub fn requests(
        &self,
        count: u32,
        mut new_uuid: impl FnMut() -> String,
    ) -> Result<Vec<StartRequest>, StartFileError> {
        if count == 1 && !self.start.instance_uuid.is_empty() {
            return Ok(vec![StartRequest {
                name: self.name.clone(),
                // As the scheduler and its events have it.
                instance_uuid: usual_form(&self.start.instance_uuid).into_owned(),
                payload: self.bytes.clone(),
            }]);
        }
        (0..count).map(|_| self.with_instance(new_uuid())).collect()
    }

    /// The START of an instance of it with this UUID and this name, whatever the file says of both.
    ///
    /// For `ciaoctl set`. The text is edited where possible; otherwise the first document is written again.
    ///
    /// # Errors
    /// [`StartFileError::NoPlace`] where they cannot be put in.
    pub fn member(
        &self,
        instance_uuid: String,
        name: &str,
    ) -> Result<StartRequest, StartFileError> {
        let mut wanted = Start {
            instance_uuid: instance_uuid.clone(),
            ..self.start.clone()
        };
        wanted.scheduling.get_or_insert_default().name = name.to_owned();
        let is_meant = |payload: &Bytes| Start::decode(payload).is_ok_and(|read| read == wanted);
        let edited = edit::set(&self.bytes, &["start", "instance_uuid"], &instance_uuid)
            .and_then(|text| edit::set(&text, &["start", "scheduling", "name"], name));
        let payload = edited.filter(is_meant).or_else(|| {
            let first = first_document(&self.bytes, SMALL).ok()?;
            let rest = &self.bytes[first.len()..];
            Some(Bytes::from([&wanted.encode(), rest].concat())).filter(is_meant)
        });
        Ok(StartRequest {
            name: name.to_owned(),
            instance_uuid,
            payload: payload.ok_or_else(|| StartFileError::NoPlace {
                name: self.name.clone(),
            })?,
        })
    }

    /// What it is called in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it says that does not do what it seems to, such as misspelt keys.
    #[must_use]
    pub fn warnings(&self) -> StartWarnings {
        StartWarnings::of(&self.bytes, &self.start)
    }

    /// The same, a line each.
    #[must_use]
    pub fn warning_lines(&self) -> Lines {
        let texts = self.warnings().texts().into_iter();
        let mut lines = Lines::default();
        for text in texts {
            // `FILE, line 4: …`, and `FILE: …` of what has no place.
            let end = if text.starts_with("line ") { "," } else { ":" };
            lines.push(format_args!("warning: {}{end} {text}", self.name));
        }
        lines
    }

    /// Whether a launcher could run it, as far as the file says: a process needs a program or an image.
    ///
    /// A launcher refuses what has neither.
    ///
    /// # Errors
    /// [`StartFileError::NoProgram`].
    pub fn check_program(&self) -> Result<(), StartFileError> {
        let start = &self.start;
        let has_program = start.command.first().is_some_and(|it| !it.is_empty());
        if start.vm_type != "process" || has_program || !start.image.is_empty() {
            return Ok(());
        }
        let name = self.name.clone();
        Err(StartFileError::NoProgram { name })
    }

    /// What tells this file from others: the beginning of the SHA-256 of its contents, in hex.
    ///
    /// Eight hex digits: enough to tell versions of one set apart. Any change of the file, also of a comment, is
    /// another version.
    #[must_use]
    pub fn version(&self) -> String {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &self.bytes);
        let bytes = digest.as_ref().iter().take(4);
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }

    /// First by an edit of the text, then by writing the first document again.
    fn with_instance(&self, instance_uuid: String) -> Result<StartRequest, StartFileError> {
        let wanted = Start {
            instance_uuid: instance_uuid.clone(),
            ..self.start.clone()
        };
        // The text was edited without parsing it: only what reads back as meant is sent.
        let is_meant = |payload: &Bytes| Start::decode(payload).is_ok_and(|read| read == wanted);
        let payload = edit::set(&self.bytes, &["start", "instance_uuid"], &instance_uuid)
            .filter(is_meant)
            .or_else(|| named_anew(&self.bytes, &instance_uuid).filter(is_meant))
            .ok_or_else(|| StartFileError::NoPlace {
                name: self.name.clone(),
            })?;
        Ok(StartRequest {
            name: self.name.clone(),
            instance_uuid,
            payload,
        })
    }
}

/// Whether what stands under `start` of the first document is nothing.
///
/// A file without `start` decodes to a default START, which would be sent as one.
fn is_empty(payload: &Bytes) -> bool {
    let document = first_document(payload, SMALL).unwrap_or_default();
    let root: Result<serde_yaml::Value, _> = serde_yaml::from_slice(document);
    root.is_ok_and(|root| root.get("start").is_none_or(serde_yaml::Value::is_null))
}

/// The payload with its first document written again from what is in it, as this instance's; the others as they are.
fn named_anew(payload: &Bytes, instance_uuid: &str) -> Option<Bytes> {
    let document = first_document(payload, SMALL).ok()?;
    let mut root: serde_yaml::Value = serde_yaml::from_slice(document).ok()?;
    let start = root.get_mut("start")?.as_mapping_mut()?;
    start.insert("instance_uuid".into(), instance_uuid.into());
    let text = serde_yaml::to_string(&root).ok()?;
    let rest = &payload[document.len()..];
    Some([b"---\n", text.as_bytes(), rest].concat().into())
}

/// How a START becomes a question about its placement.
///
/// Values that are `None` leave the START as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DryRun {
    /// How many of it are asked about; `None` leaves what the START says, or one.
    pub count: Option<u32>,
    /// How many further nodes are to be named; `None` leaves what the START says, or none.
    pub alternates: Option<u32>,
    /// The one node asked about, by UUID; `None` leaves what the START says.
    pub node_id: Option<String>,
}

impl DryRun {
    /// The payload that asks about the placement of this START instead of starting it.
    ///
    /// Where there is no safe place in its text, its first document is written again, without comments and what this
    /// program does not know of; what follows it always stays as it is.
    ///
    /// The UUID of the instance stays: the answer is recognised by it.
    ///
    /// # Errors
    /// It is no START.
    pub fn ask(&self, start: &Bytes) -> Result<Bytes, PayloadError> {
        let mut wanted = Start::decode(start)?;
        let scheduling = wanted.scheduling.get_or_insert_default();
        scheduling.dry_run = true;
        scheduling.count = self.count.or(scheduling.count);
        scheduling.alternates = self.alternates.or(scheduling.alternates);
        if let Some(node_id) = &self.node_id {
            wanted.requirements.node_id.clone_from(node_id);
        }
        let edited = self
            .edit(start)
            .filter(|edited| Start::decode(edited).is_ok_and(|read| read == wanted));
        match edited {
            Some(edited) => Ok(edited),
            None => {
                let rest = &start[first_document(start, SMALL)?.len()..];
                Ok([&wanted.encode(), rest].concat().into())
            }
        }
    }

    /// `None` if one of the keys has no safe place in the text.
    fn edit(&self, start: &Bytes) -> Option<Bytes> {
        let mut text = edit::set(start, &["start", "scheduling", "dry_run"], "true")?;
        for (key, number) in [("count", self.count), ("alternates", self.alternates)] {
            if let Some(number) = number {
                text = edit::set(&text, &["start", "scheduling", key], &number.to_string())?;
            }
        }
        if let Some(node_id) = &self.node_id {
            text = edit::set(&text, &["start", "requirements", "node_id"], node_id)?;
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests;
