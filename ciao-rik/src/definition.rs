//! Definitions: what is read of a controller's JSON, the START that it becomes, and how a worker's node finds it in
//! that again.
//!
//! Only `name`, `replicas`, `spec.requirements`, `spec.scheduling` and some of the containers' environment
//! ([`environment`]) are read here; everything else is for the worker.
//! A START for RIK is two documents: what the scheduler needs, and behind `---`, where payloads have further documents
//! for launchers, one line of JSON with the id and the definition. The definition stands there as its controller wrote
//! it, but for line ends between its values.
//!
//! ```text
//! {"name": "web", "spec": {"requirements": {"mem_mb": 256}, "containers": […]}}      from the controller
//!
//! start:                                                                              to the scheduler
//!   instance_uuid: 5f0c…
//!   vm_type: rik
//!   …
//! ---
//! {"instance_id":"web-1","definition":{"name": "web", "spec": {…}}}
//! ```

mod environment;

use std::borrow::Cow;

use bytes::{BufMut as _, Bytes, BytesMut};
use proto_frames::payload::{
    OnNodeLoss, Payload as _, PayloadError, Requirements, Scheduling, Span, Start,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Longest definition in bytes: with the first document and the id it stays within what a START may have (256 KiB).
pub(crate) const MAX_LEN: usize = 192 * 1024;

/// The `vm_type` of these STARTs. Workers' nodes announce it alone, so that no launcher for processes gets one, and
/// workers get no others.
pub(crate) const VM_TYPE: &str = "rik";

/// The line between the two documents. The first document cannot contain it: by YAML's rules such a line ends a
/// document, also within a text. The second is one line.
const MARK: &[u8] = b"\n---\n";

/// Most instances of one set.
pub(crate) const MAX_REPLICAS: u32 = 10_000;

/// What instances ask for and how they are placed, unless their definition says it: values of flags.
#[derive(Debug, Clone)]
pub(crate) struct Defaults {
    /// Memory, MiB.
    pub(crate) mem_mb: i64,
    /// Virtual CPUs.
    pub(crate) vcpus: i64,
    /// How long an instance may wait for room in the scheduler; afterwards ciao-rik sends it again.
    pub(crate) queue: Span,
    /// What the scheduler does when the worker is lost.
    pub(crate) on_node_loss: OnNodeLoss,
    /// UUID of the tenant that all instances belong to.
    pub(crate) tenant: String,
}

/// A definition that was checked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Definition {
    /// The JSON, on one line.
    pub(crate) json: String,
    /// The workload's `name`; may be empty. A set's instances are called after it.
    pub(crate) name: String,
    /// How many instances a set of it has; 1 where it says nothing.
    pub(crate) replicas: u32,
    /// `spec.requirements`.
    requirements: Option<Asked>,
    /// `spec.scheduling`, checked with the same code as that of a START.
    scheduling: Option<Scheduling>,
    /// Whether it says what becomes of an instance whose worker is lost.
    says_on_node_loss: bool,
}

/// Why a definition cannot be scheduled; the controller gets the text with `INVALID_ARGUMENT`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DefinitionError {
    /// It is too long.
    #[error("the definition has {0} bytes; at most {MAX_LEN} are taken")]
    TooLong(usize),
    /// It is not JSON, or a key that is read has a value of another type.
    #[error("the definition is not the JSON of a workload: {0}")]
    Json(#[from] serde_json::Error),
    /// It is empty, or JSON of another kind than an object.
    #[error("the definition is not the JSON of a workload: it is no object")]
    NoObject,
    /// `replicas` is more than a set may have.
    #[error("the definition's replicas: {0} is more than the {MAX_REPLICAS} that a set may have")]
    Replicas(u32),
    /// An entry of a container's environment that is read here is none.
    #[error("the definition's environment: {0}")]
    Environment(String),
    /// `spec.requirements` or `spec.scheduling` cannot stand in a START.
    #[error("the definition's spec: {0}")]
    Spec(#[from] PayloadError),
}

/// The keys that are read.
#[derive(Deserialize)]
struct Read<'a> {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    replicas: Option<u32>,
    #[serde(default)]
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
}

