//! One chunk of what a workload wrote, read from its files. They change while they are read, and a workload can make
//! anything of them: nothing is opened that could block, and what was read counts only if the files were not cut
//! meanwhile.
//!
//! Offsets count from the first byte that the run wrote. The current file begins at the offset that the run's
//! [`OutputStart`] says, and the older file ends before it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use bytes::Bytes;
use proto_frames::payload::output::MAX_OUTPUT_CHUNK;
use proto_frames::payload::{OutputChunk, OutputFailure, OutputPart, OutputStream, ReadOutput};

use super::super::agent::InstanceRecord;
use super::super::files::{InstanceDir, OutputStart, careful, read_json};
use super::super::kept::KeepOutput;
use super::super::kept::deleted::DeletedLog;
use super::work;

/// Bytes from the end in which the last lines are looked for: where they are longer, there are fewer.
const MAX_TAIL_BYTES: u64 = 1024 * 1024;

/// Bytes read at a time while the last lines are looked for.
const TAIL_BLOCK: u64 = 16 * 1024;

/// Where instances' output is.
#[derive(Debug)]
pub(super) struct Places {
    /// The state directory.
    pub(super) root: PathBuf,
    /// How long output of ended instances is kept.
    pub(super) rule: KeepOutput,
}

/// What came of one look at the files.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, moved to who sends it and no further"
)]
pub(super) enum OutputRead {
    /// A chunk, or why there is none.
    Chunk(OutputChunk),
    /// The files were being cut: look again.
    Changing,
}

/// The files of one run.
#[derive(Debug)]
struct Run {
    dir: InstanceDir,
    current: File,
    /// Names this run among those of its instance on this node.
    number: u64,
    /// Whether nothing is written to them any more.
    is_over: bool,
}

/// Which bytes of a run are in which file, at one moment.
///
/// ```text
/// offset 0        older_from      older_to = from, as a rule       to
///   |  not kept  |   older output  |        current output         |
/// ```
#[derive(Debug)]
struct Layout {
    /// The note of the supervisor that cuts the files, as it was read.
    start: OutputStart,
    /// Whether the current file has been cut, and that is not noted.
    is_cut: bool,
    /// The older output, if it is the one that the note names.
    older: Option<File>,
    /// Where the older file begins, ends, and where the current one begins and ends.
    older_from: u64,
    older_to: u64,
    from: u64,
    to: u64,
}

impl Places {
    /// The chunk that a request asks for; every error becomes an answer.
    pub(super) fn read(&self, request: &ReadOutput) -> OutputRead {
        let found = self.run(request).and_then(|run| match run {
            Some(run) if !request.file.is_empty() => Ok(run.file(request)),
            Some(run) => run.of_stream(request),
            None => Ok(self.nothing(request)),
        });
        found.unwrap_or_else(|error| {
            let part = request.fail(OutputFailure::Failed, format!("cannot be read: {error}"));
            OutputRead::Chunk(OutputChunk::new(part, Bytes::new()))
        })
    }

    /// The run of an instance that is asked for by number, or its latest: first in the instance's own directory, then
    /// in what is kept, the latest first. `None` if it has no output or is not kept.
    fn run(&self, request: &ReadOutput) -> io::Result<Option<Run>> {
        let id = &request.instance_uuid;
        let here = InstanceDir(self.root.join("instances").join(id));
        for (dir, is_kept) in [(here, false)]
            .into_iter()
            .chain(self.kept(id).into_iter().map(|dir| (dir, true)))
        {
            // Before the file is looked at: what it holds then is all that there will be.
            let exists = |path: PathBuf| fs::symlink_metadata(path).is_ok();
            let is_over = is_kept || exists(dir.ended()) || exists(dir.over());
            let Some(current) = open(dir.output())? else {
                continue;
            };
            let number = current.metadata()?.ino();
            if request.run == 0 || request.run == number {
                return Ok(Some(Run {
                    dir,
                    current,
                    number,
                    is_over,
                }));
            }
        }
        Ok(None)
    }

    /// What is kept of an instance, the latest run first.
    fn kept(&self, id: &str) -> Vec<InstanceDir> {
        let entries = fs::read_dir(self.root.join("kept")).into_iter().flatten();
        let number = |path: PathBuf| {
            let (other, number) = path.file_name()?.to_str()?.rsplit_once('.')?;
            let number = number.parse::<u64>().ok().filter(|_| other == id)?;
            Some((number, path))
        };
        let mut all: Vec<_> = entries
            .flatten()
            .filter_map(|entry| number(entry.path()))
            .collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.into_iter().map(|(_, path)| InstanceDir(path)).collect()
    }

