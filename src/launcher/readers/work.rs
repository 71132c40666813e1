//! Files of the working directory of a run that is over, a chunk at a time. A workload can make anything of them: no link
//! is followed, nothing outside of the directory is opened, and nothing that could block.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use proto_frames::payload::output::MAX_OUTPUT_CHUNK;
use proto_frames::payload::{OutputChunk, OutputFailure, OutputPart, ReadOutput};
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use rustix::io::Errno;

use super::super::files::careful;
use crate::file_list::{FileEntry, FileKind};

/// Entries of one directory that are listed. Their names are read and sorted for each chunk of the list, so that reading a
/// list of many costs by their square: some ten seconds of work for so many.
const MAX_LISTED: usize = 100_000;

/// What a request asks for of this working directory; every error becomes an answer.
pub(super) fn chunk(work: &Path, request: &ReadOutput) -> OutputChunk {
    let read = open(work, &request.file).and_then(|(file, stat)| {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => read_file(file, &stat, request),
            FileType::Directory => list(&file, request),
            _ => Err(Refused::new(OutputFailure::NoFile, "it is no plain file")),
        }
    });
    read.unwrap_or_else(|refused| {
        let part = request.fail(refused.failure, refused.detail);
        OutputChunk::new(part, Bytes::new())
    })
}

/// Why there is no chunk.
struct Refused {
    failure: OutputFailure,
    detail: String,
}

impl Refused {
    fn new(failure: OutputFailure, detail: impl Into<String>) -> Self {
        Self {
            failure,
            detail: detail.into(),
        }
    }
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::NOTDIR => Self::new(
                OutputFailure::NoFile,
                "there is no such file in its working directory",
            ),
            // With these a path is refused that a link is part of, or that leads out of the directory.
            Errno::LOOP | Errno::XDEV => Self::new(
                OutputFailure::NoFile,
                "it is a symbolic link or outside of the working directory, and is not followed",
            ),
            error => Self::new(OutputFailure::Failed, format!("cannot be read: {error}")),
        }
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::new(OutputFailure::Failed, format!("cannot be read: {error}"))
    }
}

/// Opens a file or directory beneath the working directory.
fn open(work: &Path, path: &str) -> Result<(OwnedFd, Stat), Refused> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::RDONLY;
    let work = rustix::fs::open(work, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT => Refused::new(
            OutputFailure::NotKept,
            "its working directory is not on its node: it had one of its own (working_dir), or there was no space to keep it",
        ),
        error => error.into(),
    })?;
    let flags = OFlags::RDONLY | OFlags::from_bits_retain(careful().cast_unsigned());
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let file = openat2(&work, path, flags, Mode::empty(), resolve)?;
    let stat = fstat(&file)?;
    Ok((file, stat))
}

fn part_of(request: &ReadOutput) -> OutputPart {
    OutputPart {
        id: request.id,
        read: request.read,
        instance_uuid: request.instance_uuid.clone(),
        file: request.file.clone(),
        ..OutputPart::default()
    }
}

fn read_file(file: OwnedFd, stat: &Stat, request: &ReadOutput) -> Result<OutputChunk, Refused> {
    let (file, total) = (File::from(file), u64::try_from(stat.st_size).unwrap_or(0));
    let offset = request.offset.unwrap_or(0);
    let mut data = vec![0; MAX_OUTPUT_CHUNK];
    let mut len = 0;
    while len < data.len() {
        match file.read_at(&mut data[len..], offset.saturating_add(len as u64)) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    data.truncate(len);
    let end = offset.saturating_add(len as u64);
    let part = OutputPart {
        offset,
        total,
        ended: len < MAX_OUTPUT_CHUNK || end >= total,
        ..part_of(request)
    };
    Ok(OutputChunk::new(part, data.into()))
}

/// The entries behind the name that is asked for, as many as fit into a chunk.
fn list(directory: &OwnedFd, request: &ReadOutput) -> Result<OutputChunk, Refused> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if names.len() >= MAX_LISTED {
            let detail = format!(
                "the directory has more than {MAX_LISTED} entries: pack them on the node, as with tar"
            );
            return Err(Refused::new(OutputFailure::Failed, detail));
        }
        names.push(name.to_owned());
    }
    names.sort_unstable();
    let first = names.partition_point(|name| name.to_bytes() <= request.after.as_bytes());
    let mut part = OutputPart {
        ended: true,
        ..part_of(request)
    };
    let mut text = String::new();
    for name in &names[first..] {
        let Ok(stat) = rustix::fs::statat(directory, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        else {
            // It was deleted meanwhile, which a run that is over does not do itself.
            continue;
        };
        let line = entry_of(name.to_bytes(), &stat).line();
        if text.len() + line.len() > MAX_OUTPUT_CHUNK {
            part.ended = false;
            break;
        }
        text.push_str(&line);
    }
    Ok(OutputChunk::new(part, text.into_bytes().into()))
}

fn entry_of(name: &[u8], stat: &Stat) -> FileEntry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        _ if std::str::from_utf8(name).is_err() => FileKind::Special,
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Special,
    };
    let is_file = kind == FileKind::File;
    FileEntry {
        name: String::from_utf8_lossy(name).into_owned(),
        kind,
        bytes: if is_file {
            u64::try_from(stat.st_size).unwrap_or(0)
        } else {
            0
        },
        modified_ms: ms_of(stat),
    }
}

/// When a file was changed last, milliseconds of Unix time.
fn ms_of(stat: &Stat) -> i64 {
    let ms = i64::try_from(stat.st_mtime_nsec / 1_000_000).unwrap_or(0);
    stat.st_mtime.saturating_mul(1000).saturating_add(ms)
}
