//! The gRPC service that controllers call: checks a request's token and form, makes an order for the coordinator of it,
//! and answers with what the coordinator answers. It keeps no state.

use std::fmt::Display;
use std::time::Duration;

use ciao_scheduler::printable::Printable;
use sched_model::cut::cut;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Response, Status};
use tracing::warn;

use crate::coordinator::{self, Action, MAX_ID, Order};
use crate::definition::Definition;
use crate::rpc::common::WorkloadRequestKind;
use crate::rpc::controller::WorkloadScheduling;
use crate::rpc::controller::controller_server::Controller;
use crate::tokens::{Role, Tokens};
use crate::updates::{Caller, Updates};

/// Metadata of a good answer with a notice, such as that the scheduler is not reachable.
const NOTICE: &str = "ciao-notice";

/// Longest notice in bytes: it is a header, of which clients take 16 KiB in all or less.
const MAX_NOTICE: usize = 1024;

/// Bytes of what is said of a definition, before what is not shown is escaped: keys and values of the definition are in
/// it, however long they are, and it becomes a header of the answer.
const MAX_SAID: usize = 1024;

/// How long a controller that takes no errors waits for an answer, as where the disk does not say whether it takes a
/// write. Well below the time limit of the call, which would end it with an error.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// What such a controller is told then.
const LATE: &str = "whether it can be done is not known yet; its status will say it";

/// Metadata with which a controller says that it knows instances of sets, whose ids it did not give. Its presence
/// counts, not its value.
const KNOWS_SETS: &str = "ciao-sets";

/// The service.
#[derive(Debug)]
pub(crate) struct Controllers {
    coordinator: mpsc::Sender<Order>,
    tokens: Tokens,
}

impl Controllers {
    /// One that hands its orders to this coordinator.
    pub(crate) fn new(coordinator: mpsc::Sender<Order>, tokens: Tokens) -> Self {
        Self {
            coordinator,
            tokens,
        }
    }

    /// Who calls, by token and address.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` or `PERMISSION_DENIED`, where tokens are asked for.
    fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        Ok(Caller {
            owner: self.tokens.check(request.metadata(), Role::Controller)?,
            address: request.remote_addr(),
            knows_sets: request.metadata().contains_key(KNOWS_SETS),
        })
    }

    /// Hands an order to the coordinator. It is carried out, also if its controller does not wait for the answer.
    ///
    /// # Errors
    /// `UNAVAILABLE` while this program ends.
    async fn give(&self, order: Order) -> Result<(), Status> {
        self.coordinator.send(order).await.map_err(|_| ending())
    }
}

/// Waits for the coordinator's answer.
///
/// # Errors
/// The coordinator's own, or `UNAVAILABLE` while this program ends.
async fn answer_of<T>(answer: oneshot::Receiver<Result<T, Status>>) -> Result<T, Status> {
    answer.await.map_err(|_| ending())?
}

fn ending() -> Status {
    Status::unavailable("ciao-rik is about to end")
}

/// Reads and checks a request's form. RIK's own controller takes no errors but over what RIK's own scheduler could not
/// read either: for that, what is wrong in itself is an instance that fails.
///
/// # Errors
/// `INVALID_ARGUMENT`: an id that is too long, a definition that is none, or an unknown action.
fn read(scheduling: WorkloadScheduling, caller: &Caller) -> Result<coordinator::Request, Status> {
    let is_set = scheduling.instance_id.is_empty();
    let takes_errors = is_set || caller.takes_errors();
    for (name, id, takes_errors) in [
        ("instance_id", &scheduling.instance_id, takes_errors),
        ("workload_id", &scheduling.workload_id, true),
    ] {
        if takes_errors && id.len() > MAX_ID {
            let text = format!("{name}: longer than {MAX_ID} bytes");
            return Err(Status::invalid_argument(text));
        }
    }
    let action = match WorkloadRequestKind::try_from(scheduling.action) {
        Ok(WorkloadRequestKind::Create) => {
            let read = Definition::read(&scheduling.definition);
            let read = read.and_then(|it| if is_set { it.of_set() } else { Ok(it) });
            match read {
                Ok(definition) => Action::Create(Box::new(definition)),
                Err(error) => {
                    let refusal = Status::invalid_argument(shown(&error));
                    if takes_errors || error.is_unreadable() {
                        return Err(refusal);
                    }
                    Action::Fail(refusal)
                }
            }
        }
        Ok(WorkloadRequestKind::Destroy) => Action::Destroy,
        Err(_) => {
            let text = format!(
                "action: {} is neither CREATE nor DESTROY",
                scheduling.action
            );
            return Err(Status::invalid_argument(text));
        }
    };
    Ok(coordinator::Request {
        workload: scheduling.workload_id,
        id: scheduling.instance_id,
        action,
    })
}

