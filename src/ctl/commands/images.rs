//! `ciaoctl push` and `ciaoctl images`: programs that are shipped to the nodes that run them.
//!
//! The transfer itself is in [`crate::ctl::client`]. A digest is written `sha256:` with 64 hex digits; nodes announce
//! an image that they hold by the label `image.sha256_` with the first digits of it.

use std::collections::BTreeMap;
use std::time::SystemTime;

use proto_frames::payload::{Digest, ImageRow, QueryKind};
use serde_json::{Value, json};

use crate::ctl::args::{ImagesArgs, ImagesCommand, PushArgs};
use crate::ctl::client::{ImageError, PushFile};
use crate::ctl::commands::listing::{print, repeat};
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::exit::Exit;
use crate::ctl::resolve::ResolveError;
use crate::ctl::table::{Column, Columns, Row};
use crate::ctl::units::{elide, mebibytes, span};
use crate::image_file::unix_ms;
use crate::printable::Printable;

/// The prefix of a digest.
///
/// Tables and commands accept a digest with or without it.
const SCHEME: &str = "sha256:";

/// Digits of a digest that a table shows: as many as labels of nodes have.
const SHOWN: usize = 12;

/// Percent of a file between two lines that say how far its push is.
///
/// Ten lines at most for a file of any size.
const SAY_EVERY: u64 = 10;

/// Pushes a file and prints its digest.
///
/// Progress goes to standard error, and only if a person is likely to read it. Standard output has the digest alone,
/// for scripts; `sent` in JSON is less than `bytes` if an earlier push was interrupted.
///
/// # Errors
/// [`CommandError`].
pub async fn push(context: &mut Context<'_>, args: &PushArgs) -> Result<Exit, CommandError> {
    let file = PushFile::open(&args.file).await?;
    let says_progress = !args.quiet && !context.json && context.out.is_terminal();
    let mut said = 0;
    let out = &mut context.out;
    let progress = |there: u64| {
        let percent = there * 100 / file.bytes.max(1);
        if says_progress && percent >= said + SAY_EVERY && percent < 100 {
            said = percent;
            let _ = out.remark(&Printable::new(format_args!("{percent} % are there")));
        }
    };
    let pushed = context
        .client
        .push_image(&file, &args.tenant, progress)
        .await?;
    if context.json {
        context.out.document(&json!({
            "digest": file.digest.to_string(),
            "bytes": file.bytes,
            "sent": file.bytes - pushed.there.min(file.bytes),
        }))?;
    } else {
        context.out.line(&Printable::new(file.digest))?;
    }
    Ok(Exit::Done)
}

/// Lists the images, or deletes some.
///
/// Which nodes hold an image comes from their labels, in a query of its own.
///
/// # Errors
/// [`CommandError`].
pub async fn images(context: &mut Context<'_>, args: &ImagesArgs) -> Result<Exit, CommandError> {
    if let Some(ImagesCommand::Delete { digests }) = &args.command {
        return delete(context, digests).await;
    }
    repeat(context, args.list.watch, async |context| {
        let rows = context.client.images().await?;
        let nodes = nodes_with_images(context).await?;
        let wanted = args.list.matching.as_deref();
        let shown: Vec<ImageOnNodes> = rows
            .into_iter()
            .filter(|row| wanted.is_none_or(|wanted| is_meant(wanted, &row.digest)))
            .map(|row| ImageOnNodes {
                nodes: nodes.get(&label(&row.digest)).cloned().unwrap_or_default(),
                row,
            })
            .collect();
        print(context, &args.list, &shown)
    })
    .await
}

/// Deletes images, each by a digest that means one.
///
/// All names are resolved before the first image is deleted: an unknown or ambiguous one leaves everything as it is.
/// If a deletion is refused, those before it stay deleted, and are listed.
async fn delete(context: &mut Context<'_>, digests: &[String]) -> Result<Exit, CommandError> {
    let rows = context.client.images().await?;
    let mut meant = Vec::new();
    for name in digests {
        let found: Vec<&ImageRow> = rows
            .iter()
            .filter(|row| is_meant(name, &row.digest))
            .collect();
        match found.as_slice() {
            [row] => meant.push(row.digest.clone()),
            // The store's own error says it best.
            [] if name.parse::<Digest>().is_ok() => meant.push(name.clone()),
            [] => {
                let (kind, name) = ("image", name.clone());
                return Err(ResolveError::NotFound { kind, name }.into());
            }
            _ => {
                let text = format!("{name:?} means {} images; give more digits", found.len());
                return Err(CommandError::Usage(text));
            }
        }
    }
    let mut deleted = Vec::new();
    let mut outcome = Ok(Exit::Done);
    for digest in meant {
        if let Err(error) = context.client.delete_image(&digest).await {
            outcome = Err(error.into());
            break;
        }
        if !context.json {
            let line = format_args!("{digest} deleted");
            context.out.line(&Printable::new(line))?;
        }
        deleted.push(json!({ "digest": digest, "outcome": "deleted" }));
    }
    if context.json {
        context.out.document(&json!({ "images": deleted }))?;
    }
    outcome
}