#[derive(Default, Deserialize)]
struct Spec<'a> {
    #[serde(default)]
    requirements: Option<Asked>,
    #[serde(default)]
    scheduling: Option<Value>,
    #[serde(borrow, default)]
    containers: Option<&'a RawValue>,
}

/// `spec.requirements`, as in a START; a missing key is a default's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
struct Asked {
    #[serde(default)]
    mem_mb: Option<i64>,
    #[serde(default)]
    vcpus: Option<i64>,
}

/// The second document. The definition is not parsed but kept as text, so that the worker gets it as it was written.
#[derive(Serialize, Deserialize)]
struct Second<'a> {
    #[serde(borrow)]
    instance_id: Cow<'a, str>,
    #[serde(borrow)]
    definition: &'a RawValue,
}

/// What a worker is given of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Carried {
    /// The controller's id.
    pub(crate) id: String,
    /// Its definition.
    pub(crate) json: String,
}

impl DefinitionError {
    /// Whether the definition cannot be read at all, which RIK's own scheduler refuses as well.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self, Self::Json(_) | Self::NoObject)
    }
}

impl Definition {
    /// Reads and checks what a controller sent, or what is kept.
    ///
    /// # Errors
    /// [`DefinitionError`].
    pub(crate) fn read(text: &str) -> Result<Self, DefinitionError> {
        if text.len() > MAX_LEN {
            return Err(DefinitionError::TooLong(text.len()));
        }
        // Within texts JSON has no line ends: these stand between values.
        let json = text.trim().replace(['\n', '\r'], " ");
        if !json.starts_with('{') {
            return Err(DefinitionError::NoObject);
        }
        let read: Read<'_> = serde_json::from_str(&json)?;
        let mut spec = read.spec.unwrap_or_default();
        if let Some(containers) = spec.containers {
            environment::add(containers, &mut spec.requirements, &mut spec.scheduling)?;
        }
        let on_node_loss = spec
            .scheduling
            .as_ref()
            .and_then(|it| it.get("on_node_loss"));
        Ok(Self {
            says_on_node_loss: on_node_loss.is_some_and(Value::is_string),
            name: read.name.unwrap_or_default(),
            replicas: read.replicas.unwrap_or(1),
            scheduling: scheduling(spec.requirements, spec.scheduling)?,
            requirements: spec.requirements,
            json,
        })
    }

    /// The definition of a set. For a single instance `replicas` means nothing.
    ///
    /// # Errors
    /// [`DefinitionError::Replicas`].
    pub(crate) fn of_set(self) -> Result<Self, DefinitionError> {
        match self.replicas {
            0..=MAX_REPLICAS => Ok(self),
            replicas => Err(DefinitionError::Replicas(replicas)),
        }
    }

    /// The START of an instance of it, both documents.
    ///
    /// `name` is the instance's name in the scheduler's lists, and may be empty; `group` keeps the instances of a set
    /// apart, unless the definition has a group of its own. What the definition says comes before `defaults`.
    /// `relocate` is always set: an instance of RIK can be started again on another worker.
    pub(crate) fn start(
        &self,
        instance: &str,
        id: &str,
        name: &str,
        group: Option<&str>,
        defaults: &Defaults,
    ) -> Bytes {
        let asked = self.requirements;
        let mut scheduling = self.scheduling.clone().unwrap_or_default();
        scheduling.queue.get_or_insert(defaults.queue);
        if !self.says_on_node_loss {
            scheduling.on_node_loss = defaults.on_node_loss.clone();
        }
        scheduling.relocate = Some(true);
        if scheduling.name.is_empty() {
            name.clone_into(&mut scheduling.name);
        }
        if let (None, Some(group)) = (&scheduling.group, group) {
            scheduling.group = Some(apart(group));
        }
        let start = Start {
            instance_uuid: instance.to_owned(),
            tenant_uuid: defaults.tenant.clone(),
            vm_type: VM_TYPE.to_owned(),
            requirements: Requirements {
                mem_mb: asked.and_then(|it| it.mem_mb).unwrap_or(defaults.mem_mb),
                vcpus: asked.and_then(|it| it.vcpus).unwrap_or(defaults.vcpus),
                ..Requirements::default()
            },
            scheduling: Some(scheduling),
            ..Start::default()
        };
        carry(&start.encode(), id, &self.json)
    }
}

