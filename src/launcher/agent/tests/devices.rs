//! Which devices instances get, keep and give up: by sentences, and by seeds against a model that knows nothing but lists.

use fastrand::Rng;

use super::*;
use crate::launcher::agent::{Devices, MAX_DEVICES};

mod variables;

fn resources(amounts: &[(&str, i64)]) -> BTreeMap<String, i64> {
    let amounts = amounts.iter();
    amounts.map(|&(name, it)| (name.to_owned(), it)).collect()
}

/// A node with these custom resources.
fn with(amounts: &[(&str, i64)]) -> World {
    World::with_features(Features {
        resources: resources(amounts),
        ..Features::default()
    })
}

/// A START that asks for these.
fn asks(id: &str, amounts: &[(&str, i64)]) -> Start {
    Start {
        scheduling: Some(Scheduling {
            resources: resources(amounts),
            ..Scheduling::default()
        }),
        ..process(id, 1)
    }
}

impl World {
    /// Starts it; the environment of its program.
    fn environment(&mut self, start: Start) -> BTreeMap<String, String> {
        self.orders.clear();
        self.start(start);
        let env = self.orders.iter().find_map(|order| match order {
            AgentAction::Spawn(workload) => Some(workload.env.clone()),
            _ => None,
        });
        env.expect("the START is refused")
    }

