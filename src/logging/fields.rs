//! How the fields of a log event are written: `event` first, then the sentence, then the others as `name=value`.
//!
//! The sentence is where it always was for those who read a line to its end, as for `listens on ADDRESS`.
//!
//! ```text
//! warn!(event = "peer_refused", uuid = %uuid, "refused AGENT …")
//! event=peer_refused refused AGENT … uuid=4cb19522-…
//! ```

use std::fmt::{self, Debug, Write as _};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

/// The field that says which event a line is of.
const EVENT: &str = "event";

/// The field that `tracing` gives the sentence.
const MESSAGE: &str = "message";

/// Writes fields in this order. For `tracing-subscriber`'s `fmt_fields`, for files and standard error alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventFirst;

/// The fields of one event, as text.
#[derive(Debug, Default)]
struct Seen {
    /// The value of `event`, without quotes.
    event: String,
    message: String,
    /// All other fields as `name=value`, in the order in which they were given, with blanks between.
    others: String,
}

impl<'writer> FormatFields<'writer> for EventFirst {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut seen = Seen::default();
        fields.record(&mut seen);
        if !seen.event.is_empty() {
            write!(writer, "{EVENT}={}", seen.event)?;
        }
        let parts = [seen.message, seen.others];
        let mut is_first = seen.event.is_empty();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            if !std::mem::take(&mut is_first) {
                writer.write_char(' ')?;
            }
            writer.write_str(part)?;
        }
        Ok(())
    }
}

impl Visit for Seen {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            EVENT => value.clone_into(&mut self.event),
            MESSAGE => value.clone_into(&mut self.message),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            EVENT => write!(self.event, "{value:?}"),
            MESSAGE => write!(self.message, "{value:?}"),
            name => {
                let blank = if self.others.is_empty() { "" } else { " " };
                write!(self.others, "{blank}{name}={value:?}")
            }
        };
    }
}
