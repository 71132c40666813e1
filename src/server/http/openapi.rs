//! `GET /v1/openapi.json`: the interface as an OpenAPI 3.1 document, made from the table of routes ([`ROUTES`]) and the
//! shapes of the types that handlers read and write. So it cannot fall behind them; what it says beyond them (patterns,
//! `required`) is in this file.
//!
//! Of a route come the method, path, parameters, body and answers; of `sched_model` the fields of a row:
//!
//! ```text
//! Route { method: "GET", path: "/v1/nodes/{id}", params: [FIELDS], content: One("node", "Node", NodeView::FIELDS), … }
//!
//! "/v1/nodes/{id}": {"get": {"operationId": "get_v1_nodes_id", "x-roles": "VIEWER, OPERATOR", "parameters": […],
//!                            "responses": {"200": {… "#/components/schemas/Node" …}, "default": {… Problem …}}}}
//! ```
//!
//! The page and its files are not in the document.

use std::sync::LazyLock;

use axum::http::StatusCode;
use proto_frames::payload::Start;
use sched_model::value::{Field, Record, Shape};
use serde_json::{Map, Value, json};

use super::call::{Answer, Call, text_response};
use super::routes::{Access, Body, Content, Kind, Param, ROUTES, Route};
use super::serve::now;

/// Times for `wait` as clients usually write them, none above the longest. Other forms of humantime are taken as well;
/// a pattern for all of them would not be readable.
const WAIT_PATTERN: &str = "^([0-9]{1,5}ms|[0-9]{1,2}s|[12][0-9]{2}s|300s|[0-5]m)$";

/// Texts without control and format characters, line and paragraph separators and Unicode's specials, which no id has.
const ID_PATTERN: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890-\\u0891\\u08e2\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff0-\\uffff]+$";

/// The document as text, made with the first request for it. It never changes while the process runs.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// `GET /v1/openapi.json`. No `sequence`: it does not depend on the cluster.
pub(super) fn openapi(_: Call) -> impl Future<Output = Answer> {
    let text = DOCUMENT.as_str();
    now(Ok(text_response(StatusCode::OK, "application/json", text)))
}

/// The whole document. Routes of one path become one entry with several methods.
fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        // Several routes may have one path, with different methods.
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ciao-scheduler",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Nodes, instances and the queue of a cluster, commands on them, and events. Every peer presents a \
                certificate; its roles say what it may do.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"mutualTLS": []}],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {"mutualTLS": {"type": "mutualTLS"}},
            "responses": {"Problem": {
                "description": "What is wrong, and what helps (RFC 9457).",
                "content": {"application/problem+json": {"schema": reference("Problem")}},
            }},
        },
    })
}

/// One method of one path: OpenAPI's Operation Object. `x-roles` is an extension: the roles of which the certificate
/// must have one.
fn operation(route: &Route) -> Value {
    let mut parameters: Vec<Value> = route
        .params
        .iter()
        .map(|param| parameter(route, param))
        .collect();
    // Tighter than the handlers, which take any text and answer 404 to what names nothing.
    if route.path.contains("{id}") {
        parameters.insert(
            0,
            json!({
                "name": "id",
                "in": "path",
                "required": true,
                "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": ID_PATTERN},
            }),
        );
    }
    // The one header that a route reads as a parameter: browsers send it by themselves when they connect once more.
    if route.path == "/v1/events" {
        parameters.push(json!({
            "name": "Last-Event-ID",
            "in": "header",
            "description": "The id of the last event that was received.",
            "schema": {"type": "string"},
        }));
    }
    let who = match route.access {
        Access::Anybody => "every peer",
        Access::Read => "VIEWER, OPERATOR",
        Access::Command => "OPERATOR",
    };
    // What every operation has; the body follows for those that take one.
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.about,
        "x-roles": who,
        "parameters": parameters,
        "responses": responses(route),
    });
    if let Some(body) = route.body {
        operation["requestBody"] = request_body(body);
    }
    operation
}

/// What a request's body may be.
fn request_body(body: Body) -> Value {
    let (is_required, content) = match body {
        // YAML is any text to the schema: what is in it has the same shape as the JSON.
        Body::Start => (
            true,
            json!({
                "application/json": {"schema": reference("StartRequest")},
                "application/yaml": {"schema": {"type": "string"}},
            }),
        ),
        Body::Array => (
            true,
            json!({"application/json": {"schema": reference("ArrayRequest")}}),
        ),
        Body::Configuration => (
            true,
            json!({"application/yaml": {"schema": {"type": "string"}}}),
        ),
        // Any bytes, which in OpenAPI 3.1 is a media type without a schema.
        Body::Image => (true, json!({"application/octet-stream": {}})),
        Body::Keys(name, _) => (
            false,
            json!({"application/json": {"schema": reference(name)}}),
        ),
    };
    json!({"required": is_required, "content": content})
}