    /// Starts it, and what its program is told of devices: all variables of that kind.
    fn devices_told(&mut self, start: Start) -> Vec<String> {
        let told = self.environment(start).into_iter();
        told.filter(|(name, _)| name.starts_with("CIAO_RESOURCE_"))
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    /// As [`World::devices_told`], of one that runs then.
    fn runs(&mut self, start: Start) -> Vec<String> {
        let id = start.instance_uuid.clone();
        let told = self.devices_told(start);
        self.handle(Input::Started { instance: id });
        self.forget_what_happened();
        told
    }

    /// Has an instance have so much of these, and nothing else changed.
    fn update_resources(&mut self, id: &str, amounts: &[(&str, i64)], mem_mb: Option<i64>) {
        let update = Update {
            instance_uuid: id.to_owned(),
            workload_agent_uuid: self.node.to_string(),
            mem_mb,
            resources: resources(amounts),
            ..Update::default()
        };
        self.handle(Input::Command(Command::Update(Ok(Box::new(update)))));
    }

    /// The devices in the record of an instance.
    fn held(&self, id: &str, resource: &str) -> Vec<u16> {
        self.records[id].devices.of(resource).to_vec()
    }
}

#[test]
fn instances_are_told_the_lowest_free_devices_until_others_have_ended() {
    let mut world = with(&[("gpu", 4)]);
    assert_eq!(
        world.runs(asks("a", &[("gpu", 1)])),
        ["CIAO_RESOURCE_GPU=0"]
    );
    assert_eq!(
        world.runs(asks("b", &[("gpu", 2)])),
        ["CIAO_RESOURCE_GPU=1,2"]
    );
    world.delete("a", true);
    // It is being stopped, and may use its device still.
    assert_eq!(
        world.runs(asks("c", &[("gpu", 1)])),
        ["CIAO_RESOURCE_GPU=3"]
    );
    world.exits("a", 0);
    assert_eq!(
        world.runs(asks("d", &[("gpu", 1)])),
        ["CIAO_RESOURCE_GPU=0"]
    );
    world.exits("b", 0);
    world.exits("d", 0);
    assert_eq!(
        world.runs(asks("b", &[("gpu", 3)])),
        ["CIAO_RESOURCE_GPU=0,1,2"]
    );
}

#[test]
fn one_that_could_not_be_started_has_none_any_more() {
    let mut world = with(&[("gpu", 1)]);
    world.devices_told(asks("a", &[("gpu", 1)]));
    world.handle(Input::StartFailed {
        instance: "a".to_owned(),
        fault: LaunchFault::Launch,
        detail: String::new(),
    });
    assert_eq!(
        world.devices_told(asks("b", &[("gpu", 1)])),
        ["CIAO_RESOURCE_GPU=0"]
    );
}

#[test]
fn a_suspended_instance_keeps_its_devices() {
    let mut world = with(&[("gpu", 2)]);
    world.runs(asks("a", &[("gpu", 1)]));
    world.suspend("a");
    world.frozen("a", Ok(()));
    assert_eq!(
        world.devices_told(asks("b", &[("gpu", 1)])),
        ["CIAO_RESOURCE_GPU=1"]
    );
}

#[test]
fn names_are_written_as_variables_are() {
    let mut world = with(&[("pci.10de-2230", 2), ("a/b_c", 1)]);
    let told = world.devices_told(asks("a", &[("pci.10de-2230", 2), ("a/b_c", 1)]));
    let expected = ["CIAO_RESOURCE_A_B_C=0", "CIAO_RESOURCE_PCI_10DE_2230=0,1"];
    assert_eq!(told, expected);
}

#[test]
fn two_resources_that_one_variable_would_tell_are_refused_together_and_taken_apart() {
    let both = [("gpu.a", 1), ("gpu-a", 1)];
    let mut world = with(&both);
    world.start(asks("a", &both));
    let Message::StartFailure(failure) = world.answer() else {
        panic!()
    };
    assert_eq!(failure.reason, StartFailureReason::InvalidData);
    let names = "gpu-a and gpu.a would both be told as CIAO_RESOURCE_GPU_A; ask for one of them";
    let detail = format!("start.scheduling.resources: {names}");
    assert_eq!(failure.detail, Some(detail));
    world.runs(asks("a", &[("gpu.a", 1), ("gpu-a", 0)]));
    world.update_resources("a", &[("gpu-a", 1)], None);
    let Message::CommandFailure(failure) = world.answer() else {
        panic!()
    };
    assert_eq!(failure.reason, CommandFailureReason::InvalidData);
    assert_eq!(failure.detail, format!("update.resources: {names}"));
}

#[test]
fn what_there_is_more_of_than_devices_is_an_amount_and_not_told() {
    let (most, more) = (i64::from(MAX_DEVICES), i64::from(MAX_DEVICES) + 1);
    let mut world = with(&[("most", most), ("more", more), ("hugepages", i64::MAX)]);
    let asked = [("most", most), ("more", 1), ("hugepages", 100_000)];
    let told = world.devices_told(asks("a", &asked));
    let [all] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert!(all.starts_with("CIAO_RESOURCE_MOST=0,1,2,"), "{all}");
    assert!(all.ends_with(",254,255") && all.len() < 1024, "{all}");
}

#[test]
fn what_the_launcher_says_counts_over_what_the_start_says() {
    let mut world = with(&[("gpu", 1)]);
    let mut start = asks("a", &[("gpu", 1)]);
    for name in ["CIAO_RESOURCE_GPU", "CIAO_RESOURCE_NET"] {
        start.env.insert(name.to_owned(), "7".to_owned());
    }
    let expected = ["CIAO_RESOURCE_GPU=0", "CIAO_RESOURCE_NET=7"];
    assert_eq!(world.devices_told(start), expected);
}

#[test]
fn nothing_is_told_where_nothing_is_run() {
    let mut world = with(&[("gpu", 2)]);
    let mut settings = settings(world.node);
    settings.features = world.features.clone();
    settings.runs = Runs::Anything;
    world.agent = Agent::new(settings);
    world.connect();
    assert!(world.devices_told(asks("a", &[("gpu", 2)])).is_empty());
    assert!(world.records["a"].devices.is_empty());
}

#[test]
fn an_update_adds_devices_and_takes_back_those_first_of_which_the_program_was_not_told() {
    let mut world = with(&[("gpu", 4)]);
    world.runs(asks("a", &[("gpu", 1)]));
    assert_eq!(
        world.runs(asks("b", &[("gpu", 2)])),
        ["CIAO_RESOURCE_GPU=1,2"]
    );
    world.exits("a", 0);
    world.update_resources("b", &[("gpu", 3)], None);
    assert_eq!(world.held("b", "gpu"), [1, 2, 0]);
    world.update_resources("b", &[("gpu", 2)], None);
    assert_eq!(world.held("b", "gpu"), [1, 2]);
    world.update_resources("b", &[("gpu", 1)], None);
    assert_eq!(
        world.devices_told(asks("c", &[("gpu", 3)])),
        ["CIAO_RESOURCE_GPU=0,2,3"]
    );
    world.update_resources("b", &[("gpu", 0)], None);
    assert!(world.records["b"].devices.is_empty());
}

#[test]
fn an_update_that_fails_leaves_an_instance_the_devices_it_had() {
    let mut world = with(&[("gpu", 3)]);
    world.runs(asks("a", &[("gpu", 2)]));
    for (wanted, meanwhile) in [(3, [0, 1, 2].as_slice()), (1, &[0, 1])] {
        world.update_resources("a", &[("gpu", wanted)], Some(2));
        assert_eq!(world.held("a", "gpu"), meanwhile);
        world.limits_set("a", Err("no"));
        assert_eq!(world.held("a", "gpu"), [0, 1]);
    }
    world.update_resources("a", &[("gpu", 3)], Some(2));
    // It ends instead, with what it had.
    world.delete("a", false);
    assert_eq!(world.held("a", "gpu"), [0, 1]);
    assert_eq!(
        world.devices_told(asks("b", &[("gpu", 1)])),
        ["CIAO_RESOURCE_GPU=2"]
    );
}

#[test]
fn after_a_restart_no_instance_gets_what_another_has_though_the_node_has_less() {
    let mut world = with(&[("gpu", 4)]);
    for id in ["a", "b", "c"] {
        world.runs(asks(id, &[("gpu", 1)]));
    }
    world.exits("a", 0);
    world.features.resources = resources(&[("gpu", 3)]);
    world.restart(|_| ProcessFate::Running);
    world.connect();
    assert_eq!(
        world.runs(asks("d", &[("gpu", 1)])),
        ["CIAO_RESOURCE_GPU=0"]
    );
    world.exits("b", 0);
    world.features.resources = resources(&[("gpu", 2)]);
    world.restart(|_| ProcessFate::Running);
    world.connect();
    // c has a device that the node has no more, and counts all the same.
    assert_eq!(world.held("c", "gpu"), [2]);
    world.sent.clear();
    world.start(asks("e", &[("gpu", 1)]));
    assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
    world.exits("c", 0);
    assert_eq!(
        world.devices_told(asks("e", &[("gpu", 1)])),
        ["CIAO_RESOURCE_GPU=1"]
    );
}

#[test]
fn instances_of_a_launcher_that_told_nothing_count_as_having_what_the_others_leave() {
    let mut world = with(&[("gpu", 4)]);
    world.runs(asks("a", &[("gpu", 2)]));
    world.runs(asks("b", &[("gpu", 1)]));
    let old = world.records.get_mut("a").unwrap();
    old.devices = Devices::default();
    let text = serde_json::to_string(old).unwrap();
    assert!(!text.contains("devices"), "{text}");
    *old = serde_json::from_str(&text).unwrap();
    world.restart(|_| ProcessFate::Running);
    world.connect();
    assert_eq!(
        (world.held("a", "gpu"), world.held("b", "gpu")),
        (vec![0, 1], vec![2])
    );
    assert_eq!(
        world.devices_told(asks("c", &[("gpu", 1)])),
        ["CIAO_RESOURCE_GPU=3"]
    );
}

#[test]
fn a_record_keeps_devices_as_lists_of_indices_by_resource() {
    let mut world = with(&[("gpu", 4)]);
    world.runs(asks("a", &[("gpu", 2)]));
    let record = serde_json::to_value(&world.records["a"]).unwrap();
    assert_eq!(record["devices"], serde_json::json!({"gpu": [0, 1]}));
}

const SEEDS: u64 = 300;
const STEPS: usize = 150;
const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];
const RESOURCES: [&str; 3] = ["gpu", "fpga", "hugepages"];

