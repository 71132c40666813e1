//! A controller and a worker of RIK, as their users' programs behave: every status of a worker in a stream of its own, with
//! no address; a worker reads the definition of each job, also of one that destroys, and does nothing where it cannot.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use std::sync::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::process::DEADLINE;
use crate::rpc::common::worker_status::Status as Subject;
use crate::rpc::common::{
    InstanceMetric, ResourceStatus, WorkerMetric, WorkerRegistration, WorkerStatus,
    WorkloadRequestKind,
};
use crate::rpc::controller::WorkloadScheduling;
use crate::rpc::controller::controller_client::ControllerClient;
use crate::rpc::worker::InstanceScheduling;
use crate::rpc::worker::worker_client::WorkerClient;

/// A definition of no particular needs.
pub(crate) const POD: &str = r#"{"apiVersion":"v0","kind":"Pod","name":"web","replicas":3,"spec":{"containers":[{"name":"c","image":"i:1","env":[{"name":"SECRET","value":"hidden-value"}]}]},"unknown":{"key":[1.50]}}"#;

/// How a worker answers what it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// As told: CREATING and RUNNING, TERMINATED.
    Works,
    /// CREATING, and nothing more; TERMINATED.
    Creates,
    /// FAILED.
    Fails,
    /// Nothing.
    Silent,
}

/// A worker.
pub(crate) struct Worker {
    pub(crate) name: String,
    channel: Way,
    /// What it was told, in order.
    pub(crate) jobs: watch::Receiver<Vec<InstanceScheduling>>,
    mood: Arc<Mutex<Mood>>,
    task: AbortHandle,
}

pub(crate) async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    endpoint.connect().await.unwrap()
}

/// A connection, and what its calls carry.
#[derive(Clone)]
struct Way {
    channel: Channel,
    metadata: MetadataMap,
}

impl From<Channel> for Way {
    fn from(channel: Channel) -> Self {
        let metadata = MetadataMap::new();
        Self { channel, metadata }
    }
}

impl Way {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.metadata.clone();
        request
    }

    async fn register(&self, name: &str) -> Result<Streaming<InstanceScheduling>, Status> {
        let registration = WorkerRegistration {
            hostname: name.to_owned(),
        };
        let mut client = WorkerClient::new(self.channel.clone());
        let jobs = client.register(self.request(registration)).await;
        jobs.map(Response::into_inner)
    }

    async fn tell(&self, name: &str, subject: Subject) -> Result<(), Status> {
        let status = WorkerStatus {
            status: Some(subject),
            identifier: name.to_owned(),
            host_address: None,
        };
        let one = tonic::codegen::tokio_stream::once(status);
        let mut client = WorkerClient::new(self.channel.clone());
        let told = client.send_status_updates(self.request(one)).await;
        told.map(Response::into_inner)
    }
}

/// The metadata that shows a token.
fn bearer(token: &str) -> MetadataMap {
    let mut metadata = MetadataMap::new();
    let value = format!("Bearer {token}").parse().unwrap();
    metadata.insert("authorization", value);
    metadata
}

/// The stream of jobs of a worker.
pub(crate) async fn register(
    channel: &Channel,
    name: &str,
) -> Result<Streaming<InstanceScheduling>, Status> {
    Way::from(channel.clone()).register(name).await
}

/// Tells one status in a stream of its own.
pub(crate) async fn tell(channel: &Channel, name: &str, subject: Subject) -> Result<(), Status> {
    Way::from(channel.clone()).tell(name, subject).await
}

/// What a worker says of its machine: two processors.
pub(crate) fn metrics(mem_mib: u64) -> Subject {
    let disk = r#"{"disk_name":"d","total":100000000000,"free":50000000000}"#;
    metrics_with(mem_mib, disk)
}

/// The same of one with these disks, as JSON.
pub(crate) fn metrics_with(mem_mib: u64, disks: &str) -> Subject {
    let memory = mem_mib << 20;
    Subject::Worker(WorkerMetric {
        status: ResourceStatus::Running.into(),
        metrics: format!(
            r#"{{"cpu":{{"total":1000,"free":99.5}},"memory":{{"total":{memory},"free":{memory}}},"disks":[{disks}]}}"#
        ),
    })
}

fn instance(id: &str, status: ResourceStatus) -> Subject {
    Subject::Instance(InstanceMetric {
        status: status.into(),
        metrics: String::new(),
        instance_id: id.to_owned(),
    })
}

impl Worker {
    pub(crate) async fn connect(address: SocketAddr, name: &str, mem_mib: u64) -> Self {
        Self::connect_over(channel(address).await.into(), name, mem_mib).await
    }