    /// The answer where there is no output: an empty chunk for an instance that runs and has not written, otherwise
    /// `NotKept`, with what became of it.
    fn nothing(&self, request: &ReadOutput) -> OutputRead {
        let id = &request.instance_uuid;
        let dir = InstanceDir(self.root.join("instances").join(id));
        let part = if request.run == 0 && request.file.is_empty() && may_write(&dir) {
            // It is there and has not begun to write.
            OutputPart {
                id: request.id,
                read: request.read,
                instance_uuid: id.clone(),
                stream: request.stream.clone(),
                ..OutputPart::default()
            }
        } else {
            let detail = DeletedLog::of(&self.root)
                .what_of(id)
                .unwrap_or_else(|| self.without_note());
            request.fail(OutputFailure::NotKept, detail)
        };
        OutputRead::Chunk(OutputChunk::new(part, Bytes::new()))
    }

    /// What is to be said of output that is not there, and of whose deletion nothing is noted.
    fn without_note(&self) -> String {
        let age = humantime::format_duration(self.rule.age);
        let mib = self.rule.bytes / (1024 * 1024);
        format!(
            "none of its output is on its node, and the launcher has not noted that it deleted any: its files were \
             removed by others, or it wrote nothing, or that was longer ago than the launcher remembers; output of ended \
             instances is kept there for {age} and {mib} MiB of all together"
        )
    }
}

/// Whether an instance is there and has not ended. What is left of one whose output was deleted is its record.
fn may_write(dir: &InstanceDir) -> bool {
    let exists = |path: PathBuf| fs::symlink_metadata(path).is_ok();
    if exists(dir.ended()) || exists(dir.over()) {
        return false;
    }
    match read_json::<InstanceRecord>(&dir.record()) {
        Ok(record) => record.is_some_and(|record| !record.has_ended()),
        // One that cannot be read says as little as it did before.
        Err(_) => true,
    }
}

impl Run {
    /// One chunk of the stream that the request names. Of a run that has its streams apart, standard output is where both are
    /// of others.
    fn of_stream(mut self, request: &ReadOutput) -> io::Result<OutputRead> {
        let errors_dir = self.dir.stderr();
        let errors = open(errors_dir.output())?;
        let is_split = errors.is_some();
        match (&request.stream, errors) {
            (OutputStream::Stderr, Some(errors)) => {
                (self.dir, self.current) = (errors_dir, errors);
            }
            (OutputStream::Stdout, Some(_)) => {}
            (other, _) if other.as_str().is_empty() => {}
            (OutputStream::Stdout | OutputStream::Stderr, None) => {
                let detail = "its START did not have its standard output and standard error kept apart (--split-output)";
                return Ok(failed(request.fail(OutputFailure::NotKept, detail)));
            }
            (other, _) => {
                let detail = format!("there is no stream '{other}'");
                return Ok(failed(request.fail(OutputFailure::Failed, detail)));
            }
        }
        let mut read = self.chunk(request)?;
        if let OutputRead::Chunk(chunk) = &mut read {
            chunk.part.split = is_split;
        }
        Ok(read)
    }

    /// A chunk of a file of the working directory, or of the list of a directory there.
    fn file(&self, request: &ReadOutput) -> OutputRead {
        if !self.is_over {
            let detail = "it is not over: files are served of what has ended";
            return failed(request.fail(OutputFailure::NotOver, detail));
        }
        let mut chunk = work::chunk(&self.dir.work(), request);
        chunk.part.run = self.number;
        OutputRead::Chunk(chunk)
    }

    /// One chunk from the offset or the last lines that the request names. `Changing` if the files were cut while it
    /// was read.
    fn chunk(&self, request: &ReadOutput) -> io::Result<OutputRead> {
        let Some(layout) = self.layout()? else {
            return Ok(OutputRead::Changing);
        };
        let mut part = OutputPart {
            id: request.id,
            read: request.read,
            instance_uuid: request.instance_uuid.clone(),
            run: self.number,
            stream: request.stream.clone(),
            total: layout.to,
            ..OutputPart::default()
        };
        let asked = match request.tail {
            Some(lines) => self.tail(&layout, lines)?,
            None => request.offset.unwrap_or_default(),
        };
        part.truncated = asked > layout.to;
        let asked = if part.truncated { layout.from } else { asked };
        part.offset = layout.kept_from(asked);
        part.skipped = part.offset - asked;
        let mut data = vec![0; MAX_OUTPUT_CHUNK];
        let len = self.read_at(&layout, part.offset, &mut data)?;
        data.truncate(len);
        // What was read while the files were cut may be of anywhere.
        if !self.is_still(&layout)? {
            return Ok(OutputRead::Changing);
        }
        let end = part.offset.saturating_add(len as u64);
        part.ended = self.is_over && end >= layout.to;
        Ok(OutputRead::Chunk(OutputChunk::new(part, data.into())))
    }