/// An instance and a resource.
type Key = (String, String);

/// Who has which devices, in the order they got them, as the rules say it in the fewest words.
#[derive(Default)]
struct Model(BTreeMap<Key, Vec<u16>>);

impl Model {
    /// No instance has more than it claims; those that have less, of which `gets` says so, get the lowest free ones.
    fn follow(
        &mut self,
        claims: &BTreeMap<Key, i64>,
        totals: &BTreeMap<String, i64>,
        gets: impl Fn(&Key, usize) -> bool,
    ) {
        self.0.retain(|key, _| claims.contains_key(key));
        for (key, &claim) in claims {
            let held = self.0.entry(key.clone()).or_default();
            held.truncate(usize::try_from(claim).unwrap());
        }
        for (key, &claim) in claims {
            let all = totals.get(&key.1).copied().unwrap_or(0);
            if all > i64::from(MAX_DEVICES) || !gets(key, self.0[key].len()) {
                continue;
            }
            for index in 0..u16::try_from(all).unwrap() {
                let has =
                    |(other, held): (&Key, &Vec<u16>)| other.1 == key.1 && held.contains(&index);
                let is_free = !self.0.iter().any(has);
                let held = self.0.get_mut(key).unwrap();
                if is_free && i64::try_from(held.len()).unwrap() < claim {
                    held.push(index);
                }
            }
        }
        self.0.retain(|_, held| !held.is_empty());
    }
}

