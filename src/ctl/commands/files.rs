//! START files as commands read them: with a warning for each key that means nothing there, and no process without a
//! program.

use std::path::Path;

use crate::ctl::args::StrictArgs;
use crate::ctl::commands::CommandError;
use crate::ctl::output::Output;
use crate::ctl::start_file::{StartFile, StartFileError};
use crate::printable::Printable;

/// Reads a START file, and warns of keys that mean nothing where they stand.
///
/// # Errors
/// [`CommandError::StartFile`]: it cannot be used, names no program, or with `--strict` has such keys.
pub(super) fn read(
    path: &Path,
    strict: StrictArgs,
    out: &mut Output<'_>,
) -> Result<StartFile, CommandError> {
    let file = StartFile::read(path)?;
    let keys = file.unknown_keys();
    if strict.strict && keys.count() > 0 {
        let name = file.name().to_owned();
        return Err(StartFileError::UnknownKeys { name, keys }.into());
    }
    for warning in keys.warnings(file.name()) {
        out.remark(&Printable::new(warning))?;
    }
    if let Some(warning) = file.missing_type() {
        out.remark(&Printable::new(warning))?;
    }
    // Last: that a program is missing may come of a misspelt key.
    file.check_program()?;
    Ok(file)
}
