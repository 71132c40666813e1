//! Calls of etcd's gRPC API.
//!
//! Each call has a deadline and goes to one member. After one that was not answered, later calls go to the next member;
//! reads are repeated there by themselves, as often as there are members. A call that changes something is not: whether
//! it was carried out is not known then ([`Error::Unanswered`]), and only the caller can tell whether it may be repeated.

mod error;
mod lease;
mod maintenance;
mod range;
mod txn;
mod watch;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prost::Message;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::messages::{AuthenticateRequest, AuthenticateResponse};

pub use self::error::{ConfigError, Error};
pub use self::maintenance::{Alarm, DEFAULT_QUOTA, MemberStatus};
pub use self::range::{Listing, range_end};
pub use self::txn::{Compare, Op, Txn, TxnAnswer};
pub use self::watch::{Event, Watch};

/// Longest answer that is read, in bytes. A page of records is far shorter; one record may have etcd's own limit of a
/// request, 1.5 MiB unless it is raised, and a first page has [`range::FIRST_PAGE`] of them.
const MAX_ANSWER: usize = 128 * 1024 * 1024;

/// How often a connection is probed, also while nothing is called: a member whose machine vanished is noticed although
/// its connection is not reset.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// How long a probe may go unanswered before the connection is given up.
const PROBE_TIME: Duration = Duration::from_secs(1);

/// How long etcd may take to check a password, unless calls have longer: its hash takes a tenth of a second of a processor, which a
/// busy member has to wait for.
const AUTHENTICATION_TIME: Duration = Duration::from_secs(5);

/// Where etcd is, and how to be let in.
#[derive(Debug, Clone)]
pub struct EtcdConfig {
    /// Addresses of members, each `http://host:port` or `https://host:port`; without a scheme, `http`.
    pub endpoints: Vec<String>,
    /// For addresses with `https`; `None` = there are none.
    pub tls: Option<Tls>,
    /// Who to be, where etcd authenticates by password.
    pub user: Option<User>,
    /// How long one call at one member may take.
    pub deadline: Duration,
}

/// Certificates for members with `https`, as PEM.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The CAs of members' certificates.
    pub ca: Vec<u8>,
    /// What to show to members that ask for a certificate: it and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// A user of etcd.
#[derive(Clone)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: String,
}

impl std::fmt::Debug for User {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "User({})", self.name)
    }
}

/// A client. Clones share connections and the choice of a member.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    members: Vec<Member>,
    /// The member that calls go to: its place in `members`.
    current: AtomicUsize,
    user: Option<User>,
    /// What etcd gave for the user's password; `None` before the first call, and after it was refused.
    token: Mutex<Option<MetadataValue<Ascii>>>,
    deadline: Duration,
}

#[derive(Debug)]
struct Member {
    /// As it was given.
    endpoint: String,
    /// Connects when it is used, and again whenever its connection is lost.
    channel: Channel,
}

impl Client {
    /// A client of these members. Nothing is connected yet. Has to be called on a tokio runtime, on which connections
    /// live.
    ///
    /// # Errors
    /// [`ConfigError`]: there is no member, an address is none, or a certificate cannot be used.
    pub fn new(config: EtcdConfig) -> Result<Self, ConfigError> {
        if config.endpoints.is_empty() {
            return Err(ConfigError::NoMember);
        }
        let members = config.endpoints.iter().map(|it| member(it, &config));
        let shared = Shared {
            members: members.collect::<Result<_, _>>()?,
            current: AtomicUsize::new(0),
            token: Mutex::new(None),
            user: config.user,
            deadline: config.deadline,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The address of the member that calls go to now.
    #[must_use]
    pub fn member(&self) -> &str {
        &self.shared.members[self.current()].endpoint
    }

    /// The place of the member that calls go to.
    fn current(&self) -> usize {
        self.shared.current.load(Ordering::Relaxed)
    }

    /// Has later calls go to the next member, unless another call has done so already.
    fn leave(&self, member: usize) {
        let next = (member + 1) % self.shared.members.len();
        let (order, current) = (Ordering::Relaxed, &self.shared.current);
        // That another call was faster is as good.
        let _ = current.compare_exchange(member, next, order, order);
    }

    /// One call at the current member.
    async fn once<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Error>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let member = self.current();
        let answer = self.call_at(member, path, request).await;
        if let Err(Error::Unanswered(_)) = &answer {
            self.leave(member);
        }
        answer
    }

    /// A call that may be repeated: at each member in turn, until one answers.
    async fn repeated<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Error>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut answer = self.once(path, request.clone()).await;
        for _ in 1..self.shared.members.len() {
            if !matches!(answer, Err(Error::Unanswered(_))) {
                break;
            }
            answer = self.once(path, request.clone()).await;
        }
        answer
    }

