//! All routes: what each takes, who may, and what it answers. The router, the check of roles, the check of the query
//! string and the OpenAPI document are made from [`ROUTES`], so that none of them knows a route that the others do not.
//!
//! To add a route: a handler `async fn(Call) -> Answer` in one of the neighbours, and an entry here. The page's files
//! are not routes in this sense; they are in [`page`](super::page).

use std::pin::Pin;

use proto_frames::Role;
use proto_frames::payload::{
    ArrayView, ControllerView, EndedRun, Evacuate, HistoryRow, ImageRow, InstanceView, Migrate,
    NodeView, PlacementDecision, Resume, Suspend, Update,
};
use sched_model::value::{Field, Record};

use super::call::{Answer, Call};
use super::{
    arrays, commands, configuration, events, history, images, metrics, openapi, output, probes,
    read, reload, starts, status,
};
use params::{
    AFTER, ALTERNATES, COUNT, ENDED, FIELDS, FOLLOW, FORCE, FORGET, HISTORY, LIMIT, LIST, MATCH,
    READ, READ_CONFIGURATION, SELECTOR, STRICT, TENANT, UNTIL, VERBOSE, WAIT, WAIT_FOR_END,
    WRITE_CONFIGURATION,
};

mod params;

/// Who may use a route, by the roles that the client certificate grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Every peer whose certificate grants a role. For probes.
    Anybody,
    /// Viewers and operators.
    Read,
    /// Operators, which a controller's certificate makes a peer too.
    Command,
}

/// What a parameter of the query string takes. Checked in `call.rs` before the handler runs, and shown as a schema by
/// `openapi.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`; without a value it is true.
    Flag,
    /// A whole number.
    Number {
        /// Smallest value that is taken.
        min: u32,
        /// Largest value that is taken.
        max: u32,
    },
    /// A number of bytes, up to 2⁶⁴ − 1, which `Number` is too narrow for.
    Offset,
    /// A time such as `30s`, in the notation of `humantime`; at most `MAX_WAIT`.
    Wait,
    /// An expression; may be given several times.
    Selector,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Words separated by commas, each one of these. An empty list stands for the fields of the route's rows, which the
    /// handler checks.
    Words(&'static [&'static str]),
}

/// A parameter of the query string. All are optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Param {
    pub(super) name: &'static str,
    /// A sentence for the OpenAPI document.
    pub(super) about: &'static str,
    pub(super) kind: Kind,
}

/// What a request's body is. A route without one refuses bodies.
#[derive(Debug, Clone, Copy)]
pub(super) enum Body {
    /// A START, as JSON or YAML. The answer has `warnings` beside what `content` says.
    Start,
    /// An array, as JSON, likewise.
    Array,
    /// An object with these keys, all optional, or nothing. The text is the schema's name in the OpenAPI document. Keys
    /// that say which instance or node is meant are overwritten from the path.
    Keys(&'static str, &'static [Field]),
    /// The cluster configuration, as YAML.
    Configuration,
    /// The bytes of an image, which the handler reads as they come. It may be there already: 200 rather than 201.
    Image,
}

