//! Request groups: a node is a tree of one provider, which has to provide them all.

use serde_json::{Value, json};

use crate::client::{NODE, World};

/// Suffixes are names from this version on; `same_subtree` came with 1.36.
const VERSION: &str = "1.39";

async fn candidates(world: &World, query: &str, version: &str) -> Value {
    let path = format!("/allocation_candidates?{query}");
    world.get(&path, version).await
}

#[tokio::test]
async fn one_node_provides_all_groups_together() {
    let world = World::new().await;
    let _node = world.node().await;
    let query = "resources=VCPU:2&resources1=VCPU:3,MEMORY_MB:512&resources_gpu=CUSTOM_GPU:1\
                 &required_gpu=CUSTOM_ZONE_EU_1&group_policy=none&root_required=!COMPUTE_STATUS_DISABLED";
    let found = candidates(&world, query, VERSION).await;
    let uuid = NODE.to_string();
    let resources = json!({"VCPU": 5, "MEMORY_MB": 512, "CUSTOM_GPU": 1});
    let expected = json!([{
        "allocations": {&uuid: {"resources": resources}},
        "mappings": {"": [uuid], "1": [uuid], "_gpu": [uuid]},
    }]);
    assert_eq!(found["allocation_requests"], expected);

    for (query, count) in [
        // 8 CPUs with a ratio of 2.
        ("resources1=VCPU:8&resources2=VCPU:8&group_policy=none", 1),
        ("resources1=VCPU:8&resources2=VCPU:9&group_policy=none", 0),
        (
            "resources1=VCPU:1&resources2=VCPU:1&group_policy=isolate",
            0,
        ),
        ("resources=VCPU:1&resources1=VCPU:1&group_policy=isolate", 1),
        ("resources=VCPU:1&resources1=VCPU:1", 1),
        ("resources1=VCPU:1&required1=!CUSTOM_ZONE_EU_1", 0),
        ("resources=VCPU:1&root_required=CUSTOM_ZONE_EU_1", 1),
        ("resources=VCPU:1&root_required=!CUSTOM_ZONE_EU_1", 0),
        ("resources=VCPU:1&root_required=COMPUTE_NODE", 1),
        ("resources=VCPU:1&root_required=HW_NUMA_ROOT", 0),
        (
            "resources1=VCPU:1&required_rack=CUSTOM_ZONE_EU_1&same_subtree=1,_rack&group_policy=isolate",
            1,
        ),
        ("resources1=VCPU:1&limit=1&limit=nonsense", 1),
        (
            "resources1=VCPU:1&resources2=VCPU:1&group_policy=none&group_policy=isolate",
            1,
        ),
        (&format!("resources1=VCPU:1&in_tree1={NODE}"), 1),
        (
            &format!(
                "resources1=VCPU:1&resources2=VCPU:1&group_policy=none&in_tree1={NODE}\
                 &in_tree2=00000000-0000-0000-0000-000000000001"
            ),
            0,
        ),
    ] {
        let found = candidates(&world, query, VERSION).await;
        let found = found["allocation_requests"].as_array().unwrap().len();
        assert_eq!(found, count, "{query}");
    }
}

/// What is not understood, the version in which it is asked, and the part of the answer that says why.
const REFUSED: [(&str, &str, &str); 17] = [
    ("resources1=VCPU:1", "1.24", "'resources1'"),
    ("resources01=VCPU:1", "1.32", "'resources01'"),
    ("resources_gpu=VCPU:1", "1.32", "'resources_gpu'"),
    ("resources1%40=VCPU:1", VERSION, "'resources1@'"),
    (
        "resources=VCPU:1&group_policy=none",
        "1.24",
        "'group_policy'",
    ),
    (
        "resources=VCPU:1&group_policy=both",
        VERSION,
        "'both' is not one of",
    ),
    (
        "resources=VCPU:1&root_required=HW_NUMA_ROOT",
        "1.34",
        "'root_required'",
    ),
    (
        "resources1=VCPU:1&resources2=VCPU:1",
        VERSION,
        "\"group_policy\" parameter is required",
    ),
    ("group_policy=none", "1.35", "At least one request group"),
    (
        "member_of=00000000-0000-0000-0000-000000000001",
        VERSION,
        "orphaned member_of keys: member_of",
    ),
    (
        "resources=VCPU:1&required1=COMPUTE_NODE",
        "1.35",
        "orphaned traits keys: required1",
    ),
    (
        "resources=VCPU:1&required1=COMPUTE_NODE",
        VERSION,
        "should be specified in `same_subtree`",
    ),
    (
        "resources1=VCPU:1&same_subtree=1,,1",
        VERSION,
        "Empty string (unsuffixed group) can not be specified",
    ),
    (
        "resources1=VCPU:1&same_subtree=2",
        VERSION,
        "Real suffixes should be specified",
    ),
    (
        "resources1=VCPU:1&required1=HW_NUMA_ROOT,!HW_NUMA_ROOT",
        VERSION,
        "Conflicting required and forbidden traits",
    ),
    (
        "resources=VCPU:1&root_required=HW_NUMA_ROOT&root_required=COMPUTE_NODE",
        VERSION,
        "'root_required' may be specified only once",
    ),
    (
        "resources=VCPU:1&required=BOGUS_TRAIT",
        VERSION,
        "No such trait(s): BOGUS_TRAIT",
    ),
];

#[tokio::test]
async fn groups_that_are_not_whole_are_refused() {
    let world = World::new().await;
    let _node = world.node().await;
    for (query, version, part) in REFUSED {
        let path = format!("/allocation_candidates?{query}");
        let (status, detail) = world.send("GET", &path, version).await.fault();
        assert_eq!(status, 400, "{query}: {detail}");
        assert!(detail.contains(part), "{query}: {detail}");
    }
    let many: Vec<String> = (1..=65).map(|it| format!("resources{it}=VCPU:1")).collect();
    let path = format!(
        "/allocation_candidates?{}&group_policy=none",
        many.join("&")
    );
    let (status, detail) = world.send("GET", &path, VERSION).await.fault();
    assert_eq!(status, 400);
    assert!(detail.contains("at most 64"), "{detail}");
}
