//! The gRPC service that controllers call: checks a request's token and form, makes an order for the coordinator of it,
//! and answers with what the coordinator answers. It keeps no state.

use tokio::sync::{mpsc, oneshot};
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

use crate::coordinator::{self, Order};
use crate::definition::Definition;
use crate::rpc::common::WorkloadRequestKind;
use crate::rpc::controller::WorkloadScheduling;
use crate::rpc::controller::controller_server::Controller;
use crate::tokens::{Role, Tokens};
use crate::updates::{Caller, Updates};

/// Longest id of an instance or workload, in bytes. Ids are kept on disk and repeated in each update.
const MAX_ID: usize = 1024;

/// Metadata of a good answer with a notice, such as that the scheduler is not reachable.
const NOTICE: &str = "ciao-notice";

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

    /// Hands an order to the coordinator and waits for its answer. A controller that gives up drops the wait; the order
    /// is carried out all the same.
    ///
    /// # Errors
    /// The coordinator's own, or `UNAVAILABLE` while this program ends.
    async fn ask<T>(
        &self,
        order: Order,
        answer: oneshot::Receiver<Result<T, Status>>,
    ) -> Result<T, Status> {
        let ending = || Status::unavailable("ciao-rik is about to end");
        self.coordinator.send(order).await.map_err(|_| ending())?;
        answer.await.map_err(|_| ending())?
    }
}

/// Reads and checks a request's form.
///
/// # Errors
/// `INVALID_ARGUMENT`: an id that is too long, a definition that is none, or an unknown action.
fn read(scheduling: WorkloadScheduling) -> Result<coordinator::Request, Status> {
    for (name, id) in [
        ("instance_id", &scheduling.instance_id),
        ("workload_id", &scheduling.workload_id),
    ] {
        if id.len() > MAX_ID {
            let text = format!("{name}: longer than {MAX_ID} bytes");
            return Err(Status::invalid_argument(text));
        }
    }
    let create = match WorkloadRequestKind::try_from(scheduling.action) {
        Ok(WorkloadRequestKind::Create) => {
            let definition = Definition::read(&scheduling.definition)
                .map_err(|error| Status::invalid_argument(error.to_string()))?;
            Some(Box::new(definition))
        }
        Ok(WorkloadRequestKind::Destroy) => None,
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
        create,
    })
}

#[tonic::async_trait]
impl Controller for Controllers {
    type GetStatusUpdatesStream = Updates;

    async fn schedule_instance(
        &self,
        request: Request<WorkloadScheduling>,
    ) -> Result<Response<()>, Status> {
        let caller = self.caller(&request)?;
        let request = read(request.into_inner())?;
        let (answer, answered) = oneshot::channel();
        let order = Order::Schedule {
            request,
            caller,
            answer,
        };
        let notice = self.ask(order, answered).await?;
        let mut response = Response::new(());
        if let Some(notice) = notice.and_then(|it| MetadataValue::try_from(it).ok()) {
            response.metadata_mut().insert(NOTICE, notice);
        }
        Ok(response)
    }

    async fn get_status_updates(&self, request: Request<()>) -> Result<Response<Updates>, Status> {
        let caller = self.caller(&request)?;
        let (answer, answered) = oneshot::channel();
        let updates = self
            .ask(Order::Subscribe { caller, answer }, answered)
            .await?;
        Ok(Response::new(updates))
    }
}
