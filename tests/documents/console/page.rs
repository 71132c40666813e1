//! A page cut into text and console blocks, and put together again.

use std::fmt;

/// A page.
pub(super) struct Page {
    parts: Vec<Part>,
}

enum Part {
    Text(String),
    Block(Block),
}

/// What stands between the fences of a console block, or in a comment for consoles.
pub(super) struct Block {
    pub(super) is_hidden: bool,
    pub(super) commands: Vec<Command>,
}

/// A command and what it prints.
pub(super) struct Command {
    /// Where it stands in the page, from 1.
    pub(super) line: usize,
    /// Its lines, without prompts.
    pub(super) text: String,
    pub(super) output: Vec<String>,
}

const FENCE: &str = "```console";
const COMMENT: &str = "<!-- console";

impl Page {
    pub(super) fn read(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut lines = text.lines().enumerate();
        while let Some((_, line)) = lines.next() {
            let end = match line {
                FENCE => "```",
                COMMENT => "-->",
                _ => {
                    parts.push(Part::Text(line.to_owned()));
                    continue;
                }
            };
            let mut commands: Vec<Command> = Vec::new();
            for (at, line) in lines.by_ref().take_while(|(_, line)| *line != end) {
                let last = commands.last_mut();
                match (line.strip_prefix("$ "), line.strip_prefix("> "), last) {
                    (Some(text), _, _) => commands.push(Command {
                        line: at + 1,
                        text: text.to_owned(),
                        output: Vec::new(),
                    }),
                    (None, Some(more), Some(last)) if last.output.is_empty() => {
                        last.text.push('\n');
                        last.text.push_str(more);
                    }
                    (None, _, Some(last)) => last.output.push(line.to_owned()),
                    (None, _, None) => panic!("line {}: output before any command", at + 1),
                }
            }
            parts.push(Part::Block(Block {
                is_hidden: line == COMMENT,
                commands,
            }));
        }
        Self { parts }
    }

    pub(super) fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        self.parts.iter_mut().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Block(block) => Some(block),
        })
    }
}

impl Block {
    /// Whether it is a terminal of its own.
    pub(super) fn begins_terminal(&self) -> bool {
        let first = self.commands.first();
        first.is_some_and(|command| command.text.starts_with("cd "))
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            let block = match part {
                Part::Text(line) => {
                    writeln!(f, "{line}")?;
                    continue;
                }
                Part::Block(block) => block,
            };
            let (begin, end) = match block.is_hidden {
                true => (COMMENT, "-->"),
                false => (FENCE, "```"),
            };
            writeln!(f, "{begin}")?;
            for command in &block.commands {
                writeln!(f, "$ {}", command.text.replace('\n', "\n> "))?;
                for line in &command.output {
                    writeln!(f, "{line}")?;
                }
            }
            writeln!(f, "{end}")?;
        }
        Ok(())
    }
}

#[test]
fn a_page_is_put_together_as_it_was() {
    let text =
        "# A\n\n```console\n$ cat <<END\n> b\n> END\nb\n$ ls\n```\n\n<!-- console\n$ c\n-->\n";
    let mut page = Page::read(text);
    let blocks: Vec<usize> = page
        .blocks_mut()
        .map(|block| block.commands.len())
        .collect();
    assert_eq!(blocks, [2, 1]);
    assert_eq!(page.to_string(), text);
}