    /// One call at this member, within the deadline, once it is known who calls.
    async fn call_at<Q, A>(&self, member: usize, path: &'static str, request: Q) -> Result<A, Error>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.be_known(member).await?;
        let answer = self.authenticated(member, path, request.clone());
        match self.in_deadline(answer).await? {
            Err(status) if error::is_token_refused(&status) => {
                *self.token() = None;
                self.be_known(member).await?;
                let answer = self.authenticated(member, path, request);
                self.in_deadline(answer).await?.map_err(Error::from)
            }
            answer => answer.map_err(Error::from),
        }
    }

    /// Has etcd know who calls, where it asks for passwords, and this client has no token. Within a deadline of its own:
    /// etcd hashes the password, on purpose slowly.
    async fn be_known(&self, member: usize) -> Result<(), Error> {
        let Some(user) = &self.shared.user else {
            return Ok(());
        };
        if self.token().is_some() {
            return Ok(());
        }
        let deadline = AUTHENTICATION_TIME.max(self.shared.deadline);
        match timeout(deadline, self.authenticate(member, user)).await {
            Ok(answer) => answer.map(drop).map_err(Error::from),
            Err(_) => Err(no_answer(deadline)),
        }
    }

    /// Within the deadline of a call.
    async fn in_time<A>(&self, call: impl Future<Output = Result<A, Status>>) -> Result<A, Error> {
        self.in_deadline(call).await?.map_err(Error::from)
    }

    async fn in_deadline<T>(&self, call: impl Future<Output = T>) -> Result<T, Error> {
        let answer = timeout(self.shared.deadline, call).await;
        answer.map_err(|_| no_answer(self.shared.deadline))
    }

    async fn authenticated<Q, A>(
        &self,
        member: usize,
        path: &'static str,
        request: Q,
    ) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let request = self.with_token(member, request).await?;
        self.unary(member, path, request).await
    }

    /// The request with what shows who sends it.
    async fn with_token<Q>(&self, member: usize, request: Q) -> Result<Request<Q>, Status> {
        let mut request = Request::new(request);
        let Some(user) = &self.shared.user else {
            return Ok(request);
        };
        let known = self.token().clone();
        let token = match known {
            Some(token) => token,
            None => self.authenticate(member, user).await?,
        };
        request.metadata_mut().insert("token", token);
        Ok(request)
    }

    async fn authenticate(
        &self,
        member: usize,
        user: &User,
    ) -> Result<MetadataValue<Ascii>, Status> {
        let request = AuthenticateRequest {
            name: user.name.clone(),
            password: user.password.clone(),
        };
        let path = "/etcdserverpb.Auth/Authenticate";
        let answer: AuthenticateResponse = self.unary(member, path, Request::new(request)).await?;
        let token: MetadataValue<Ascii> = answer
            .token
            .parse()
            .map_err(|_| Status::internal("etcd gave a token that is no text"))?;
        *self.token() = Some(token.clone());
        Ok(token)
    }

    fn token(&self) -> std::sync::MutexGuard<'_, Option<MetadataValue<Ascii>>> {
        // A panic elsewhere leaves a token or none: both are sound.
        let token = self.shared.token.lock();
        token.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn unary<Q, A>(
        &self,
        member: usize,
        path: &'static str,
        request: Request<Q>,
    ) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc(member).await?;
        let path = PathAndQuery::from_static(path);
        let answer = grpc.unary(request, path, ProstCodec::<Q, A>::default());
        Ok(answer.await?.into_inner())
    }

    /// A connection to this member that takes a call.
    async fn grpc(&self, member: usize) -> Result<Grpc<Channel>, Status> {
        let channel = self.shared.members[member].channel.clone();
        let mut grpc = Grpc::new(channel)
            .max_decoding_message_size(MAX_ANSWER)
            .max_encoding_message_size(MAX_ANSWER);
        let ready = grpc.ready().await;
        ready.map_err(|error| Status::unavailable(error::with_causes(&error)))?;
        Ok(grpc)
    }
}

fn no_answer(within: Duration) -> Error {
    Error::Unanswered(format!("no answer within {within:?}"))
}

/// A member by its address.
fn member(endpoint: &str, config: &EtcdConfig) -> Result<Member, ConfigError> {
    let address = match endpoint.contains("://") {
        true => endpoint.to_owned(),
        false => format!("http://{endpoint}"),
    };
    let unusable = |error: &(dyn std::error::Error + 'static)| ConfigError::Endpoint {
        endpoint: endpoint.to_owned(),
        why: error::with_causes(error),
    };
    let mut built = Endpoint::from_shared(address.clone())
        .map_err(|error| unusable(&error))?
        .connect_timeout(config.deadline)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PROBE_EVERY)
        .keep_alive_timeout(PROBE_TIME)
        .keep_alive_while_idle(true);
    if address.starts_with("https://") {
        let Some(tls) = &config.tls else {
            return Err(ConfigError::NoCa(endpoint.to_owned()));
        };
        let mut settings = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
        if let Some((certificate, key)) = &tls.identity {
            settings = settings.identity(Identity::from_pem(certificate, key));
        }
        built = built
            .tls_config(settings)
            .map_err(|error| unusable(&error))?;
    }
    Ok(Member {
        endpoint: endpoint.to_owned(),
        channel: built.connect_lazy(),
    })
}