/// A name that is unique in the document, by which generators of clients name a function, such as
/// `get_v1_instances_id_history`.
fn operation_id(route: &Route) -> String {
    let path = route
        .path
        .replace(['{', '}', '.'], "")
        .replace(['/', '-'], "_");
    format!("{}{path}", route.method.to_ascii_lowercase())
}

/// One parameter of the query string. Lists of words are one value with commas (`explode: false`), selectors are given
/// once each (`explode: true`).
fn parameter(route: &Route, param: &Param) -> Value {
    let schema = match param.kind {
        Kind::Text => json!({"type": "string"}),
        Kind::Wait => json!({"type": "string", "pattern": WAIT_PATTERN}),
        Kind::OneOf(words) => json!({"type": "string", "enum": words}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Offset => json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}),
        Kind::Number { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::Selector => json!({"type": "array", "items": {"type": "string"}}),
        Kind::Words([]) => {
            json!({"type": "array", "items": {"type": "string", "enum": fields_of(route)}})
        }
        Kind::Words(known) => json!({"type": "array", "items": {"type": "string", "enum": known}}),
    };
    // A selector may have commas in it, so it cannot be one of a list.
    let is_list = matches!(param.kind, Kind::Words(_));
    json!({
        "name": param.name,
        "in": "query",
        "description": param.about,
        "schema": schema,
        "style": "form",
        "explode": !is_list,
    })
}

/// The fields of the rows that a route answers with, for its parameter `fields`.
fn fields_of(route: &Route) -> Vec<&'static str> {
    let fields = match route.content {
        Content::Page(_, fields) | Content::One(_, _, fields) | Content::Outcome(_, _, fields) => {
            fields
        }
        Content::Object | Content::Other(_) => &[],
    };
    fields.iter().map(|field| field.key).collect()
}

/// What a route answers: 200, for commands 202 as well, for `/readyz` 503 as well, and a problem document for all else.
fn responses(route: &Route) -> Value {
    let (status, mut content) = match route.content {
        Content::Page(name, _) => ("200", json_content(&page(reference(name)))),
        Content::One(key, name, _) => ("200", json_content(&one(key, &reference(name)))),
        Content::Outcome(key, name, _) => ("202", json_content(&outcome(key, &reference(name)))),
        Content::Object => ("200", json_content(&json!({"type": "object"}))),
        Content::Other(kind) => {
            // The document names the media type without its parameters.
            let kind = kind.split(';').next().unwrap_or(kind);
            ("200", json!({kind: {"schema": {"type": "string"}}}))
        }
    };
    if let Some(Body::Start | Body::Array) = route.body {
        let schema = &mut content["application/json"]["schema"];
        schema["properties"]["warnings"] = warnings();
        if let Some(required) = schema["required"].as_array_mut() {
            required.push("warnings".into());
        }
    }
    let mut responses = Map::new();
    let described = json!({"description": route.about, "content": content});
    // A command has two good ends: done within its `wait`, or taken in.
    if status == "202" {
        let mut taken = described.clone();
        taken["description"] =
            "It is taken in; `follow` says where to see what comes of it.".into();
        responses.insert("202".to_owned(), taken);
    }
    if let Some(Body::Image) = route.body {
        let mut created = described.clone();
        created["description"] = "All of it is there now, and was not before.".into();
        responses.insert("201".to_owned(), created);
    }
    responses.insert("200".to_owned(), described);
    if route.path == "/readyz" {
        let unready = json!({
            "description": "A condition does not hold.",
            "content": json_content(&json!({"type": "object"})),
        });
        responses.insert("503".to_owned(), unready);
    }
    let problem = json!({"$ref": "#/components/responses/Problem"});
    responses.insert("default".to_owned(), problem);
    Value::Object(responses)
}

/// An answer's content of this schema.
fn json_content(schema: &Value) -> Value {
    json!({"application/json": {"schema": schema}})
}

/// The schema of a page of rows.
fn page(item: Value) -> Value {
    json!({
        "type": "object",
        "required": ["items", "next", "sequence"],
        "properties": {
            "items": {"type": "array", "items": item},
            "next": {"type": ["string", "null"], "description": "Where the next page begins; null on the last."},
            "forgotten": {"type": "integer", "description": "With `ended`: how many earlier ends are forgotten."},
            "complete_for_ms": {
                "type": ["integer", "null"],
                "description": "With `ended`: for how long none was forgotten, by the last page.",
            },
            "sequence": reference("Sequence"),
        },
    })
}

