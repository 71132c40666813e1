//! Rows that show what other rows show, in other columns: all else about them is the other row's.

use serde_json::Value;

use super::{Columns, Row};

/// Another form of a row: the same thing in other columns.
pub(super) trait Form {
    /// What it shows.
    type Of: Row;
    /// As [`Row::COLUMNS`].
    const COLUMNS: Columns;

    /// The row that has all but the columns.
    fn row(&self) -> &Self::Of;
    /// As [`Row::cells`].
    fn cells(&self, id: &dyn Fn(&str) -> String) -> Vec<String>;
}

impl<F: Form> Row for F {
    const LIST: &'static str = F::Of::LIST;
    const COLUMNS: Columns = F::COLUMNS;

    fn id(&self) -> &str {
        self.row().id()
    }

    fn name(&self) -> &str {
        self.row().name()
    }

    fn other_id(&self) -> Option<&str> {
        self.row().other_id()
    }

    fn cells(&self, id: &dyn Fn(&str) -> String) -> Vec<String> {
        Form::cells(self, id)
    }

    fn json(&self) -> Value {
        self.row().json()
    }
}
