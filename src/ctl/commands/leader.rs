//! `ciaoctl leader`: which of several schedulers leads, which stand by, and having another lead.

use proto_frames::payload::{QueryKind, SchedulersView, TransferState};
use serde_json::{Value, json};

use crate::ctl::args::LeaderArgs;
use crate::ctl::client::ClientError;
use crate::ctl::commands::listing::{print, repeat};
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::event::lifecycle::{transfer as words, transfer_json};
use crate::ctl::exit::Exit;
use crate::ctl::table::{Column, Columns, Row};
use crate::printable::Printable;

/// Lists them, or has another lead.
///
/// A scheduler that is not one of several leads alone: a remark says so, and the list is empty.
///
/// # Errors
/// [`CommandError`].
pub async fn leader(context: &mut Context<'_>, args: &LeaderArgs) -> Result<Exit, CommandError> {
    if let Some(to) = &args.transfer {
        return transfer(context, to).await;
    }
    repeat(context, args.list.watch, async |context| {
        list(context, args).await
    })
    .await
}

async fn list(context: &mut Context<'_>, args: &LeaderArgs) -> Result<Exit, CommandError> {
    let status = match context.client.list(QueryKind::Status, None).await {
        Ok(listing) => listing.status,
        // It does not know the question.
        Err(ClientError::Query { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let schedulers = status.and_then(|it| it.schedulers);
    if schedulers.is_none() {
        let text = "the scheduler is not one of several, or has not read yet which there are";
        context.out.remark(&Printable::new(text))?;
    }
    let mut rows = schedulers.as_ref().map(members).unwrap_or_default();
    if let Some(wanted) = &args.list.matching {
        rows.retain(|it| it.address.starts_with(wanted));
    }
    print(context, &args.list, &rows)
}

/// The one that leads first.
fn members(view: &SchedulersView) -> Vec<Member> {
    let leader = Member {
        address: view.leader.clone(),
        cluster: view.cluster.clone(),
        term: Some(view.term.clone()),
    };
    let standby = view.standby.iter().map(|address| Member {
        address: address.clone(),
        cluster: view.cluster.clone(),
        term: None,
    });
    [leader].into_iter().chain(standby).collect()
}

/// [`Exit::Refused`] where the leader goes on, with its reason on standard error.
async fn transfer(context: &mut Context<'_>, to: &str) -> Result<Exit, CommandError> {
    let news = context.client.transfer_leadership(to).await?;
    let is_begun = news.state == TransferState::Begun;
    if context.json {
        context.out.document(&transfer_json(&news))?;
    } else if is_begun {
        context.out.line(&Printable::new(words(&news)))?;
    } else {
        context.out.remark(&Printable::new(words(&news)))?;
    }
    Ok(if is_begun { Exit::Done } else { Exit::Refused })
}

/// One of several schedulers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    /// Where it is.
    address: String,
    /// The cluster's name.
    cluster: String,
    /// Under which it leads; `None` where it stands by.
    term: Option<String>,
}

impl Member {
    fn role(&self) -> &'static str {
        match self.term {
            Some(_) => "leader",
            None => "standby",
        }
    }
}

impl Row for Member {
    const LIST: &'static str = "schedulers";
    const COLUMNS: Columns = &[
        Column::text("SCHEDULER"),
        Column::text("ROLE"),
        Column::text("TERM").dropped(2),
        Column::text("CLUSTER").dropped(1),
    ];

    fn id(&self) -> &str {
        &self.address
    }

    /// Addresses are not cut as UUIDs are.
    fn cells(&self, _: &dyn Fn(&str) -> String) -> Vec<String> {
        vec![
            self.address.clone(),
            self.role().to_owned(),
            self.term.clone().unwrap_or_default(),
            self.cluster.clone(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "address": self.address,
            "role": self.role(),
            "term": self.term,
            "cluster": self.cluster,
        })
    }
}

#[cfg(test)]
mod tests {
    use proto_frames::payload::SchedulersView;

    use super::members;
    use crate::ctl::table::{Row as _, document};

    #[test]
    fn the_one_that_leads_comes_first_and_has_a_term() {
        let rows = members(&SchedulersView {
            cluster: "main".to_owned(),
            leader: "b:8888".to_owned(),
            term: "0.7".to_owned(),
            standby: vec!["a:8888".to_owned()],
            ..SchedulersView::default()
        });
        let whole = |id: &str| id.to_owned();
        assert_eq!(rows[0].cells(&whole), ["b:8888", "leader", "0.7", "main"]);
        assert_eq!(rows[1].cells(&whole), ["a:8888", "standby", "", "main"]);
        let listed = document(&rows);
        assert_eq!(listed["schedulers"][0]["role"], "leader");
        assert_eq!(listed["schedulers"][1]["term"], serde_json::Value::Null);
    }
}
