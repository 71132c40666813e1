//! The parameters of the query string that routes take, each with what it means.

use sched_model::OutputStream;
use sched_model::output::MAX_TAIL_LINES;
use sched_model::query::MAX_LIMIT;

use super::super::events;
use super::{Kind, Param};

/// `match` of lists. Looked up in the core, unlike `selector`.
pub(super) const MATCH: Param = Param {
    name: "match",
    about: "Only rows whose id begins with this, or whose host name is this.",
    kind: Kind::Text,
};

/// `after` of lists: opaque to clients.
pub(super) const AFTER: Param = Param {
    name: "after",
    about: "Where the page begins: `next` of an earlier page.",
    kind: Kind::Text,
};

/// `limit` of lists; the same bounds as a query by SSNTP has.
pub(super) const LIMIT: Param = Param {
    name: "limit",
    about: "Rows wanted at most. There may be fewer on a page that is not the last.",
    kind: Kind::Number {
        min: 1,
        max: MAX_LIMIT,
    },
};

/// `selector` of lists. Tried on rows as JSON, outside the core's lock.
pub(super) const SELECTOR: Param = Param {
    name: "selector",
    about: "An expression that rows must meet, as in `scheduling.require`: about a node's labels, else about fields of the row. \
            May be given several times.",
    kind: Kind::Selector,
};

/// `fields` of lists and single rows.
pub(super) const FIELDS: Param = Param {
    name: "fields",
    about: "The fields of a row that are wanted, separated by commas.",
    kind: Kind::Words(&[]),
};

/// `wait` of commands.
pub(super) const WAIT: Param = Param {
    name: "wait",
    about: "How long to wait for the outcome, such as 30s; at most 5 minutes. Without it the answer says where to follow it.",
    kind: Kind::Wait,
};

/// `strict` of requests that have a START.
pub(super) const STRICT: Param = Param {
    name: "strict",
    about: "Whether to refuse a START rather than warn of what in it does not do what it seems to, such as misspelt keys.",
    kind: Kind::Flag,
};

/// `until` of `POST /v1/instances`.
pub(super) const UNTIL: Param = Param {
    name: "until",
    about: "What `wait` waits for: `running`, as without it, or `ended`.",
    kind: Kind::OneOf(&["running", "ended"]),
};

/// `wait` of `GET /v1/instances/{id}`.
pub(super) const WAIT_FOR_END: Param = Param {
    name: "wait",
    about: "How long to wait until it has ended, such as 30s; at most 5 minutes. It is answered as it is then: `state` says \
            whether it has.",
    kind: Kind::Wait,
};

/// `count` of `POST /v1/explain`; overrides that of the START.
pub(super) const COUNT: Param = Param {
    name: "count",
    about: "How many instances of this kind are asked about.",
    kind: Kind::Number {
        min: 1,
        max: sched_model::scheduling::MAX_COUNT,
    },
};

/// `alternates` of `POST /v1/explain`; overrides that of the START.
pub(super) const ALTERNATES: Param = Param {
    name: "alternates",
    about: "How many further nodes are to be named that it could go to instead, best first.",
    kind: Kind::Number {
        min: 0,
        max: sched_model::scheduling::MAX_ALTERNATES,
    },
};

/// `ended` of `GET /v1/instances`.
pub(super) const ENDED: Param = Param {
    name: "ended",
    about: "Whether to list those that have ended, as far as they are remembered, rather than those that are there.",
    kind: Kind::Flag,
};

/// `tenant` of `PUT /v1/images/{id}`.
pub(super) const TENANT: Param = Param {
    name: "tenant",
    about: "The tenant against whose quota the image counts.",
    kind: Kind::Text,
};

/// `forget` of `DELETE /v1/instances/{id}`.
pub(super) const FORGET: Param = Param {
    name: "forget",
    about: "Whether to forget it although its node is lost and it is not known whether it runs.",
    kind: Kind::Flag,
};

/// `verbose` of `GET /readyz`.
pub(super) const VERBOSE: Param = Param {
    name: "verbose",
    about: "Whether to say how each of the conditions is.",
    kind: Kind::Flag,
};

/// `force` of `POST /v1/reload`.
pub(super) const FORCE: Param = Param {
    name: "force",
    about: "Whether to take a cluster configuration that has changed in its file although a newer version was set otherwise.",
    kind: Kind::Flag,
};

/// The number of a version of the cluster configuration.
const VERSION_NUMBER: Kind = Kind::Number {
    min: 1,
    max: u32::MAX,
};

