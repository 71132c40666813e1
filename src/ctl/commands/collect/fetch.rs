//! What is fetched of one instance, request by request; where it is put, and what of it is there already.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use proto_frames::payload::output::MAX_PATH_LEN;
use proto_frames::payload::{EndedRun, OutputChunk, OutputFailure, OutputStream, ReadOutput};
use serde_json::{Value, json};

use crate::ctl::commands::ends::json_of;
use crate::file_list::{FileEntry, FileKind};

/// Names of what is left out that `end.json` lists.
const MAX_NAMED: usize = 100;

/// How one answer was taken.
pub(super) enum Taken {
    /// There is more, or it is done.
    GoOn,
    /// Nothing more of this instance is fetched, and why.
    Failed(String),
}

/// One instance.
pub(super) struct Fetch {
    row: EndedRun,
    dir: PathBuf,
    /// What is still to be fetched, the next last.
    todo: Vec<Task>,
    /// The file that is being written, and how much of it is.
    part: Option<(File, u64)>,
    /// Where the first byte of that is among all that the run wrote.
    base: u64,
    /// Behind which name a list goes on.
    after: String,
    /// Which run of it on its node that is; 0 before it is known.
    run: u64,
    bytes: u64,
    has_output: bool,
    has_files: bool,
    wants_files: bool,
    /// Bytes of the output that its node did not keep.
    skipped: u64,
    /// Links, devices and the like, and names that are no text.
    left_out: Vec<String>,
    left_out_count: u64,
    /// Why the working directory is not there, if it cannot be had.
    no_files: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Task {
    /// Both streams in one, or the first of them: the answer says which.
    Output,
    /// Standard error, where it is apart.
    Errors,
    /// A directory, by its path in the working directory.
    List(String),
    File(String, FileEntry),
}

impl Fetch {
    /// Looks at what is there of it.
    ///
    /// # Errors
    /// A directory cannot be made.
    pub(super) fn new(root: &Path, row: EndedRun, wants_files: bool) -> io::Result<Self> {
        let dir = root.join(directory_name(&row));
        fs::create_dir_all(&dir)?;
        let done = fs::read(dir.join("end.json")).ok();
        let done: Option<Value> = done.and_then(|text| serde_json::from_slice(&text).ok());
        let is_of_it =
            |done: &Value| done["number"] == row.number && done["ended_at_ms"] == row.ended_at_ms;
        let done = done.filter(is_of_it).unwrap_or_default();
        let has = |what: &str| done["collected"][what] == true;
        let (has_output, has_files) = (has("output"), has("files"));
        let mut todo = Vec::new();
        if wants_files && !has_files {
            todo.push(Task::List(".".to_owned()));
        }
        if !has_output {
            todo.push(Task::Output);
        }
        Ok(Self {
            dir,
            todo,
            part: None,
            base: 0,
            after: String::new(),
            run: 0,
            bytes: 0,
            has_output,
            has_files,
            wants_files,
            skipped: match has_output {
                true => done["collected"]["skipped"].as_u64().unwrap_or(0),
                false => 0,
            },
            left_out: Vec::new(),
            left_out_count: 0,
            no_files: None,
            row,
        })
    }