/// A node, what is done with it, and the model of who has what.
struct Life {
    world: World,
    rng: Rng,
    model: Model,
    /// The most of each resource that the node ever had.
    most: BTreeMap<String, i64>,
    /// Whether every launcher of the node tells devices, and never has too many: then each instance has all it claims.
    tells_always: bool,
    unanswered: Vec<AgentAction>,
}

/// Whether an order is about this instance.
fn is_about(order: &AgentAction, id: &str) -> bool {
    match order {
        AgentAction::Spawn(workload) => workload.instance == id,
        AgentAction::Freeze(other) | AgentAction::Thaw(other) => other == id,
        AgentAction::SetLimits { instance, .. } => instance == id,
        _ => false,
    }
}

impl Life {
    fn new(seed: u64) -> Self {
        let all = [("gpu", 5), ("fpga", 2), ("hugepages", 100_000)];
        Self {
            world: with(&all),
            rng: Rng::with_seed(seed),
            model: Model::default(),
            most: resources(&all),
            tells_always: seed.is_multiple_of(2),
            unanswered: Vec::new(),
        }
    }

    fn step(&mut self) {
        let id = IDS[self.rng.usize(..IDS.len())];
        match self.rng.u32(..12) {
            0..=2 => self.start(id),
            3 => self.world.suspend(id),
            4 => self.world.resume(id),
            5 | 6 => self.update(id),
            7 => {
                let stop = self.rng.bool();
                self.world.delete(id, stop);
            }
            8 => self.exit(id),
            9 if self.rng.u32(..3) == 0 => self.restart(),
            _ => self.answer(),
        }
        self.take_orders();
        self.check();
    }

    fn amounts(&mut self) -> Vec<(&'static str, i64)> {
        let rng = &mut self.rng;
        let asked = RESOURCES.into_iter().filter(|_| rng.bool());
        let asked: Vec<&str> = asked.collect();
        let amount = |name| (name, self.rng.i64(0..=3));
        asked.into_iter().map(amount).collect()
    }

    fn start(&mut self, id: &str) {
        let amounts = self.amounts();
        let mut start = asks(id, &amounts);
        start.requirements.vcpus = 0;
        self.world.start(start);
    }

    fn update(&mut self, id: &str) {
        let amounts = self.amounts();
        let mem_mb = self.rng.bool().then(|| self.rng.i64(1..9));
        self.world.update_resources(id, &amounts, mem_mb);
    }

    fn is_live(&self, id: &str) -> bool {
        let record = self.world.records.get(id);
        record.is_some_and(|record| !record.has_ended())
    }

    /// Its processes end: at any time after it was spawned.
    fn exit(&mut self, id: &str) {
        let is_starting = |it: &AgentAction| matches!(it, AgentAction::Spawn(workload) if workload.instance == id);
        if self.is_live(id) && !self.unanswered.iter().any(is_starting) {
            self.unanswered.retain(|it| !is_about(it, id));
            self.world.exits(id, 0);
        }
    }

    /// Answers the oldest order, well or not.
    fn answer(&mut self) {
        if self.unanswered.is_empty() {
            return;
        }
        let result = match self.rng.u32(..4) {
            0 => Err("no"),
            _ => Ok(()),
        };
        match self.unanswered.remove(0) {
            AgentAction::Spawn(workload) => {
                let instance = workload.instance;
                self.world.handle(match result {
                    Ok(()) => Input::Started { instance },
                    Err(_) => Input::StartFailed {
                        instance,
                        fault: LaunchFault::Launch,
                        detail: String::new(),
                    },
                });
            }
            AgentAction::Freeze(id) => self.world.frozen(&id, result),
            AgentAction::Thaw(id) => self.world.thawed(&id, Ok(())),
            AgentAction::SetLimits { instance, .. } => self.world.limits_set(&instance, result),
            _ => {}
        }
    }