/// Whether two definitions are equal as JSON, `replicas` aside.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    is_equal(one, other, without_replicas)
}

/// Whether two definitions make the same instance: `replicas` means nothing for one, and RIK's controller draws the port
/// of a Function afresh for each of its calls.
pub(crate) fn makes_the_same(one: &str, other: &str) -> bool {
    is_equal(one, other, |json| {
        let mut definition = without_replicas(json)?;
        if definition["kind"] == "Function"
            && let Some(exposure) = definition.pointer_mut("/spec/function/exposure")
            && let Some(exposure) = exposure.as_object_mut()
        {
            exposure.remove("port");
        }
        Some(definition)
    })
}

/// Whether two definitions are equal as they are read. What is nested too deeply for that is equal as text alone.
fn is_equal(one: &str, other: &str, read: impl Fn(&str) -> Option<Value>) -> bool {
    one == other || read(one).is_some_and(|one| Some(one) == read(other))
}

fn without_replicas(json: &str) -> Option<Value> {
    let mut definition: Value = serde_json::from_str(json).ok()?;
    definition.as_object_mut().map(|it| it.remove("replicas"));
    Some(definition)
}

/// The instance's name in the scheduler's lists: its id, where that can be one. Empty where the scheduler has refused
/// it: a name must be the only one of its kind.
pub(crate) fn name(id: &str, is_nameless: bool) -> &str {
    match proto_frames::payload::scheduling::is_instance_name(id) {
        true if !is_nameless => id,
        _ => "",
    }
}

/// The group that the instances of a set are in, so that the scheduler can keep them apart: at most 40 plain characters
/// of the workload's id.
pub(crate) fn group(workload: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let plain: String = workload.chars().filter(is_plain).take(40).collect();
    format!("rik-{plain}")
}

/// A group whose members had better be on different nodes; they may share one where there is no other.
fn apart(id: &str) -> proto_frames::payload::scheduling::Group {
    use proto_frames::payload::scheduling::{Group, GroupPolicy};
    Group {
        id: id.to_owned(),
        policy: GroupPolicy::SoftAntiAffinity,
        ..Group::default()
    }
}

/// Reads `spec.scheduling` by putting it into a START and reading that, so that both have the same keys, limits and
/// errors. `None` where the definition has neither requirements nor scheduling.
///
/// # Errors
/// What the reader of STARTs says.
fn scheduling(
    asked: Option<Asked>,
    value: Option<Value>,
) -> Result<Option<Scheduling>, PayloadError> {
    let requirements = asked.map(
        |it| serde_json::json!({"mem_mb": it.mem_mb.unwrap_or(0), "vcpus": it.vcpus.unwrap_or(0)}),
    );
    if requirements.is_none() && value.is_none() {
        return Ok(None);
    }
    let mut start = serde_json::Map::new();
    start.extend(requirements.map(|it| ("requirements".to_owned(), it)));
    start.extend(value.map(|it| ("scheduling".to_owned(), it)));
    // JSON is YAML.
    let text = serde_json::json!({ "start": start }).to_string();
    Ok(Start::decode_template(text.as_bytes())?.scheduling)
}

