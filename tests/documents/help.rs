//! What `--help` of the built programs says, read back from clap's text: commands, flags by heading, the text after them.

use std::process::Command;

/// How far flags and arguments are indented at most; their descriptions stand further in.
const FLAG_INDENT: usize = 6;

/// A page of help.
pub(crate) struct Help {
    /// What the program or command is for: the lines before the usage.
    pub(crate) about: Vec<String>,
    /// Usage, one line each.
    pub(crate) usage: Vec<String>,
    /// Names of the commands that it has.
    pub(crate) commands: Vec<(String, String)>,
    /// Flags and arguments in the order of the help.
    pub(crate) flags: Vec<Flag>,
    /// What follows them: examples, exit codes.
    pub(crate) after: Vec<String>,
}

/// A flag or an argument.
#[derive(Debug)]
pub(crate) struct Flag {
    /// The heading that it stands under.
    pub(crate) heading: String,
    /// As the help shows it: `-q, --quiet`, `--cert <FILE>`, `<FILE>...`.
    pub(crate) name: String,
    /// What it does, with possible values and the environment variable.
    pub(crate) description: String,
    pub(crate) default: Option<String>,
}

impl Help {
    /// Asks a program for the help of one of its commands; none for the program itself.
    pub(crate) fn ask(program: &str, command: &[&str]) -> Self {
        let output = Command::new(program)
            .args(command)
            .arg("--help")
            // So wide that nothing is wrapped.
            .env("COLUMNS", "20000")
            .output()
            .unwrap();
        assert!(output.status.success(), "{program} {command:?} --help");
        Self::read(&String::from_utf8(output.stdout).unwrap())
    }

    fn read(text: &str) -> Self {
        let mut help = Self {
            about: Vec::new(),
            usage: Vec::new(),
            commands: Vec::new(),
            flags: Vec::new(),
            after: Vec::new(),
        };
        let lines: Vec<&str> = text.lines().collect();
        let mut heading = String::new();
        let mut at = 0;
        while at < lines.len() {
            let line = lines[at];
            let content = line.trim();
            let indent = line.len() - line.trim_start().len();
            if let Some(usage) = line.strip_prefix("Usage: ") {
                help.usage.push(usage.to_owned());
                heading = "Usage".into();
            } else if heading.is_empty() {
                help.about.push(line.to_owned());
            } else if content.is_empty() {
            } else if indent == 0 && !begins_flags(&lines[at..]) {
                help.after = lines[at..].iter().map(|&line| line.to_owned()).collect();
                break;
            } else if indent == 0 {
                heading = line.trim_end_matches(':').to_owned();
            } else if heading == "Usage" {
                help.usage.push(content.to_owned());
            } else if heading == "Commands" {
                let (name, about) = content.split_once(' ').unwrap_or((content, ""));
                help.commands.push((name.into(), about.trim().into()));
            } else if indent <= FLAG_INDENT {
                let (name, words) = content.split_once("  ").unwrap_or((content, ""));
                // An argument that is declared last stands below the last heading of flags.
                let is_argument = name.starts_with(['<', '[']);
                let heading = if is_argument { "Arguments" } else { &heading };
                help.flags.push(Flag {
                    heading: heading.to_owned(),
                    name: name.into(),
                    description: words.trim().into(),
                    default: None,
                });
            } else {
                let flag = help.flags.last_mut().expect("a description has its flag");
                flag.description.push('\n');
                flag.description.push_str(content);
            }
            at += 1;
        }
        for flag in &mut help.flags {
            flag.settle();
        }
        let is_own = |flag: &Flag| !["-h, --help", "-V, --version"].contains(&&*flag.name);
        help.flags.retain(is_own);
        help.flags.sort_by_key(|flag| flag.heading != "Arguments");
        help.commands.retain(|(name, _)| name != "help");
        help
    }
}

/// Whether a heading is one of flags, arguments or commands: what stands under it is.
fn begins_flags(lines: &[&str]) -> bool {
    let next = lines.iter().skip(1).find(|line| !line.trim().is_empty());
    let is_flag = next.is_some_and(|line| line.trim_start().starts_with(['-', '<', '[']));
    lines[0].ends_with(':') && (is_flag || lines[0] == "Commands:")
}

impl Flag {
    /// Takes default, environment and possible values out of the lines of the description, and joins these.
    fn settle(&mut self) {
        let mut text = String::new();
        let mut values = Vec::new();
        let mut notes = Vec::new();
        for line in self.description.lines() {
            if line == "Possible values:" {
            } else if let Some(value) = line.strip_prefix("- ") {
                let (name, means) = value.split_once(':').unwrap_or((value, ""));
                values.push(format!("`{name}` ({})", means.trim()));
            } else {
                text.push_str(line);
                text.push(' ');
            }
        }
        while let Some((rest, note)) = last_note(&text) {
            if let Some(default) = note.strip_prefix("default: ") {
                self.default = Some(default.to_owned());
            } else if let Some(variable) = note.strip_prefix("env: ") {
                notes.push(format!("Environment: `{variable}`"));
            } else if let Some(listed) = note.strip_prefix("possible values: ") {
                values.extend(listed.split(", ").map(|value| format!("`{value}`")));
            }
            text = rest;
        }
        let mut sentences = vec![text.trim().trim_end_matches('.').to_owned()];
        if !values.is_empty() {
            sentences.push(format!("Values: {}", values.join(", ")));
        }
        sentences.extend(notes);
        sentences.retain(|it| !it.is_empty());
        self.description = sentences.join(". ");
    }
}

/// The note in brackets that a description ends with, and what stands before it.
fn last_note(text: &str) -> Option<(String, String)> {
    let (rest, note) = text.trim_end().strip_suffix(']')?.rsplit_once('[')?;
    let known = ["default: ", "env: ", "possible values: "];
    let is_note = known.iter().any(|known| note.starts_with(known));
    is_note.then(|| (rest.to_owned(), note.to_owned()))
}
