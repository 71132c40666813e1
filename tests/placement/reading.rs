//! Every route, in the forms of the versions.

use proto_frames::Kind;
use proto_frames::payload::{Evacuate, EvacuateMode, Payload, Restore, RestoreMode};
use serde_json::{Value, json};

use crate::client::{NODE, World};
use crate::words::{instance, start_of};

/// The rows of a list of providers, by name.
async fn names(world: &World, path: &str) -> Vec<String> {
    let list = world.get(path, "1.39").await;
    let rows = list["resource_providers"].as_array().unwrap().iter();
    rows.map(|row| row["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_node_is_a_resource_provider() {
    let world = World::new().await;
    let _node = world.node().await;
    let list = world.get("/resource_providers", "").await;
    let row = &list["resource_providers"][0];
    assert_eq!(row["uuid"], NODE.to_string());
    assert_eq!(row["name"], "first");
    assert!(row["generation"].as_u64().unwrap() > 0);
    assert_eq!(row["links"].as_array().unwrap().len(), 3);
    assert_eq!(row.get("root_provider_uuid"), None);
    let row = world.below("", "1.39").await;
    assert_eq!(row["root_provider_uuid"], NODE.to_string());
    assert_eq!(row["parent_provider_uuid"], Value::Null);
    assert_eq!(row["links"].as_array().unwrap().len(), 6);
    let aggregate = world.below("/aggregates", "1.1").await["aggregates"][0].clone();
    let member_of = format!(
        "/resource_providers?member_of=in:{}",
        aggregate.as_str().unwrap()
    );
    for (path, expected) in [
        ("/resource_providers?name=first", true),
        ("/resource_providers?name=second", false),
        ("/resource_providers?resources=VCPU:16,CUSTOM_GPU:4", true),
        ("/resource_providers?resources=VCPU:17", false),
        ("/resource_providers?resources=VGPU:1", false),
        ("/resource_providers?required=CUSTOM_ZONE_EU_1", true),
        ("/resource_providers?required=!CUSTOM_ZONE_EU_1", false),
        ("/resource_providers?required=HW_CPU_X86_VMX", false),
        (
            "/resource_providers?required=in:HW_CPU_X86_VMX,CUSTOM_ZONE_EU_1",
            true,
        ),
        (&member_of, true),
        (&member_of.replace("in:", "!in:"), false),
        (
            "/resource_providers?member_of=00000000-0000-0000-0000-000000000001",
            false,
        ),
        (
            &format!("/resource_providers?uuid={NODE}&in_tree={NODE}"),
            true,
        ),
    ] {
        let found = names(&world, path).await;
        assert_eq!(found.len(), usize::from(expected), "{path}");
    }
}

#[tokio::test]
async fn what_a_node_has_is_its_inventory_and_what_is_claimed_its_usage() {
    let world = World::new().await;
    let mut node = world.node().await;
    let body = world.below("/inventories", "1.0").await;
    let inventories = &body["inventories"];
    assert_eq!(inventories.as_object().unwrap().len(), 4, "{inventories}");
    let vcpu = json!({"total": 8, "reserved": 0, "min_unit": 1, "max_unit": 16, "step_size": 1, "allocation_ratio": 2.0});
    assert_eq!(inventories["VCPU"], vcpu);
    assert_eq!(inventories["MEMORY_MB"]["total"], 4096);
    assert_eq!(inventories["MEMORY_MB"]["reserved"], 512);
    assert_eq!(inventories["DISK_GB"]["total"], 100);
    assert_eq!(inventories["CUSTOM_GPU"]["total"], 4);
    let one = world.below("/inventories/MEMORY_MB", "1.39").await;
    assert_eq!(one["max_unit"], 3584);
    assert_eq!(
        one["resource_provider_generation"],
        body["resource_provider_generation"]
    );

    let mut master = world.site.master(&world.daemon).await;
    master.expect_node().await;
    let mut start = start_of(instance(1), 1024);
    start.requirements.vcpus = 3;
    master.send(Kind::START, start.encode()).await;
    let started = node.expect_start().await;
    let usages = world.below("/usages", "1.0").await["usages"].clone();
    assert_eq!(
        usages,
        json!({"VCPU": 3, "MEMORY_MB": 1024, "DISK_GB": 0, "CUSTOM_GPU": 0})
    );

    let claimed = json!({"VCPU": 3, "MEMORY_MB": 1024});
    let body = world.below("/allocations", "1.28").await;
    let allocation = &body["allocations"][started.to_string()];
    assert_eq!(allocation["resources"], claimed, "{body}");
    assert_eq!(allocation["consumer_generation"], 1);
    let path = format!("/allocations/{started}");
    let old = world.get(&path, "1.0").await;
    let of_node = &old["allocations"][NODE.to_string()];
    assert_eq!(of_node["resources"], claimed, "{old}");
    assert_eq!(old.get("project_id"), None);
    let new = world.get(&path, "1.39").await;
    assert_eq!(new["consumer_type"], "INSTANCE", "{new}");
    let none = world.get("/allocations/none", "1.39").await;
    assert_eq!(none, json!({"allocations": {}}));
}

#[tokio::test]
async fn what_a_project_uses_is_what_the_instances_of_that_tenant_asked_for() {
    /// As STARTs write a tenant, and as Keystone writes the same project.
    const TENANT: &str = "0a8b4f3c-5b1e-4f0e-9a53-2f1c9d7e6b10";
    const PROJECT: &str = "0a8b4f3c5b1e4f0e9a532f1c9d7e6b10";
    const NIL: &str = "00000000-0000-0000-0000-000000000000";
    let world = World::new().await;
    let mut node = world.node().await;
    let mut master = world.site.master(&world.daemon).await;
    master.expect_node().await;
    let mut started = Vec::new();
    for (number, tenant) in [(1, TENANT), (2, TENANT), (3, "red"), (4, "")] {
        let mut start = start_of(instance(number), 100 * i64::try_from(number).unwrap());
        start.requirements.vcpus = 1;
        tenant.clone_into(&mut start.tenant_uuid);
        master.send(Kind::START, start.encode()).await;
        started.push(node.expect_start().await);
    }
    for (project, memory) in [(TENANT, 300), (PROJECT, 300), ("red", 300), (NIL, 400)] {
        let path = format!("/usages?project_id={project}");
        let usages = world.get(&path, "1.9").await["usages"].clone();
        assert_eq!(usages["MEMORY_MB"], memory, "{project}: {usages}");
    }
    let of = |query: &str| format!("/usages?project_id={TENANT}{query}");
    let sums = json!({"consumer_count": 2, "VCPU": 2, "MEMORY_MB": 300});
    for (query, expected) in [
        ("", json!({"INSTANCE": &sums})),
        ("&consumer_type=INSTANCE", json!({"INSTANCE": &sums})),
        ("&consumer_type=all", json!({"all": &sums})),
        ("&consumer_type=unknown", json!({})),
        ("&consumer_type=MIGRATION", json!({})),
        (&format!("&user_id={NIL}"), json!({"INSTANCE": &sums})),
        ("&user_id=somebody", json!({})),
    ] {
        let found = world.get(&of(query), "1.38").await;
        assert_eq!(found, json!({"usages": expected}), "{query}");
    }
    let old = world.get(&of("&user_id=somebody"), "1.37").await;
    assert_eq!(old, json!({"usages": {}}));
    let none = world.get("/usages?project_id=nobody", "1.9").await;
    assert_eq!(none, json!({"usages": {}}));
    for (instance, project) in [(0, TENANT), (2, "red"), (3, NIL)] {
        let path = format!("/allocations/{}", started[instance]);
        let body = world.get(&path, "1.12").await;
        assert_eq!(body["project_id"], project, "{body}");
        assert_eq!(body["user_id"], NIL);
    }
    for (path, version, status) in [
        ("/usages", "1.9", 400),
        ("/usages?project_id=", "1.9", 400),
        ("/usages?project_id=a&consumer_type=all", "1.37", 400),
        ("/usages?project_id=a&consumer_type=instance", "1.38", 400),
        ("/usages?project_id=a&name=b", "1.38", 400),
        ("/usages?project_id=a", "1.8", 404),
    ] {
        let answer = world.send("GET", path, version).await;
        assert_eq!(answer.fault().0, status, "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn labels_are_traits_and_configured_aggregates_are_aggregates() {
    let world = World::new().await;
    let _node = world.node().await;
    let traits = world.below("/traits", "1.6").await;
    assert_eq!(
        traits["traits"],
        json!(["COMPUTE_NODE", "CUSTOM_ZONE_EU_1"])
    );
    let old = world.below("/aggregates", "1.1").await;
    assert_eq!(old["aggregates"].as_array().unwrap().len(), 1);
    assert_eq!(old.get("resource_provider_generation"), None);
    let new = world.below("/aggregates", "1.19").await;
    assert_eq!(new["aggregates"], old["aggregates"]);
    assert!(new["resource_provider_generation"].is_u64());
    for (query, expected) in [
        ("name=startswith:CUSTOM_", &["CUSTOM_ZONE_EU_1"][..]),
        ("name=startswith:HW_CPU_X86_VM", &["HW_CPU_X86_VMX"]),
        (
            "name=in:CUSTOM_ZONE_EU_1,HW_X,MISC_SHARES_VIA_AGGREGATE",
            &["CUSTOM_ZONE_EU_1", "MISC_SHARES_VIA_AGGREGATE"],
        ),
        ("associated=true", &["COMPUTE_NODE", "CUSTOM_ZONE_EU_1"]),
        ("associated=TRUE", &["COMPUTE_NODE", "CUSTOM_ZONE_EU_1"]),
        (
            "associated=false&name=in:CUSTOM_ZONE_EU_1,COMPUTE_STATUS_DISABLED",
            &["COMPUTE_STATUS_DISABLED"],
        ),
    ] {
        let some = world.get(&format!("/traits?{query}"), "1.39").await;
        assert_eq!(some, json!({"traits": expected}), "{query}");
    }
    for name in ["CUSTOM_ZONE_EU_1", "HW_CPU_X86_VMX"] {
        let answer = world.send("GET", &format!("/traits/{name}"), "1.39").await;
        assert_eq!((answer.status, &*answer.body), (204, ""), "{name}");
    }
    let classes = world.get("/resource_classes", "1.2").await;
    let classes = classes["resource_classes"].as_array().unwrap();
    let has = |name: &str| classes.iter().any(|class| class["name"] == name);
    assert!(has("VCPU") && has("DISK_GB") && has("CUSTOM_GPU"));
    let one = world.get("/resource_classes/CUSTOM_GPU", "1.39").await;
    assert_eq!(one["links"][0]["href"], "/resource_classes/CUSTOM_GPU");
}

#[tokio::test]
async fn a_cordoned_node_has_the_trait_of_a_disabled_one() {
    let world = World::new().await;
    let _node = world.node().await;
    let mut operator = world.site.operator(&world.daemon).await;
    let of = |query: &str| format!("/resource_providers?{query}");
    let generation = async || {
        world.below("", "1.39").await["generation"]
            .as_u64()
            .unwrap()
    };
    let before = generation().await;
    let cordon = Evacuate {
        workload_agent_uuid: NODE.to_string(),
        mode: EvacuateMode::Cordon,
        ..Evacuate::default()
    };
    let uncordon = Restore {
        workload_agent_uuid: NODE.to_string(),
        mode: RestoreMode::Uncordon,
    };
    for is_cordoned in [true, false] {
        match is_cordoned {
            true => operator.send(Kind::EVACUATE, cordon.encode()).await,
            false => operator.send(Kind::RESTORE, uncordon.encode()).await,
        }
        operator.nothing_else().await;
        let expected: &[&str] = match is_cordoned {
            true => &[
                "COMPUTE_NODE",
                "COMPUTE_STATUS_DISABLED",
                "CUSTOM_ZONE_EU_1",
            ],
            false => &["COMPUTE_NODE", "CUSTOM_ZONE_EU_1"],
        };
        let traits = world.below("/traits", "1.6").await["traits"].clone();
        assert_eq!(traits, json!(expected));
        let with: &[&str] = if is_cordoned { &["first"] } else { &[] };
        let without: &[&str] = if is_cordoned { &[] } else { &["first"] };
        let trait_of = "COMPUTE_STATUS_DISABLED";
        for (query, expected) in [
            (format!("required={trait_of}"), with),
            (format!("required=!{trait_of}"), without),
            (format!("required=in:{trait_of},HW_CPU_X86_VMX"), with),
        ] {
            assert_eq!(names(&world, &of(&query)).await, expected, "{query}");
        }
        let associated = world.get("/traits?associated=true", "1.6").await;
        assert_eq!(associated["traits"], json!(expected));
        let candidates = async |query: &str| {
            let path = format!("/allocation_candidates?resources=VCPU:1{query}");
            let found = world.get(&path, "1.39").await;
            found["allocation_requests"].as_array().unwrap().len()
        };
        let required = candidates(&format!("&required={trait_of}")).await;
        assert_eq!(required, 0, "it takes no work");
        let fit = candidates(&format!("&root_required=!{trait_of}")).await;
        assert_eq!(fit, without.len());
        assert_eq!(candidates("").await, without.len());
    }
    assert!(
        generation().await >= before + 2,
        "both are changes of the node"
    );
}

#[tokio::test]
async fn candidates_have_the_form_of_the_version_and_come_from_the_live_table() {
    let world = World::new().await;
    let mut node = world.node().await;
    let uuid = NODE.to_string();
    let asked = "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512,CUSTOM_GPU:1";
    let resources = json!({"VCPU": 1, "MEMORY_MB": 512, "CUSTOM_GPU": 1});
    let old = world.get(asked, "1.10").await;
    let listed =
        json!([{"allocations": [{"resource_provider": {"uuid": uuid}, "resources": resources}]}]);
    assert_eq!(old["allocation_requests"], listed);
    let summary = &old["provider_summaries"][&uuid];
    assert_eq!(
        summary["resources"]["VCPU"],
        json!({"capacity": 16, "used": 0})
    );
    assert_eq!(summary["resources"].as_object().unwrap().len(), 3);
    assert_eq!(summary.get("traits"), None);
    let middle = world.get(asked, "1.12").await;
    let mapped = json!([{"allocations": {&uuid: {"resources": resources}}}]);
    assert_eq!(middle["allocation_requests"], mapped);
    let new = world.get(asked, "1.39").await;
    assert_eq!(
        new["allocation_requests"][0]["mappings"],
        json!({"": [uuid]})
    );
    let summary = &new["provider_summaries"][&uuid];
    assert_eq!(summary["resources"].as_object().unwrap().len(), 4);
    let traits = json!(["COMPUTE_NODE", "CUSTOM_ZONE_EU_1"]);
    assert_eq!(summary["traits"], traits);
    assert_eq!(summary["root_provider_uuid"], uuid);
    assert_eq!(summary["parent_provider_uuid"], Value::Null);

    let aggregate = world.below("/aggregates", "1.1").await["aggregates"][0].clone();
    let aggregate = aggregate.as_str().unwrap();
    for (query, expected) in [
        ("resources=VCPU:16&limit=1", 1),
        ("resources=VCPU:17", 0),
        ("resources=MEMORY_MB:3584", 1),
        ("resources=MEMORY_MB:3585", 0),
        ("resources=DISK_GB:100", 1),
        ("resources=DISK_GB:101", 0),
        ("resources=CUSTOM_GPU:5", 0),
        ("resources=VGPU:1", 0),
        ("resources=VCPU:1&required=CUSTOM_ZONE_EU_1", 1),
        ("resources=VCPU:1&required=!CUSTOM_ZONE_EU_1", 0),
        ("resources=VCPU:1&required=!COMPUTE_STATUS_DISABLED", 1),
        ("resources=VCPU:1&required=COMPUTE_NODE", 1),
        ("resources=VCPU:1&required=!COMPUTE_NODE", 0),
        ("resources=VCPU:1&required=in:COMPUTE_NODE,HW_NUMA_ROOT", 1),
        ("resources=VCPU:1&required=HW_NUMA_ROOT", 0),
        (&format!("resources=VCPU:1&member_of=in:{aggregate}"), 1),
        (&format!("resources=VCPU:1&member_of=!{aggregate}"), 0),
        (&format!("resources=VCPU:1&in_tree={NODE}"), 1),
        (&format!("resources=VCPU:1&in_tree={aggregate}"), 0),
    ] {
        let found = world
            .get(&format!("/allocation_candidates?{query}"), "1.39")
            .await;
        let found = found["allocation_requests"].as_array().unwrap().len();
        assert_eq!(found, expected, "{query}");
    }
    // A START takes what candidates were told of: the next answer knows.
    let mut master = world.site.master(&world.daemon).await;
    master.expect_node().await;
    master
        .send(Kind::START, start_of(instance(1), 3584).encode())
        .await;
    node.expect_start().await;
    let none = world.get(asked, "1.39").await;
    assert_eq!(
        none,
        json!({"allocation_requests": [], "provider_summaries": {}})
    );
}
