//! Ends of instances on record, as the scheduler lists them page by page.

use proto_frames::payload::{EndFilter, EndedRun, Query, QueryKind};

use super::{Client, ClientError, PAGE};

/// A page of ends on record.
#[derive(Debug, Default)]
pub struct EndsPage {
    /// The ends.
    pub rows: Vec<EndedRun>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
    /// Whether the scheduler has them in its memory alone.
    pub in_memory: bool,
    /// How many ends it has forgotten then.
    pub forgotten: u64,
}

impl Client {
    /// One page of the ends on record that meet a filter, the latest first, at most so many.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn ends_on_record(
        &mut self,
        filter: &EndFilter,
        after: Option<String>,
        most: usize,
    ) -> Result<EndsPage, ClientError> {
        let most = u32::try_from(most).unwrap_or(PAGE).min(PAGE);
        let query = Query {
            after: after.clone(),
            limit: Some(most),
            filter: filter.clone(),
            ..self.query_for(QueryKind::Ends, None)
        };
        let page = self.ask(query).await?;
        // One that does not advance would be asked for for ever.
        let next = page.next.filter(|next| Some(next) != after.as_ref());
        Ok(EndsPage {
            rows: page.ends,
            next,
            in_memory: page.in_memory,
            forgotten: page.forgotten.unwrap_or(0),
        })
    }
}
