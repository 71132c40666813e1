//! START files as commands read them: with a warning for all that does not do what it seems to, and no process without
//! a program.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use proto_frames::limits::MAX_PAYLOAD_LEN;

use crate::ctl::args::StrictArgs;
use crate::ctl::commands::CommandError;
use crate::ctl::output::Output;
use crate::ctl::start_file::{StartFile, StartFileError};

/// The bytes of a file; `-` is the standard input. No more than one frame can carry.
///
/// # Errors
/// The system's, or that it is longer.
pub(super) fn bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = MAX_PAYLOAD_LEN as u64;
    match path.as_os_str() == "-" {
        true => std::io::stdin()
            .lock()
            .take(most + 1)
            .read_to_end(&mut bytes)?,
        false => File::open(path)?.take(most + 1).read_to_end(&mut bytes)?,
    };
    match bytes.len() as u64 > most {
        true => Err(std::io::Error::other(format!(
            "longer than {most} bytes, which is the most that one frame carries"
        ))),
        false => Ok(bytes),
    }
}

/// Reads a START file, and warns of what in it does not do what it seems to.
///
/// # Errors
/// [`CommandError::StartFile`]: it cannot be used, names no program, or with `--strict` has something to warn of.
pub(super) fn read(
    path: &Path,
    strict: StrictArgs,
    out: &mut Output<'_>,
) -> Result<StartFile, CommandError> {
    let file = StartFile::read(path)?;
    let warnings = file.warnings();
    if strict.strict && !warnings.is_empty() {
        let name = file.name().to_owned();
        return Err(StartFileError::Doubtful { name, warnings }.into());
    }
    for warning in file.warning_lines().iter() {
        out.remark(warning)?;
    }
    // Last: that a program is missing may come of a misspelt key.
    file.check_program()?;
    Ok(file)
}
