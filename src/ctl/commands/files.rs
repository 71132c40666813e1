//! START files as commands read them: with a warning for all that does not do what it seems to, and no process without
//! a program.

use std::path::Path;

use crate::ctl::args::StrictArgs;
use crate::ctl::commands::CommandError;
use crate::ctl::output::Output;
use crate::ctl::start_file::{StartFile, StartFileError};

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