/// Puts the second document behind a START.
fn carry(start: &[u8], id: &str, json: &str) -> Bytes {
    let mut payload = BytesMut::with_capacity(start.len() + json.len() + id.len() + 64);
    payload.put_slice(start.trim_ascii_end());
    payload.put_slice(MARK);
    payload.put_slice(br#"{"instance_id":"#);
    // A text becomes JSON always.
    payload.put_slice(&serde_json::to_vec(id).unwrap_or_default());
    payload.put_slice(br#","definition":"#);
    payload.put_slice(json.as_bytes());
    payload.put_slice(b"}\n");
    payload.freeze()
}

/// Reads the second document of a START that came to a worker's node. Any client of the scheduler can send such a
/// START, so that nothing about it is sure.
///
/// # Errors
/// A text for the START's failure.
pub(crate) fn carried(payload: &[u8]) -> Result<Carried, String> {
    let at = memchr::memmem::find(payload, MARK);
    let at = at.ok_or("it has no second document with instance_id and definition")?;
    let second: Second<'_> =
        serde_json::from_slice(&payload[at + MARK.len()..]).map_err(|it| it.to_string())?;
    Ok(Carried {
        id: second.instance_id.into_owned(),
        json: second.definition.get().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{
  "apiVersion": "v0", "kind": "Pod", "name": "web", "replicas": 3, "anything": [1.50, {"else": "a\nb"}],
  "spec": {"containers": [{"name": "c", "image": "i:1", "env": [{"name": "X", "value": "---\n..."}]}]}
}"#;

    fn defaults() -> Defaults {
        Defaults {
            mem_mb: 64,
            vcpus: 1,
            queue: Span::from_ms(1000),
            on_node_loss: OnNodeLoss::Report,
            tenant: String::new(),
        }
    }

    const UUID: &str = "00000001-0000-4000-8000-000000000001";

    #[test]
    fn a_definition_reaches_the_worker_with_all_its_keys() {
        let definition = Definition::read(POD).unwrap();
        assert_eq!((&*definition.name, definition.replicas), ("web", 3));
        let payload = definition.start(UUID, "my db/ä\n---\n", "", None, &defaults());
        let start = Start::decode(&payload).unwrap();
        assert_eq!(
            (&*start.instance_uuid, start.requirements.mem_mb),
            (UUID, 64)
        );
        let carried = carried(&payload).unwrap();
        assert_eq!(carried.id, "my db/ä\n---\n");
        assert_eq!(
            carried.json,
            POD.replace('\n', " "),
            "character for character"
        );
    }

    #[test]
    fn a_definition_may_say_what_it_asks_for() {
        let text = r#"{"spec": {"requirements": {"mem_mb": 512}, "scheduling": {"priority": 70, "queue": "0s"}}}"#;
        let payload =
            Definition::read(text)
                .unwrap()
                .start(UUID, "a", "a", Some("set"), &defaults());
        let start = Start::decode(&payload).unwrap();
        assert_eq!(
            (start.requirements.mem_mb, start.requirements.vcpus),
            (512, 1)
        );
        let scheduling = start.scheduling.unwrap();
        assert_eq!(
            (scheduling.priority, scheduling.queue),
            (Some(70), Some(Span::from_ms(0)))
        );
        assert_eq!(
            (&*scheduling.name, &*scheduling.group.unwrap().id),
            ("a", "set")
        );
    }

    #[test]
    fn what_is_no_definition_is_refused_with_what_is_wrong() {
        let refused = |text: &str| Definition::read(text).unwrap_err().to_string();
        assert!(refused("").contains("is not the JSON of a workload"));
        assert!(refused("[]").contains("is not the JSON of a workload"));
        assert!(refused(r#"{"replicas": -1}"#).contains("invalid value"));
        let many = Definition::read(r#"{"replicas": 10001}"#).unwrap();
        let said = many.of_set().unwrap_err().to_string();
        assert!(said.contains("more than the 10000"), "{said}");
        let said = refused(r#"{"spec": {"scheduling": {"prioritty": 1}}}"#);
        assert!(said.contains("prioritty"), "{said}");
        let said = refused(r#"{"spec": {"requirements": {"mem_mb": -1}}}"#);
        assert!(said.contains("mem_mb"), "{said}");
        let long = format!(r#"{{"name": "{}"}}"#, "x".repeat(MAX_LEN));
        assert!(refused(&long).contains("at most 196608 are taken"));
    }

    /// What RIK's own controller makes of a definition: it keeps the keys that it knows, and their types.
    fn pod(env: &str) -> String {
        format!(
            r#"{{"apiVersion":"v0","kind":"Pod","name":"web","spec":{{"containers":[{{"name":"c","image":"i:1","env":[{env}],"ports":null}}],"function":null}},"replicas":null}}"#
        )
    }

    fn entry(name: &str, value: &str) -> String {
        format!(r#"{{"name":"{name}","value":"{value}"}}"#)
    }

    #[test]
    fn what_an_instance_asks_for_may_stand_in_the_environment_of_a_container() {
        let env = [
            entry("PATH", "/bin"),
            entry("CIAO_START_MEM_MB", "512"),
            entry("CIAO_START_VCPUS", "2"),
            entry("CIAO_START_PRIORITY", "70"),
            entry("CIAO_START_ON_NODE_LOSS", "restart"),
        ];
        let definition = Definition::read(&pod(&env.join(","))).unwrap();
        let payload = definition.start(UUID, "a", "a", None, &defaults());
        let start = Start::decode(&payload).unwrap();
        let asked = (start.requirements.mem_mb, start.requirements.vcpus);
        assert_eq!(asked, (512, 2));
        let scheduling = start.scheduling.unwrap();
        assert_eq!(scheduling.priority, Some(70));
        assert_eq!(scheduling.on_node_loss, OnNodeLoss::Restart);
        assert!(
            carried(&payload).unwrap().json.contains("CIAO_START_VCPUS"),
            "the worker gets the definition as it was written"
        );
    }

    #[test]
    fn a_definition_that_wants_a_report_of_a_lost_worker_comes_before_the_flag() {
        let restart = Defaults {
            on_node_loss: OnNodeLoss::Restart,
            ..defaults()
        };
        let env = pod(&entry("CIAO_START_ON_NODE_LOSS", "report"));
        let spec = r#"{"spec": {"scheduling": {"on_node_loss": "report"}}}"#;
        for (text, expected) in [
            (&*env, OnNodeLoss::Report),
            (spec, OnNodeLoss::Report),
            ("{}", OnNodeLoss::Restart),
        ] {
            let definition = Definition::read(text).unwrap();
            let payload = definition.start(UUID, "a", "a", None, &restart);
            let scheduling = Start::decode(&payload).unwrap().scheduling.unwrap();
            assert_eq!(scheduling.on_node_loss, expected, "{text}");
        }
    }

    #[test]
    fn what_the_environment_asks_for_is_checked() {
        let refused = |env: &str| Definition::read(&pod(env)).unwrap_err().to_string();
        for (name, value) in [
            ("MEM_MB", "lots"),
            ("MEM_MB", "-1"),
            ("VCPUS", "1.5"),
            ("PRIORITY", "101"),
            ("ON_NODE_LOSS", "wait"),
            ("MEMORY", "1"),
        ] {
            let name = format!("CIAO_START_{name}");
            let said = refused(&entry(&name, value));
            assert!(said.contains(&name), "{said}");
        }
        let twice = [1, 2].map(|it| entry("CIAO_START_VCPUS", &it.to_string()));
        assert!(refused(&twice.join(",")).contains("twice"));
        let number = r#"{"name":"CIAO_START_VCPUS","value":2}"#;
        assert!(refused(number).contains("CIAO_START_VCPUS"));
        let both = r#"{"spec": {"requirements": {"mem_mb": 1}, "containers": [{"env": [{"name": "CIAO_START_MEM_MB", "value": "2"}]}]}}"#;
        let said = Definition::read(both).unwrap_err().to_string();
        assert!(said.contains("twice"), "{said}");
        // Elsewhere such a text is nobody's but the worker's.
        Definition::read(
            r#"{"name": "CIAO_START_", "spec": {"containers": {"env": "CIAO_START_X"}}}"#,
        )
        .unwrap();
    }

    #[test]
    fn definitions_that_are_nested_too_deeply_to_be_compared_are_the_same_only_as_texts() {
        let nested = |image: &str| {
            let (open, close) = ("[".repeat(200), "]".repeat(200));
            format!(r#"{{"image": "{image}", "deep": {open}{close}}}"#)
        };
        let (one, other) = (nested("i:1"), nested("i:2"));
        assert!(Definition::read(&one).is_ok());
        for same in [is_same, makes_the_same] {
            assert!(same(&one, &one));
            assert!(!same(&one, &other));
        }
    }

    #[test]
    fn a_start_without_a_definition_says_so() {
        assert!(
            carried(b"start:\n  instance_uuid: a\n")
                .unwrap_err()
                .contains("no second document")
        );
        assert!(carried(b"start: {}\n---\nuser-data\n").is_err());
    }
}