/// Which nodes say that they have an image, by its name in labels.
///
/// The key is the label as nodes have it. A node is named by its host name, or by its UUID where that is not known.
async fn nodes_with_images(
    context: &mut Context<'_>,
) -> Result<BTreeMap<String, Vec<String>>, CommandError> {
    let listing = context.client.list(QueryKind::Nodes, None).await?;
    let mut nodes = BTreeMap::<String, Vec<String>>::new();
    for node in listing.nodes {
        for label in node.labels.keys().filter(|it| it.starts_with("image.")) {
            let name = match node.hostname.as_str() {
                "" => node.node_uuid.clone(),
                name => name.to_owned(),
            };
            nodes.entry(label.clone()).or_default().push(name);
        }
    }
    Ok(nodes)
}

/// Empty for a text that is no digest, which no label is.
fn label(digest: &str) -> String {
    let digest = digest.parse::<Digest>();
    digest.map_or_else(|_| String::new(), |it| format!("image.{}", it.short()))
}

/// Whether somebody who types this may mean the image: a beginning of its digest, of its digits or of its name in
/// labels.
///
/// An empty text means none, although every digest begins with it.
fn is_meant(typed: &str, digest: &str) -> bool {
    let digits = digest.strip_prefix(SCHEME).unwrap_or(digest);
    let typed = typed.strip_prefix(SCHEME).unwrap_or(typed);
    let typed = typed.strip_prefix("sha256_").unwrap_or(typed);
    !typed.is_empty() && digits.starts_with(typed)
}

/// An image, and the nodes that have it.
///
/// The row of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ImageOnNodes {
    row: ImageRow,
    nodes: Vec<String>,
}

/// How long ago that was.
///
/// Unix time in milliseconds; 0 or less means that it is not known. A moment in the future, by another clock, is shown
/// as 0s.
fn ago(at_ms: i64) -> String {
    if at_ms <= 0 {
        return span(-1);
    }
    span((unix_ms(SystemTime::now()) - at_ms).max(0) / 1000)
}

/// Bytes as people read them: small ones in bytes.
///
/// KiB are rounded up, so that no image has the size 0.
fn size(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    match bytes {
        ..MIB => format!("{} KiB", bytes.div_ceil(1024)),
        _ => mebibytes(i64::try_from(bytes / MIB).unwrap_or(i64::MAX)),
    }
}

impl Row for ImageOnNodes {
    const LIST: &'static str = "images";
    const COLUMNS: Columns = &[
        Column::text("IMAGE"),
        Column::amount("SIZE"),
        Column::amount("PUSHED").dropped(2),
        Column::amount("USED").dropped(3),
        Column::text("IN USE"),
        Column::text("TENANT").dropped(4),
        Column::text("BY").dropped(5),
        Column::text("NODES").dropped(1),
    ];

    fn id(&self) -> &str {
        &self.row.digest
    }

    fn cells(&self, id: &dyn Fn(&str) -> String) -> Vec<String> {
        // An image that is on all nodes must not make the line as long as the list of nodes.
        const MAX_NODES_LEN: usize = 60;
        let row = &self.row;
        // The table shortens identifiers to eight characters, which of a digest are little more than its scheme.
        let mut shown = id(&row.digest);
        if shown.len() < SCHEME.len() + SHOWN {
            shown = row.digest.chars().take(SCHEME.len() + SHOWN).collect();
        }
        vec![
            shown,
            size(row.bytes),
            ago(row.pushed_at_ms),
            ago(row.used_at_ms),
            if row.in_use { "yes" } else { "no" }.to_owned(),
            row.tenant.clone(),
            row.pushed_by.clone(),
            elide(&self.nodes.join(","), MAX_NODES_LEN),
        ]
    }

    fn json(&self) -> Value {
        let row = &self.row;
        json!({
            "digest": row.digest,
            "bytes": row.bytes,
            "tenant": row.tenant,
            "pushed_by": row.pushed_by,
            "pushed_at_ms": row.pushed_at_ms,
            "used_at_ms": row.used_at_ms,
            "in_use": row.in_use,
            "nodes": self.nodes,
        })
    }
}

impl From<ImageError> for CommandError {
    fn from(error: ImageError) -> Self {
        match error {
            // A lost connection has the same exit code as for every other command.
            ImageError::Client(error) => Self::Client(error),
            error => Self::Image(Box::new(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_meant;

    #[test]
    fn an_image_is_meant_by_the_beginning_of_its_digest_with_or_without_the_scheme() {
        let digest = format!("sha256:{}", "2c26b46b".repeat(8));
        for typed in ["2c26", "sha256:2c26", "sha256_2c26b46b2c26", &digest] {
            assert!(is_meant(typed, &digest), "{typed}");
        }
        for typed in ["", "sha256:", "c26", "sha512:2c26"] {
            assert!(!is_meant(typed, &digest), "{typed}");
        }
    }
}