    /// Where which bytes are; `None` while that changes.
    fn layout(&self) -> io::Result<Option<Layout>> {
        let older = open(self.dir.older_output())?;
        let metadata = older.as_ref().map(File::metadata).transpose()?;
        let older_len = metadata.as_ref().map_or(0, fs::Metadata::len);
        let start = self.start(older_len);
        let len = self.current.metadata()?.len();
        // It may have been cut, and only that not be noted yet.
        let cut = start.cutting.filter(|cut| len < *cut);
        let from = start.from.saturating_add(cut.unwrap_or_default());
        let is_of_start = metadata.is_some_and(|it| start.older == 0 || it.ino() == start.older);
        let older_to = start.older_to.min(from);
        let layout = Layout {
            older_from: match is_of_start {
                true => older_to.saturating_sub(older_len),
                false => from,
            },
            older: older.filter(|_| is_of_start),
            older_to: if is_of_start { older_to } else { from },
            from,
            to: from.saturating_add(len),
            is_cut: cut.is_some(),
            start,
        };
        Ok(self.is_still(&layout)?.then_some(layout))
    }

    /// Where the current file begins.
    fn start(&self, older_len: u64) -> OutputStart {
        let start = read_json::<OutputStart>(&self.dir.output_start());
        // Of a run that was cut before that was noted, the older file is taken for all there was. A workload can put
        // anything there.
        start.ok().flatten().unwrap_or(OutputStart {
            from: older_len,
            older_to: older_len,
            older: 0,
            cutting: None,
        })
    }

    /// Whether the files are as they were.
    fn is_still(&self, layout: &Layout) -> io::Result<bool> {
        let older = fs::symlink_metadata(self.dir.older_output());
        let older_len = older.map_or(0, |it| it.len());
        let is_cut = match layout.start.cutting {
            Some(cut) => self.current.metadata()?.len() < cut,
            None => false,
        };
        Ok(is_cut == layout.is_cut && self.start(older_len) == layout.start)
    }

    /// Reads what there is from an offset on, within one of the files.
    fn read_at(&self, layout: &Layout, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let (file, at, to) = match &layout.older {
            Some(older) if offset < layout.older_to => {
                (older, offset - layout.older_from, layout.older_to)
            }
            _ => (&self.current, offset - layout.from, layout.to),
        };
        let left = usize::try_from(to - offset).unwrap_or(usize::MAX);
        let buffer_len = buffer.len().min(left);
        let mut len = 0;
        while len < buffer_len {
            match file.read_at(&mut buffer[len..buffer_len], at + len as u64) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(len)
    }

    /// The offset at which the last lines begin, found by reading backwards in blocks of [`TAIL_BLOCK`], at most
    /// [`MAX_TAIL_BYTES`] in all. A line end at the very end does not begin another line.
    fn tail(&self, layout: &Layout, lines: u64) -> io::Result<u64> {
        let first = layout.kept_from(layout.to.saturating_sub(MAX_TAIL_BYTES));
        let mut block = vec![0; TAIL_BLOCK as usize];
        if lines == 0 {
            return Ok(layout.to);
        }
        // Of a current file that was cut and is empty, the older one has the last lines, perhaps well before its
        // beginning.
        let is_empty = layout.to == layout.from && layout.older.is_some();
        let last = if is_empty { layout.older_to } else { layout.to };
        let (mut end, mut found) = (last, 0_u64);
        while end > first {
            // A block is of one file.
            let floor = if end > layout.from {
                layout.from
            } else {
                first
            };
            let begin = end.saturating_sub(TAIL_BLOCK).max(floor).max(first);
            let len = usize::try_from(end - begin).unwrap_or_default();
            let len = self.read_at(layout, begin, &mut block[..len])?;
            for at in (0..len).rev() {
                // The line's end at the very end ends the last line.
                let is_last = begin + at as u64 + 1 == last;
                if block[at] == b'\n' && !is_last {
                    found += 1;
                    if found == lines {
                        return Ok(begin + at as u64 + 1);
                    }
                }
            }
            end = if begin == layout.from && layout.older.is_some() {
                layout.older_to
            } else {
                begin
            };
        }
        Ok(first)
    }
}

impl Layout {
    /// The first offset from this one on that is kept.
    fn kept_from(&self, offset: u64) -> u64 {
        if offset < self.older_to {
            offset.max(self.older_from)
        } else {
            offset.max(self.from)
        }
    }
}

fn failed(part: OutputPart) -> OutputRead {
    OutputRead::Chunk(OutputChunk::new(part, Bytes::new()))
}

/// Opens a plain file without following what a workload may have put in its place; `None` if it is missing or of
/// another kind.
fn open(path: PathBuf) -> io::Result<Option<File>> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(careful())
        .open(path);
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(Some(file)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