    /// Another launcher takes over, maybe of a node with more or less, maybe after one that knew of no devices. Meanwhile
    /// some have ended.
    fn restart(&mut self) {
        if self.rng.u32(..3) == 0 {
            let choices = if self.tells_always { 5 } else { 6 };
            let gpus = [0, 2, 4, 5, 7, 300][self.rng.usize(..choices)];
            self.world.features.resources.insert("gpu".to_owned(), gpus);
        }
        if !self.tells_always && self.rng.bool() {
            for (id, record) in &mut self.world.records {
                if self.rng.bool() {
                    record.devices = Devices::default();
                    self.model.0.retain(|(holder, _), _| holder != id);
                }
            }
        }
        let gpus = self.world.features.resources["gpu"];
        let most = self.most.get_mut("gpu").unwrap();
        *most = gpus.max(*most);
        self.unanswered.clear();
        let mut rng = self.rng.fork();
        let ended: Vec<&str> = IDS.into_iter().filter(|_| rng.u32(..6) == 0).collect();
        self.world.restart(|id| match ended.contains(&id) {
            true => ProcessFate::Ended(None),
            false => ProcessFate::Running,
        });
        self.take_orders();
        self.world.connect();
    }

    /// Keeps what is to be answered, and looks at what programs are told.
    fn take_orders(&mut self) {
        for order in self.world.orders() {
            if let AgentAction::Spawn(workload) = &order {
                for name in RESOURCES {
                    let variable = format!("CIAO_RESOURCE_{}", name.to_ascii_uppercase());
                    let held = self.world.held(&workload.instance, name);
                    let told: Vec<String> = held.iter().map(u16::to_string).collect();
                    let told = Some(told.join(",")).filter(|it| !it.is_empty());
                    assert_eq!(workload.env.get(&variable), told.as_ref());
                    assert!(held.is_sorted());
                }
            }
            self.unanswered.push(order);
        }
    }

    fn check(&mut self) {
        let mut claims = BTreeMap::new();
        for (id, record) in &self.world.records {
            assert!(
                !record.has_ended() || record.devices.is_empty(),
                "{record:?}"
            );
            for demand in [Some(&record.demand), record.update.as_ref()]
                .into_iter()
                .flatten()
            {
                for (name, &amount) in demand.resources.iter().filter(|_| !record.has_ended()) {
                    let claim: &mut i64 = claims.entry((id.clone(), name.clone())).or_default();
                    *claim = amount.max(*claim);
                }
            }
        }
        // One that found too few after a restart gets more only with a change of its own, not when others give some up.
        let (world, tells_always) = (&self.world, self.tells_always);
        let gets = |(id, name): &Key, had| tells_always || world.held(id, name).len() > had;
        let totals = &world.features.resources;
        self.model.follow(&claims, totals, gets);
        for ((id, name), claim) in &claims {
            let held = self.world.held(id, name);
            let modelled = self.model.0.get(&(id.clone(), name.clone()));
            assert_eq!(&held, modelled.unwrap_or(&Vec::new()), "{id}: {name}");
            let most = self.most[name];
            assert!(held.iter().all(|&index| i64::from(index) < most));
            let count = i64::try_from(held.len()).unwrap();
            assert!(count <= *claim);
            assert!(count == *claim || !self.tells_always || name == "hugepages");
        }
        for name in RESOURCES {
            let mut all: Vec<u16> = Vec::new();
            for id in self.world.records.keys() {
                all.extend(self.world.held(id, name));
            }
            let distinct: std::collections::BTreeSet<u16> = all.iter().copied().collect();
            assert_eq!(all.len(), distinct.len(), "{name}: {all:?}");
        }
    }

    fn finish(&mut self) {
        for id in IDS {
            self.answer_all();
            self.world.delete(id, false);
            self.exit(id);
            self.check();
        }
        assert!(self.model.0.is_empty());
    }

    fn answer_all(&mut self) {
        while !self.unanswered.is_empty() {
            self.answer();
            self.take_orders();
        }
    }
}

#[test]
fn devices_in_random_lives_are_those_that_the_rules_say() {
    for_each_seed(SEEDS, |seed| {
        let mut life = Life::new(seed);
        (0..STEPS).for_each(|_| life.step());
        life.finish();
    });
}