    /// Whether all of it is there.
    pub(super) fn is_done(&self) -> bool {
        self.todo.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn into_row(self) -> EndedRun {
        self.row
    }

    /// What is to be said of what was collected.
    pub(super) fn remark(&self) -> Option<String> {
        if let Some(why) = &self.no_files {
            return Some(format!("not its working directory: {why}"));
        }
        (self.left_out_count > 0).then(|| {
            format!(
                "{} of its working directory left out that are no plain files (links, devices and the like; end.json names \
                 them)",
                self.left_out_count
            )
        })
    }

    /// The next request; `None` once all is there, which is noted then.
    ///
    /// # Errors
    /// Something cannot be written here.
    pub(super) fn next(&mut self) -> io::Result<Option<ReadOutput>> {
        let Some(task) = self.todo.last() else {
            self.has_files |= self.wants_files && self.no_files.is_none();
            self.note()?;
            return Ok(None);
        };
        let offset = self.part.as_ref().map(|(_, written)| *written);
        let mut request = ReadOutput {
            instance_uuid: self.row.instance_uuid.clone(),
            run: self.run,
            ..ReadOutput::default()
        };
        match task {
            Task::Output => request.offset = offset.map(|written| self.base + written),
            Task::Errors => {
                request.stream = OutputStream::Stderr;
                request.offset = offset.map(|written| self.base + written);
            }
            Task::List(path) => {
                request.file.clone_from(path);
                request.after.clone_from(&self.after);
            }
            Task::File(path, _) => {
                request.file.clone_from(path);
                request.offset = offset;
            }
        }
        Ok(Some(request))
    }

    /// Takes the answer to the latest request.
    ///
    /// # Errors
    /// Something cannot be written here.
    pub(super) fn take(&mut self, chunk: &OutputChunk) -> io::Result<Taken> {
        let part = &chunk.part;
        let Some(task) = self.todo.last().cloned() else {
            return Ok(Taken::GoOn);
        };
        if part.is_failure() {
            return self.take_failure(&task, &part.failure, &part.detail);
        }
        let is_answer = match &task {
            Task::Output => part.file.is_empty() && part.stream.as_str().is_empty(),
            Task::Errors => part.stream == OutputStream::Stderr,
            Task::List(path) | Task::File(path, _) => part.file == *path,
        };
        if !is_answer {
            let why =
                "the scheduler or its launcher is of an earlier version, which serves no files";
            return Ok(Taken::Failed(why.to_owned()));
        }
        if self.run != 0 && part.run != self.run {
            return Ok(Taken::Failed(
                "another run of it has begun meanwhile".to_owned(),
            ));
        }
        self.run = part.run;
        match task {
            Task::Output | Task::Errors => self.take_output(&task, chunk),
            Task::List(path) => self.take_list(&path, chunk),
            Task::File(path, entry) => self.take_file(&path, &entry, chunk),
        }
    }

    /// That there is no working directory leaves the output collected.
    fn take_failure(
        &mut self,
        task: &Task,
        failure: &OutputFailure,
        detail: &str,
    ) -> io::Result<Taken> {
        let is_whole = matches!(task, Task::List(path) if path == ".");
        let is_gone = matches!(failure, OutputFailure::NotKept | OutputFailure::NoFile);
        if is_whole && is_gone {
            self.todo.clear();
            self.no_files = Some(detail.to_owned());
            return Ok(Taken::GoOn);
        }
        let what = match task {
            Task::List(path) | Task::File(path, _) if path != "." => format!("{path}: "),
            _ => String::new(),
        };
        Ok(Taken::Failed(format!("{what}{detail}")))
    }

    fn take_output(&mut self, task: &Task, chunk: &OutputChunk) -> io::Result<Taken> {
        let part = &chunk.part;
        let name = match task {
            Task::Errors => "stderr",
            _ if part.split => "stdout",
            _ => "output",
        };
        if part.truncated {
            return Ok(Taken::Failed(
                "its output was cut while it was read".to_owned(),
            ));
        }
        if self.part.is_none() {
            self.base = part.offset;
            self.skipped += part.offset;
        } else if part.skipped > 0 {
            return Ok(Taken::Failed(
                "its node has deleted some of its output meanwhile".to_owned(),
            ));
        }
        self.write(name, &chunk.data)?;
        if !part.ended {
            let is_all = part.end() >= part.total;
            // What runs has no end to wait for.
            return Ok(match is_all {
                true => Taken::Failed("it runs again: collect it once it has ended".to_owned()),
                false => Taken::GoOn,
            });
        }
        self.finish(name, &self.dir.join(name), None)?;
        self.todo.pop();
        if *task == Task::Output && part.split {
            self.todo.push(Task::Errors);
        } else {
            self.has_output = true;
            self.note()?;
        }
        Ok(Taken::GoOn)
    }

    fn take_list(&mut self, path: &str, chunk: &OutputChunk) -> io::Result<Taken> {
        let entries = match FileEntry::of_lines(&chunk.data) {
            Ok(entries) => entries,
            Err(error) => {
                return Ok(Taken::Failed(format!(
                    "{path}: the list cannot be read: {error}"
                )));
            }
        };
        fs::create_dir_all(self.place_of(path))?;
        let list = self.todo.pop();
        let last = entries.last().map(|entry| entry.name.clone());
        if !chunk.part.ended {
            let Some(last) = last.filter(|last| *last > self.after) else {
                return Ok(Taken::Failed(format!("{path}: its list has no end")));
            };
            // Below what it holds, which is fetched first.
            self.todo.extend(list);
            self.after = last;
            return Ok(self.sort_in(path, entries, 1));
        }
        self.after.clear();
        Ok(self.sort_in(path, entries, 0))
    }

    /// What is to be done about the entries of a directory, of which the task stays that many from the end.
    fn sort_in(&mut self, path: &str, entries: Vec<FileEntry>, above: usize) -> Taken {
        let at = self.todo.len() - above;
        let mut tasks = Vec::new();
        for entry in entries {
            let path = match path {
                "." => entry.name.clone(),
                path => format!("{path}/{}", entry.name),
            };
            let is_plain = is_plain_name(&entry.name) && path.len() <= MAX_PATH_LEN;
            match entry.kind {
                FileKind::File if is_plain => {
                    if !is_whole(&self.place_of(&path), &entry) {
                        tasks.push(Task::File(path, entry));
                    }
                }
                FileKind::Directory if is_plain => tasks.push(Task::List(path)),
                _ => {
                    self.left_out_count += 1;
                    if self.left_out.len() < MAX_NAMED {
                        self.left_out.push(path);
                    }
                }
            }
        }
        // A list that goes on is asked for before what it holds, so that its place is not lost.
        self.todo.splice(at..at, tasks);
        Taken::GoOn
    }

    fn take_file(
        &mut self,
        path: &str,
        entry: &FileEntry,
        chunk: &OutputChunk,
    ) -> io::Result<Taken> {
        self.write("file", &chunk.data)?;
        if !chunk.part.ended {
            return Ok(match chunk.data.is_empty() {
                true => Taken::Failed(format!("{path}: it has no end")),
                false => Taken::GoOn,
            });
        }
        let written = self.part.as_ref().map_or(0, |(_, written)| *written);
        if written != chunk.part.total {
            let why = format!(
                "{path}: it has {} bytes, and {written} came",
                chunk.part.total
            );
            return Ok(Taken::Failed(why));
        }
        let modified = u64::try_from(entry.modified_ms).ok();
        let modified = modified.map(|ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
        self.finish("file", &self.place_of(path), modified)?;
        self.todo.pop();
        Ok(Taken::GoOn)
    }

    /// Where a file of the working directory is put.
    fn place_of(&self, path: &str) -> PathBuf {
        match path {
            "." => self.dir.join("files"),
            path => self.dir.join("files").join(path),
        }
    }

    /// Adds to the file that is being fetched, which is made with the first bytes.
    fn write(&mut self, name: &str, data: &[u8]) -> io::Result<()> {
        if self.part.is_none() {
            self.part = Some((File::create(self.part_path(name))?, 0));
        }
        if let Some((file, written)) = &mut self.part {
            *written += io::copy(&mut &*data, file)?;
        }
        self.bytes += data.len() as u64;
        Ok(())
    }

    /// Gives the file that was fetched its name.
    fn finish(&mut self, name: &str, place: &Path, modified: Option<SystemTime>) -> io::Result<()> {
        if let (Some((file, _)), Some(modified)) = (self.part.take(), modified) {
            file.set_modified(modified)?;
        }
        fs::rename(self.part_path(name), place)
    }

    fn part_path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.part"))
    }

    /// Notes what is there.
    fn note(&self) -> io::Result<()> {
        let mut end = json_of(&self.row);
        end["collected"] = json!({
            "output": self.has_output,
            "files": self.has_files,
            "skipped": self.skipped,
            "left_out": self.left_out,
        });
        let part = self.part_path("end.json");
        fs::write(&part, format!("{end:#}\n"))?;
        fs::rename(part, self.dir.join("end.json"))
    }
}

/// The name of the directory of an end.
fn directory_name(row: &EndedRun) -> String {
    let plain = |text: &str| -> String {
        let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
        let text = text.chars().map(|it| if is_plain(it) { it } else { '_' });
        text.collect()
    };
    // Neither hidden nor another directory.
    let id = plain(&row.instance_uuid);
    let mut name = match &*row.name {
        "" => format!("{}{id}", if id.starts_with('.') { "_" } else { "" }),
        name => {
            let name = plain(name);
            format!("{}.{id}", name.trim_start_matches('.'))
        }
    };
    if let Some(run) = row.run.filter(|run| *run > 1) {
        name.push_str(&format!(".{run}"));
    }
    name
}

/// Whether a name is one of a file in a directory, and nothing else.
fn is_plain_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// Whether a file is there as it is on the node.
fn is_whole(place: &Path, entry: &FileEntry) -> bool {
    let Ok(there) = fs::symlink_metadata(place) else {
        return false;
    };
    let modified = there.modified().ok();
    let modified = modified.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let modified_ms = modified.and_then(|it| i64::try_from(it.as_millis()).ok());
    there.is_file() && there.len() == entry.bytes && modified_ms == Some(entry.modified_ms)
}
