//! Cells in columns: laid out, and made to fit a terminal by leaving columns out.
//!
//! A table is laid out in four steps: every cell is made printable, columns are left out until the rest fits, the last
//! column is cut if it is text and still too long, and `comfy_table` pads the cells. For example, on a
//! terminal of 24 characters a column with a rank is left out:
//!
//! ```text
//! NODE      HOST    STATUS  LOAD          NODE      HOST    STATUS
//! 4cb19522  node-a  READY      3    ──▶   4cb19522  node-a  READY
//! ```

use std::cmp::Reverse;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::ctl::units::elide;
use crate::printable::{Lines, Printable};

/// Columns of a table.
pub type Columns = &'static [Column];

/// A column of a table: made with [`Column::text`] or [`Column::amount`], and with [`Column::dropped`] on top of
/// either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The heading, in capitals. Also the least width of the column where the table has headings.
    name: &'static str,
    /// Whether it holds amounts, which are printed flush right.
    ///
    /// An amount is never cut: `12 MiB` cut from `128 MiB` would be a false figure.
    is_amount: bool,
    /// When it is left out of a table that is too wide: those of the highest number first; 0 = never.
    rank: u8,
}

impl Column {
    /// A column of text that every table has.
    ///
    /// Where it is the last one that is shown, its cells are cut to the width of the terminal.
    #[must_use]
    pub const fn text(name: &'static str) -> Self {
        Self {
            name,
            is_amount: false,
            rank: 0,
        }
    }

    /// A column of amounts that every table has.
    #[must_use]
    pub const fn amount(name: &'static str) -> Self {
        Self {
            is_amount: true,
            ..Self::text(name)
        }
    }

    /// The same, to be left out where there is no room: those of the highest number first.
    ///
    /// Ranks of one table differ, so that the order is unique. 0 is the rank of columns that stay.
    #[must_use]
    pub const fn dropped(self, rank: u8) -> Self {
        Self { rank, ..self }
    }
}

/// How a table is printed.
///
/// Callers make it of the options of a command and of the width of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether the first line names the columns.
    ///
    /// Without it columns are as narrow as their cells.
    pub headers: bool,
    /// Whether UUIDs are whole; else as much of each as tells them apart.
    ///
    /// Only [`super::table`] looks at it; cells that are handed to [`grid`] are complete.
    pub full_ids: bool,
    /// Characters that a line may have; `None` = any number.
    ///
    /// Characters, not columns of the terminal: characters of double width can make a line longer than that.
    pub width: Option<usize>,
}

impl Style {
    /// A table with headers and short identifiers.
    ///
    /// For tables that are part of a larger text and have no options of their own.
    #[must_use]
    pub const fn with_headers(width: Option<usize>) -> Self {
        Self {
            headers: true,
            full_ids: false,
            width,
        }
    }
}

/// Blanks between two columns.
///
/// `set_padding` in [`grid`] has the same number.
const GAP: usize = 2;

/// Fewest characters that a last column of text keeps where it is cut to fit: a few words.
const MIN_LAST: usize = 20;

/// Cells in columns, a line for each row; of a table that is too wide, columns are left out and the last is cut.
///
/// Each row must have as many cells as there are columns. No rows and no headers give no lines. Cells come from peers
/// in part: each is escaped here, so that callers need not do it.
///
/// The cost is linear in the cells, apart from the columns that are left out, each of which costs another walk over
/// the widths.
#[must_use]
pub fn grid(columns: Columns, rows: &[Vec<String>], style: Style) -> Lines {
    // Before they are laid out: a line end within a cell would begin a second line.
    let printable = |cells: &Vec<String>| cells.iter().map(Printable::new).collect();
    let rows: Vec<Vec<Printable>> = rows.iter().map(printable).collect();
    let Fit { kept, last } = fit(columns, &rows, style);
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    if style.headers {
        table.set_header(kept.iter().map(|at| columns[*at].name));
    }
    for cells in &rows {
        table.add_row(kept.iter().map(|at| match (last, kept.last()) {
            (Some(len), Some(end)) if end == at => elide(&cells[*at], len),
            _ => cells[*at].to_string(),
        }));
    }
    for (at, column) in kept.iter().map(|at| columns[*at]).enumerate() {
        let is_amount = column.is_amount;
        if let Some(column) = table.column_mut(at) {
            column.set_padding((0, 2));
            column.set_cell_alignment(if is_amount {
                CellAlignment::Right
            } else {
                CellAlignment::Left
            });
        }
    }
    table
        .lines()
        .map(|line| Printable::new(line).trimmed())
        .collect()
}

/// What of a table is shown.
struct Fit {
    /// The columns, by number.
    ///
    /// In their order in the table.
    kept: Vec<usize>,
    /// Characters that the cells of the last one may have, if not any number.
    ///
    /// `None` where the width is not limited, and where the last column shown holds amounts.
    last: Option<usize>,
}

/// Leaves out columns of a table that is too wide, and then cuts the last one if it is text.
///
/// Columns are left out in the order of their ranks, the highest first, until the rest fits with the last column cut
/// to [`MIN_LAST`]. If all that is left has rank 0 and is still too wide, the lines are longer than the terminal: it
/// wraps them, and nothing that identifies a row is lost.
fn fit(columns: Columns, rows: &[Vec<Printable>], style: Style) -> Fit {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let Some(width) = style.width else {
        return Fit { kept, last: None };
    };
    let len = |text: &str| text.chars().count();
    let len_of = |at: usize| {
        let header = if style.headers {
            len(columns[at].name)
        } else {
            0
        };
        let cells = rows.iter().map(|cells| len(&cells[at]));
        cells.fold(header, usize::max)
    };
    // The width of each column is that of its longest cell or of its heading.
    let lens: Vec<usize> = (0..columns.len()).map(len_of).collect();
    // Of a last column that can be cut, as much as it keeps in any case.
    let least = |kept: &[usize]| {
        let shown = kept.iter().enumerate().map(|(nth, &at)| {
            let is_last = nth + 1 == kept.len() && !columns[at].is_amount;
            lens[at].min(if is_last { MIN_LAST } else { usize::MAX })
        });
        shown.sum::<usize>() + GAP * kept.len().saturating_sub(1)
    };
    while least(&kept) > width {
        let ranked = kept.iter().copied().filter(|at| columns[*at].rank > 0);
        let Some(out) = ranked.min_by_key(|at| Reverse(columns[*at].rank)) else {
            break;
        };
        kept.retain(|at| *at != out);
    }
    let last = kept.last().filter(|at| !columns[**at].is_amount);
    let last = last.map(|at| {
        let others: usize = kept.iter().map(|at| lens[*at] + GAP).sum();
        // The sign that something is missing is a character too.
        let room = width.saturating_sub(others - lens[*at] - GAP);
        if lens[*at] <= room {
            usize::MAX
        } else {
            room.max(MIN_LAST) - 1
        }
    });
    Fit { kept, last }
}