/// Parameters of `GET /v1/configuration`.
pub(super) const READ_CONFIGURATION: &[Param] = &[
    Param {
        name: "version",
        about: "The version that is wanted; without it the one in force.",
        kind: VERSION_NUMBER,
    },
    Param {
        name: "file",
        about: "Whether the scheduler's own file is wanted, as it is now.",
        kind: Kind::Flag,
    },
    Param {
        name: "document",
        about: "Whether the answer is the document alone, byte for byte.",
        kind: Kind::Flag,
    },
];

/// Parameters of `PUT /v1/configuration`.
pub(super) const WRITE_CONFIGURATION: &[Param] = &[
    Param {
        name: "check",
        about: "Whether to change nothing, and say which instances would not be placed where they are.",
        kind: Kind::Flag,
    },
    Param {
        name: "if_version",
        about: "The version that has to be in force, as in the header `If-Match`.",
        kind: VERSION_NUMBER,
    },
    Param {
        name: "note",
        about: "What the version is for, a line that is listed with it.",
        kind: Kind::Text,
    },
];

/// Parameters that lists have in common.
pub(super) const LIST: &[Param] = &[MATCH, AFTER, LIMIT, SELECTOR, FIELDS];

/// Parameters of `GET /v1/history`; rows have to meet all.
pub(super) const HISTORY: &[Param] = &[
    AFTER,
    LIMIT,
    FIELDS,
    Param {
        name: "since_ms",
        about: "Only what ended at this moment or later, in milliseconds of Unix time.",
        kind: Kind::Offset,
    },
    Param {
        name: "until_ms",
        about: "Only what ended before this moment, in milliseconds of Unix time.",
        kind: Kind::Offset,
    },
    Param {
        name: "state",
        about: "Only what ended so; `failed` is all that went wrong, also `time_limit`, `oom`, `not_started`, `node_lost` \
                and `cut_off`.",
        kind: Kind::OneOf(sched_model::EndOutcome::KNOWN),
    },
    Param {
        name: "tenant",
        about: "Only instances of this tenant.",
        kind: Kind::Text,
    },
    Param {
        name: "node",
        about: "Only what was on the node of this UUID or host name.",
        kind: Kind::Text,
    },
    Param {
        name: "name",
        about: "Only what was called so; with a `*` at the end, what it was called begins so.",
        kind: Kind::Text,
    },
    Param {
        name: "program",
        about: "Only what ran this program: its first word, with or without directories, or all of it; with a `*` at the \
                end, it begins so.",
        kind: Kind::Text,
    },
    Param {
        name: "instance",
        about: "Only ends of this instance.",
        kind: Kind::Text,
    },
    Param {
        name: "by",
        about: "Only what these ended by command: all of `by`, or with a `*` at the end its beginning, or behind a `*` a part of it.",
        kind: Kind::Text,
    },
    Param {
        name: "labels",
        about: "Only what has all of these labels: KEY=VALUE, or KEY for any value, separated by commas.",
        kind: Kind::Text,
    },
    Param {
        name: "array",
        about: "Only ends of elements of the array of this UUID.",
        kind: Kind::Text,
    },
];

/// Parameters of `GET /v1/events`. Those that narrow the stream must all hold.
pub(super) const FOLLOW: &[Param] = &[
    Param {
        name: "topics",
        about: "Which events, separated by commas; all of these without it.",
        kind: Kind::Words(events::TOPICS),
    },
    Param {
        name: "instance",
        about: "Only those about this instance.",
        kind: Kind::Text,
    },
    Param {
        name: "node",
        about: "Only those about the node with this UUID.",
        kind: Kind::Text,
    },
    Param {
        name: "from",
        about: "Behind which event to begin: an id or `sequence` of an answer, or `now`. `Last-Event-ID` counts over it.",
        kind: Kind::Text,
    },
];

/// Parameters of `GET /v1/instances/{id}/output`. `tail` counts over `offset` where both are given.
pub(super) const READ: &[Param] = &[
    Param {
        name: "tail",
        about: "Begin with so many of the last lines, rather than with the first that is kept.",
        kind: Kind::Number {
            min: 0,
            max: MAX_TAIL_LINES as u32,
        },
    },
    Param {
        name: "offset",
        about: "Begin behind so many bytes from the first that was written.",
        kind: Kind::Offset,
    },
    Param {
        name: "follow",
        about: "Whether to go on with what is written until the instance ends.",
        kind: Kind::Flag,
    },
    Param {
        name: "stream",
        about: "Which stream, of an instance whose START has them kept apart. Without it, standard output, or both where they \
                are kept together.",
        kind: Kind::OneOf(OutputStream::KNOWN),
    },
];