    /// One that shows this token.
    pub(crate) async fn connect_as(
        address: SocketAddr,
        name: &str,
        mem_mib: u64,
        token: &str,
    ) -> Self {
        let way = Way {
            channel: channel(address).await,
            metadata: bearer(token),
        };
        Self::connect_over(way, name, mem_mib).await
    }

    async fn connect_over(channel: Way, name: &str, mem_mib: u64) -> Self {
        let mut jobs = channel.register(name).await.unwrap();
        let (push_job, received) = watch::channel(Vec::new());
        let mood = Arc::new(Mutex::new(Mood::Works));
        let (behaves, name_, channel_) = (Arc::clone(&mood), name.to_owned(), channel.clone());
        let task = tokio::spawn(async move {
            loop {
                match jobs.message().await {
                    Ok(Some(job)) => {
                        push_job.send_modify(|all| all.push(job.clone()));
                        let mood = *behaves.lock().unwrap();
                        obey(&channel_, &name_, &job, mood).await;
                    }
                    Ok(None) | Err(_) => return,
                }
            }
        });
        channel.tell(name, metrics(mem_mib)).await.unwrap();
        Self {
            name: name.to_owned(),
            channel,
            jobs: received,
            mood,
            task: task.abort_handle(),
        }
    }

    /// One that registers, says what it has, and reads nothing.
    pub(crate) async fn connect_silent(
        address: SocketAddr,
        name: &str,
    ) -> Streaming<InstanceScheduling> {
        let channel = channel(address).await;
        let jobs = register(&channel, name).await.unwrap();
        tell(&channel, name, metrics(1 << 16)).await.unwrap();
        jobs
    }