/// What a request is answered with where nothing is wrong. Only the OpenAPI document reads it: handlers make their
/// answers themselves. Texts named `name` in what follows are names of schemas.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    /// `{"items": […], "next": …, "sequence": …}`: name and fields of a row.
    Page(&'static str, &'static [Field]),
    /// `{KEY: {…}, "sequence": …}`: key, name, fields.
    One(&'static str, &'static str, &'static [Field]),
    /// The same with `follow`, and 202 beside 200: key, name, fields of the row that shows what the command was about.
    Outcome(&'static str, &'static str, &'static [Field]),
    /// An object that the text says more about.
    Object,
    /// Something else than JSON, of this media type.
    Other(&'static str),
}

/// What answers a request. A plain function pointer, so that the table can be a `static`.
type Handler = fn(Call) -> Pin<Box<dyn Future<Output = Answer> + Send>>;

/// One method at one path. Shown in logs as `GET /v1/nodes`.
pub(super) struct Route {
    /// `GET`, `POST`, `PUT` or `DELETE`. HEAD is answered wherever GET is.
    pub(super) method: &'static str,
    /// In axum's notation; `{id}` is the only parameter a path may have.
    pub(super) path: &'static str,
    /// What it does, in a line.
    pub(super) about: &'static str,
    /// Checked before anything of the request is read.
    pub(super) access: Access,
    /// Any other parameter is refused.
    pub(super) params: &'static [Param],
    /// `None`: the request has to have no body.
    pub(super) body: Option<Body>,
    pub(super) content: Content,
    pub(super) handler: Handler,
}

impl Route {
    /// Whether the `{id}` of its path is that of an instance.
    pub(super) fn is_of_instance(&self) -> bool {
        self.path.starts_with("/v1/instances/{id}")
    }
}

impl Access {
    /// The roles of which one is enough.
    pub(super) fn roles(self) -> Role {
        match self {
            Self::Anybody => Role(u32::MAX),
            Self::Read => Role::VIEWER | Role::OPERATOR,
            Self::Command => Role::OPERATOR,
        }
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// A handler of the table: boxes the future of an `async fn`, because each has a type of its own.
macro_rules! handler {
    ($function:path) => {
        |call| Box::pin($function(call))
    };
}

/// A route that reads.
const fn get(
    path: &'static str,
    about: &'static str,
    params: &'static [Param],
    content: Content,
    handler: Handler,
) -> Route {
    Route {
        method: "GET",
        path,
        about,
        access: Access::Read,
        params,
        body: None,
        content,
        handler,
    }
}

/// A route that takes a command.
const fn command(
    (method, path): (&'static str, &'static str),
    about: &'static str,
    params: &'static [Param],
    (body, content): (Option<Body>, Content),
    handler: Handler,
) -> Route {
    Route {
        method,
        path,
        about,
        access: Access::Command,
        params,
        body,
        content,
        handler,
    }
}

/// What commands on instances are answered with.
const INSTANCE: Content = Content::Outcome("instance", "Instance", InstanceView::FIELDS);

/// What commands on nodes are answered with.
const NODE: Content = Content::Outcome("node", "Node", NodeView::FIELDS);

/// What is answered about one image.
const IMAGE: Content = Content::One("image", "Image", ImageRow::FIELDS);

/// What is answered about one array.
const ARRAY: Content = Content::One("array", "Array", ArrayView::FIELDS);

/// All routes. No two have the same method and path.
pub(super) static ROUTES: &[Route] = &[
    // What is there, for viewers and operators.
    get(
        "/v1/status",
        "The scheduler, and the cluster at a glance.",
        &[],
        Content::Object,
        handler!(status::status),
    ),
    get(
        "/v1/nodes",
        "Nodes, those included that are lost.",
        LIST,
        Content::Page("Node", NodeView::FIELDS),
        handler!(read::nodes),
    ),
    get(
        "/v1/nodes/{id}",
        "One node, by UUID or host name.",
        &[FIELDS],
        Content::One("node", "Node", NodeView::FIELDS),
        handler!(read::node),
    ),
    get(
        "/v1/instances",
        "Instances that are placed, wait or are lost.",
        &[MATCH, AFTER, LIMIT, SELECTOR, FIELDS, ENDED],
        Content::Page("Instance", InstanceView::FIELDS),
        handler!(read::instances),
    ),
    get(
        "/v1/instances/{id}",
        "One instance, by identifier or name; of one that has ended, how. With `wait` once it has ended.",
        &[FIELDS, WAIT_FOR_END],
        Content::One("instance", "Instance", InstanceView::FIELDS),
        handler!(read::instance),
    ),
    get(
        "/v1/instances/{id}/history",
        "What became of one instance, the oldest first.",
        &[AFTER, LIMIT, FIELDS],
        Content::Page("HistoryRow", HistoryRow::FIELDS),
        handler!(read::history),
    ),
    get(
        "/v1/history",
        "Ends of instances on record, the latest first, with what each has used.",
        HISTORY,
        Content::Page("EndedRun", EndedRun::FIELDS),
        handler!(history::history),
    ),
    get(
        "/v1/instances/{id}/output",
        "What one instance has written, as it is; of one that has ended, as long as its node keeps it. The head says where it \
         begins, and how much there is.",
        READ,
        Content::Other("text/plain; charset=utf-8"),
        handler!(output::output),
    ),
    get(
        "/v1/queue",
        "Instances that wait for room, in the order in which they will be looked at.",
        LIST,
        Content::Page("Instance", InstanceView::FIELDS),
        handler!(read::queue),
    ),
    get(
        "/v1/arrays",
        "Arrays, the latest first: a row each, with how many of its elements are how far.",
        LIST,
        Content::Page("Array", ArrayView::FIELDS),
        handler!(arrays::arrays),
    ),
    get(
        "/v1/arrays/{id}",
        "One array, by UUID or name.",
        &[FIELDS],
        ARRAY,
        handler!(arrays::array),
    ),
    get(
        "/v1/controllers",
        "Controllers, operators and viewers that are connected by SSNTP, or command by HTTP.",
        &[SELECTOR, FIELDS],
        Content::Page("Controller", ControllerView::FIELDS),
        handler!(read::controllers),
    ),
    get(
        "/v1/images",
        "Programs that the scheduler keeps, by digest. `match` is the beginning of one.",
        LIST,
        Content::Page("Image", ImageRow::FIELDS),
        handler!(images::list),
    ),
    get(
        "/v1/images/{id}",
        "One program, by its digest.",
        &[FIELDS],
        IMAGE,
        handler!(images::one),
    ),
    get(
        "/v1/configuration",
        "The cluster configuration in force, or an earlier version, and the versions that are kept. `ETag` is its number.",
        READ_CONFIGURATION,
        Content::Object,
        handler!(configuration::get),
    ),
    get(
        "/v1/events",
        "What happens, as server-sent events.",
        FOLLOW,
        Content::Other("text/event-stream"),
        handler!(events::events),
    ),
    get(
        "/v1/openapi.json",
        "This interface as an OpenAPI document.",
        &[],
        Content::Object,
        handler!(openapi::openapi),
    ),
    // Asks where a START would go, so viewers may; a POST only because it has a body.
    Route {
        access: Access::Read,
        ..command(
            ("POST", "/v1/explain"),
            "Where a START would go now, or why it fits nowhere. Nothing is claimed.",
            &[COUNT, ALTERNATES, STRICT],
            (
                Some(Body::Start),
                Content::One("decision", "PlacementDecision", PlacementDecision::FIELDS),
            ),
            handler!(starts::explain),
        )
    },
    // Commands on instances: 202 or, with `wait`, what came of them.
    command(
        ("POST", "/v1/instances"),
        "Starts an instance. The same again answers with the instance that is there; another START of it is a conflict.",
        &[WAIT, UNTIL, STRICT],
        (Some(Body::Start), INSTANCE),
        handler!(starts::start),
    ),
    command(
        ("POST", "/v1/arrays"),
        "Starts an array. Answered once it is on record; the same again answers with the array that is there.",
        &[],
        (Some(Body::Array), ARRAY),
        handler!(arrays::start),
    ),
    command(
        ("POST", "/v1/arrays/{id}/rerun"),
        "Runs once more what has ended of an array without success.",
        &[],
        (None, ARRAY),
        handler!(arrays::rerun),
    ),
    command(
        ("DELETE", "/v1/arrays/{id}"),
        "Deletes an array: what waits of it does not begin, and its instances end. One that has ended is forgotten.",
        &[],
        (None, ARRAY),
        handler!(arrays::delete),
    ),
    command(
        ("DELETE", "/v1/instances/{id}"),
        "Ends an instance for good.",
        &[FORGET, WAIT],
        (None, INSTANCE),
        handler!(commands::delete),
    ),
    command(
        ("POST", "/v1/instances/{id}/stop"),
        "Removes an instance from its node alone, as before a move.",
        &[WAIT],
        (None, INSTANCE),
        handler!(commands::stop),
    ),
    command(
        ("POST", "/v1/instances/{id}/suspend"),
        "Suspends an instance: its memory stays, its processors are free.",
        &[WAIT],
        (Some(Body::Keys("Suspend", Suspend::FIELDS)), INSTANCE),
        handler!(commands::suspend),
    ),
    command(
        ("POST", "/v1/instances/{id}/resume"),
        "Lets a suspended instance go on.",
        &[WAIT],
        (Some(Body::Keys("Resume", Resume::FIELDS)), INSTANCE),
        handler!(commands::resume),
    ),
    command(
        ("POST", "/v1/instances/{id}/migrate"),
        "Moves an instance to another node.",
        &[WAIT],
        (Some(Body::Keys("Migrate", Migrate::FIELDS)), INSTANCE),
        handler!(commands::migrate),
    ),
    command(
        ("POST", "/v1/instances/{id}/update"),
        "Changes what an instance has while it runs.",
        &[WAIT],
        (Some(Body::Keys("Update", Update::FIELDS)), INSTANCE),
        handler!(commands::update),
    ),
    // Commands on nodes. Those without `wait` are answered with the node's row as it is after them.
    command(
        ("POST", "/v1/nodes/{id}/cordon"),
        "Keeps new work from a node.",
        &[],
        (None, NODE),
        handler!(commands::cordon),
    ),
    command(
        ("POST", "/v1/nodes/{id}/uncordon"),
        "Lets a node have new work again.",
        &[],
        (None, NODE),
        handler!(commands::uncordon),
    ),
    command(
        ("POST", "/v1/nodes/{id}/drain"),
        "Cordons a node and moves its instances elsewhere.",
        &[WAIT],
        (Some(Body::Keys("Drain", Evacuate::FIELDS)), NODE),
        handler!(commands::drain),
    ),
    command(
        ("POST", "/v1/nodes/{id}/abort-drain"),
        "Ends the drain of a node; it stays cordoned.",
        &[],
        (None, NODE),
        handler!(commands::abort_drain),
    ),
    command(
        ("POST", "/v1/nodes/{id}/evacuate"),
        "Has a node stop all its instances and take no more work.",
        &[],
        (None, NODE),
        handler!(commands::evacuate),
    ),
    command(
        ("POST", "/v1/nodes/{id}/restore"),
        "Puts an evacuated node back into service.",
        &[],
        (None, NODE),
        handler!(commands::restore),
    ),
    command(
        ("PUT", "/v1/images/{id}"),
        "Keeps a program, of which this is the digest. One that was cut off is sent again and goes on where it was.",
        &[TENANT],
        (Some(Body::Image), IMAGE),
        handler!(images::put),
    ),
    command(
        ("DELETE", "/v1/images/{id}"),
        "Deletes a program that no instance runs, or what there is of one.",
        &[],
        (None, IMAGE),
        handler!(images::delete),
    ),
    command(
        ("PUT", "/v1/configuration"),
        "Puts a cluster configuration into force as a new version, or with `check` says what would come of it. `If-Match` \
         names the version that it was made from.",
        WRITE_CONFIGURATION,
        (Some(Body::Configuration), Content::Object),
        handler!(configuration::put),
    ),
    command(
        ("POST", "/v1/reload"),
        "Reads certificates and all other files again, and puts them in force; at a mistake in one all stays as it was.",
        &[FORCE],
        (None, Content::Object),
        handler!(reload::reload),
    ),
    // For machines: Prometheus, and supervisors.
    get(
        "/metrics",
        "Metrics, in the OpenMetrics text format.",
        &[],
        Content::Other(metrics::MEDIA_TYPE),
        handler!(metrics::metrics),
    ),
    Route {
        access: Access::Anybody,
        ..get(
            "/livez",
            "Whether the process answers at all.",
            &[],
            Content::Other("text/plain"),
            handler!(probes::livez),
        )
    },
    Route {
        access: Access::Anybody,
        ..get(
            "/readyz",
            "Whether the scheduler can do its work.",
            &[VERBOSE],
            Content::Object,
            handler!(probes::readyz),
        )
    },
];