/// The schema of an answer about one thing, under this key.
fn one(key: &str, item: &Value) -> Value {
    json!({
        "type": "object",
        "required": [key, "sequence"],
        "properties": {key: item, "sequence": reference("Sequence")},
    })
}

/// The schema of the answer to a command. The row is null for an instance that is forgotten by then.
fn outcome(key: &str, item: &Value) -> Value {
    json!({
        "type": "object",
        "required": [key, "sequence", "follow"],
        "properties": {
            key: {"anyOf": [item, {"type": "null"}]},
            "sequence": reference("Sequence"),
            "follow": {"type": "string"},
        },
    })
}

/// The schema of what is warned of in a START.
fn warnings() -> Value {
    json!({
        "type": "array",
        "items": {"type": "string"},
        "description": "What in the START does not do what it seems to, such as misspelt keys.",
    })
}

/// A reference to a schema of the document.
fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// All schemas by name. Rows have them from the routes; a type that several routes answer with is put in several times,
/// with the same content. Bodies of commands take no other keys, as `from_json` takes none; rows may have more.
fn schemas() -> Value {
    let mut schemas = Map::new();
    for route in ROUTES {
        if let Content::Page(name, fields)
        | Content::One(_, name, fields)
        | Content::Outcome(_, name, fields) = route.content
        {
            schemas.insert(name.to_owned(), record(fields));
        }
        if let Some(Body::Keys(name, fields)) = route.body {
            let mut schema = record(fields);
            schema["additionalProperties"] = false.into();
            schemas.insert(name.to_owned(), schema);
        }
    }
    // A START has no route's table behind it: its one key that must be there is said here.
    let mut start = record(Start::FIELDS);
    start["required"] = json!(["instance_uuid"]);
    // The schema made from the type has no bounds.
    start["properties"]["instance_uuid"] =
        json!({"type": "string", "minLength": 1, "pattern": ID_PATTERN});
    let start = json!({
        "type": "object",
        "required": ["start"],
        "properties": {"start": start},
    });

    let array = json!({
        "type": "object",
        "required": ["start"],
        "additionalProperties": false,
        "properties": {
            "array": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "indexes": {"type": "string"},
                    "running_max": {"type": "integer", "minimum": 1},
                },
            },
            "start": start["properties"]["start"],
            "values": {"type": "array", "items": {"type": "string"}},
        },
    });
    schemas.insert("ArrayRequest".to_owned(), array);
    schemas.insert("StartRequest".to_owned(), start);
    // An [`EventId`](super::ring::EventId) as it prints.
    let sequence = json!({
        "type": "string",
        "description": "The place in the stream of events at which an answer holds: an event's id.",
        "pattern": "^[0-9a-f]{8}-[0-9]+$",
    });
    schemas.insert("Sequence".to_owned(), sequence);
    let text = json!({"type": "string"});
    let problem = json!({
        "type": "object",
        "required": ["type", "title", "status", "detail", "reason"],
        "properties": {
            "type": text, "title": text, "status": {"type": "integer"}, "detail": text,
            "reason": {"type": "string", "description": "The scheduler's word for it."},
            "field": {"type": "string", "description": "The field or parameter at fault."},
            "help": {"type": "string", "description": "What helps."},
            "warnings": warnings(),
        },
    });
    schemas.insert("Problem".to_owned(), problem);
    Value::Object(schemas)
}

/// The schema of a mapping with known keys. None is required: an absent one has its default.
fn record(fields: &[Field]) -> Value {
    let properties = fields
        .iter()
        .map(|field| (field.key.to_owned(), shape(&field.shape)));
    let properties: Map<String, Value> = properties.collect();
    json!({"type": "object", "properties": properties})
}

/// The schema of a value. Bounds that 64 bits do not have are left out.
fn shape(of: &Shape) -> Value {
    match of {
        Shape::Text => json!({"type": "string"}),
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Int { min, max } => {
            let bounds = (i64::try_from(*min), u64::try_from(*max));
            match bounds {
                (Ok(min), Ok(max)) => json!({"type": "integer", "minimum": min, "maximum": max}),
                // No bound rather than one that JSON tools would round.
                _ => json!({"type": "integer"}),
            }
        }
        Shape::Record(fields) => record(fields),
        Shape::Entries(of) => json!({"type": "object", "additionalProperties": shape(of)}),
        Shape::List(of) => json!({"type": "array", "items": shape(of)}),
        Shape::Any => json!({}),
    }
}