    /// What it says from now on.
    pub(crate) fn becomes(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Says how an instance is.
    pub(crate) async fn says(&self, id: &str, status: ResourceStatus) {
        let status = instance(id, status);
        self.channel.tell(&self.name, status).await.unwrap();
    }

    /// Waits until it was told this of this instance; the job.
    pub(crate) async fn was_told(&self, id: &str, kind: WorkloadRequestKind) -> InstanceScheduling {
        let is_it = |job: &&InstanceScheduling| job.instance_id == id && job.action() == kind;
        let mut jobs = self.jobs.clone();
        let waited = jobs.wait_for(|all| all.iter().any(|it| is_it(&it)));
        let all = timeout(DEADLINE, waited).await.unwrap().unwrap();
        all.iter().find(is_it).unwrap().clone()
    }

    /// Ids of the instances that it was told to create.
    pub(crate) fn created(&self) -> Vec<String> {
        let jobs = self.jobs.borrow();
        let created = jobs
            .iter()
            .filter(|it| it.action() == WorkloadRequestKind::Create);
        created.map(|it| it.instance_id.clone()).collect()
    }

    /// Its stream is gone.
    pub(crate) fn leave(self) {
        self.task.abort();
    }
}

async fn obey(channel: &Way, name: &str, job: &InstanceScheduling, mood: Mood) {
    type Is = ResourceStatus;
    if serde_json::from_str::<serde_json::Value>(&job.definition).is_err() {
        return;
    }
    let says: &[Is] = match (job.action(), mood) {
        (_, Mood::Silent) => &[],
        (WorkloadRequestKind::Create, Mood::Works) => &[Is::Creating, Is::Running],
        (WorkloadRequestKind::Create, Mood::Creates) => &[Is::Creating],
        (WorkloadRequestKind::Create, Mood::Fails) => &[Is::Creating, Is::Failed],
        (WorkloadRequestKind::Destroy, _) => &[Is::Terminated],
    };
    for &status in says {
        // A worker whose adapter is gone is gone itself.
        let status = instance(&job.instance_id, status);
        let _ = channel.tell(name, status).await;
    }
}

/// A controller: it schedules, and hears updates over the same connection.
pub(crate) struct Controller {
    pub(crate) client: ControllerClient<Channel>,
    /// What it has heard of instances, in order: id, status, text.
    pub(crate) heard: watch::Receiver<Vec<(String, ResourceStatus, String)>>,
    /// The latest of each worker: status and address.
    pub(crate) workers: watch::Receiver<BTreeMap<String, (ResourceStatus, String)>>,
    /// How its stream ended, once it has.
    pub(crate) end: watch::Receiver<Option<Result<(), Status>>>,
    /// What its calls carry: `ciao-sets`, a token. RIK's own carries nothing.
    metadata: MetadataMap,
    task: AbortHandle,
}

impl Controller {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, MetadataMap::new()).await
    }

    /// One that takes errors, for it says that it knows sets.
    pub(crate) async fn connect_knowing(address: SocketAddr) -> Self {
        let mut metadata = MetadataMap::new();
        metadata.insert("ciao-sets", "yes".parse().unwrap());
        Self::connect_with(address, metadata).await
    }

    /// One that shows this token.
    pub(crate) async fn connect_as(address: SocketAddr, token: &str) -> Self {
        Self::connect_with(address, bearer(token)).await
    }

    async fn connect_with(address: SocketAddr, metadata: MetadataMap) -> Self {
        let mut client = ControllerClient::new(channel(address).await);
        let mut request = Request::new(());
        *request.metadata_mut() = metadata.clone();
        let updates = client.get_status_updates(request).await.unwrap();
        Self {
            metadata,
            ..Self::of(client, updates.into_inner())
        }
    }

    pub(crate) fn of(
        client: ControllerClient<Channel>,
        mut updates: Streaming<WorkerStatus>,
    ) -> Self {
        let (tell, heard) = watch::channel(Vec::new());
        let (tell_workers, workers) = watch::channel(BTreeMap::new());
        let (tell_end, end) = watch::channel(None);
        let task = tokio::spawn(async move {
            loop {
                match updates.message().await {
                    Ok(Some(update)) => match update.status.clone().unwrap() {
                        Subject::Instance(it) => tell.send_modify(|all| {
                            let status = it.status();
                            all.push((it.instance_id, status, it.metrics));
                        }),
                        Subject::Worker(it) => tell_workers.send_modify(|all| {
                            let address = update.host_address.unwrap();
                            all.insert(update.identifier, (it.status(), address));
                        }),
                    },
                    ended => {
                        let _ = tell_end.send(Some(ended.map(drop)));
                        return;
                    }
                }
            }
        });
        Self {
            client,
            heard,
            workers,
            end,
            metadata: MetadataMap::new(),
            task: task.abort_handle(),
        }
    }

    async fn schedule(
        &self,
        workload: &str,
        id: &str,
        definition: &str,
        action: WorkloadRequestKind,
    ) -> Result<Response<()>, Status> {
        let mut request = Request::new(WorkloadScheduling {
            workload_id: workload.to_owned(),
            definition: definition.to_owned(),
            action: action.into(),
            instance_id: id.to_owned(),
        });
        *request.metadata_mut() = self.metadata.clone();
        let mut client = self.client.clone();
        client.schedule_instance(request).await
    }

    /// Has an instance made.
    pub(crate) async fn creates(&self, id: &str) -> Result<Response<()>, Status> {
        self.schedule(WORKLOAD, id, POD, WorkloadRequestKind::Create)
            .await
    }

    /// Has an instance of this definition made.
    pub(crate) async fn creates_of(
        &self,
        id: &str,
        definition: &str,
    ) -> Result<Response<()>, Status> {
        self.schedule(WORKLOAD, id, definition, WorkloadRequestKind::Create)
            .await
    }

    /// Has an instance destroyed.
    pub(crate) async fn destroys(&self, id: &str) -> Result<Response<()>, Status> {
        self.schedule(WORKLOAD, id, POD, WorkloadRequestKind::Destroy)
            .await
    }

    /// Waits until it has heard that an instance is so; what was said beside it.
    pub(crate) async fn hears(&self, id: &str, status: ResourceStatus) -> String {
        let is_it = |it: &&(String, ResourceStatus, String)| it.0 == id && it.1 == status;
        let mut heard = self.heard.clone();
        let waited = timeout(
            DEADLINE,
            heard.wait_for(|all| all.iter().any(|it| is_it(&it))),
        )
        .await;
        match waited {
            Ok(Ok(all)) => all.iter().find(is_it).unwrap().2.clone(),
            _ => panic!("{id} is not {status:?}: {:#?}", self.heard.borrow()),
        }
    }

    /// The latest it has heard of each instance.
    pub(crate) fn latest(&self) -> BTreeMap<String, ResourceStatus> {
        let heard = self.heard.borrow();
        heard
            .iter()
            .map(|(id, status, _)| (id.clone(), *status))
            .collect()
    }

    /// It is gone.
    pub(crate) fn leave(self) {
        self.task.abort();
    }
}

/// A workload's id, as RIK's controller makes them.
pub(crate) const WORKLOAD: &str = "7a54e5d1-3c3f-4d4f-8a53-0f4f5f0d9e11";