/// What is wrong with a definition, fit for a header, a log and a terminal: on one line, with what is not shown escaped,
/// and not longer than a limit.
fn shown(error: impl Display) -> String {
    Printable::new(cut(&error.to_string(), MAX_SAID)).to_string()
}

/// An answer with a notice, if there is one: the text's beginning, with `?` for what a header may not have.
fn with_notice<T>(answer: T, notice: Option<String>) -> Response<T> {
    let mut response = Response::new(answer);
    if let Some(text) = notice {
        let text = cut(&text, MAX_NOTICE);
        let plain = text.chars().map(|c| match c {
            ' '..='~' => c,
            _ => '?',
        });
        let value = MetadataValue::<Ascii>::try_from(plain.collect::<String>());
        if let Ok(value) = value {
            response.metadata_mut().insert(NOTICE, value);
        }
    }
    response
}

#[tonic::async_trait]
impl Controller for Controllers {
    type GetStatusUpdatesStream = Updates;

    async fn schedule_instance(
        &self,
        request: Request<WorkloadScheduling>,
    ) -> Result<Response<()>, Status> {
        let caller = self.caller(&request)?;
        let request = read(request.into_inner(), &caller)?;
        let takes_errors = request.id.is_empty() || caller.takes_errors();
        let (answer, answered) = oneshot::channel();
        let order = Order::Schedule {
            request,
            caller,
            answer,
        };
        self.give(order).await?;
        let answer = answer_of(answered);
        let notice = match takes_errors {
            true => answer.await?,
            false => match timeout(ANSWER_WITHIN, answer).await {
                Ok(answer) => answer?,
                Err(_) => {
                    warn!(
                        event = "rik_answer_late",
                        "whether a request can be done is not known yet; its controller learns it from its stream"
                    );
                    Some(LATE.to_owned())
                }
            },
        };
        Ok(with_notice((), notice))
    }

    async fn get_status_updates(&self, request: Request<()>) -> Result<Response<Updates>, Status> {
        let caller = self.caller(&request)?;
        let (answer, answered) = oneshot::channel();
        self.give(Order::Subscribe { caller, answer }).await?;
        let (updates, notice) = answer_of(answered).await?;
        Ok(with_notice(updates, notice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::FOR_CONTROLLERS;

    #[test]
    fn a_notice_is_a_header_whatever_it_says() {
        let said = |text: &str| {
            let answer = with_notice((), Some(text.to_owned()));
            answer
                .metadata()
                .get(NOTICE)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(said("instance \"ä\"\nis there"), "instance \"?\"?is there");
        assert_eq!(
            said(&"x".repeat(5000)).len(),
            MAX_NOTICE - 2,
            "cut, with one `?`"
        );
    }

    /// An answer that never comes.
    async fn unanswered(id: &str, knows_sets: bool) -> Result<Response<()>, Status> {
        let (orders, _ordered) = mpsc::channel(1);
        let controllers = Controllers::new(orders, Tokens::none());
        let mut request = Request::new(WorkloadScheduling {
            workload_id: "work".to_owned(),
            instance_id: id.to_owned(),
            definition: "{}".to_owned(),
            ..WorkloadScheduling::default()
        });
        if knows_sets {
            let metadata = request.metadata_mut();
            metadata.insert(KNOWS_SETS, MetadataValue::from_static(""));
        }
        controllers.schedule_instance(request).await
    }

    #[tokio::test(start_paused = true)]
    async fn riks_own_controller_is_not_left_without_an_answer_until_its_call_fails() {
        let limit = FOR_CONTROLLERS.call.unwrap();
        let answer = timeout(limit, unanswered("a", false));
        let answer = answer.await.expect("it is answered in time").unwrap();
        let notice = answer.metadata().get(NOTICE).unwrap().to_str().unwrap();
        assert!(notice.contains("its status will say"), "{notice}");
        for (id, knows_sets) in [("", false), ("a", true)] {
            let answer = timeout(limit, unanswered(id, knows_sets));
            assert!(answer.await.is_err(), "its own time limit ends it");
        }
    }
}
