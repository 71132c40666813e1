//! Tests of what is made of START files.

use super::*;

const ID: &str = "11111111-2222-4333-8444-555555555555";

fn requests(text: &str, count: u32) -> Result<Vec<StartRequest>, StartFileError> {
    let mut n = 0;
    StartFile::parse("a.yaml".into(), Bytes::copy_from_slice(text.as_bytes()))?.requests(
        count,
        || {
            n += 1;
            format!("{}{n}", &ID[..35])
        },
    )
}

fn filled(text: &str) -> String {
    String::from_utf8(requests(text, 1).unwrap()[0].payload.to_vec()).unwrap()
}

const REST: &str = "  vm_type: process\n  command: [a]\n  requirements: {mem_mb: 1, vcpus: 1}\n";

#[test]
fn a_file_that_names_its_instance_is_sent_byte_for_byte() {
    let text = format!(
        "# mine\nstart:\n  instance_uuid: \"{ID}\" # kept\n{REST}...\n#cloud-config\n{{[\n"
    );
    let requests = requests(&text, 1).unwrap();
    assert_eq!(requests[0].payload, text.as_bytes());
    assert_eq!(requests[0].instance_uuid, ID);
}

#[test]
fn an_empty_instance_gets_a_uuid_and_nothing_else_changes() {
    let new = format!("{}1", &ID[..35]);
    for empty in ["", " \"\"", " ''"] {
        let text = format!(
            "---\nstart: # x\n  # y\n  tenant_uuid: t\n  instance_uuid:{empty} # here\n{REST}...\nrest\n"
        );
        let expected = text.replace(&format!("uuid:{empty} #"), &format!("uuid: {new} #"));
        assert_eq!(filled(&text), expected);
    }
}

#[test]
fn an_absent_instance_gets_a_line_at_the_others_depth() {
    let new = format!("{}1", &ID[..35]);
    let text = format!("start:\n\n{REST}");
    assert_eq!(
        filled(&text),
        format!("start:\n\n  instance_uuid: {new}\n{REST}")
    );
}

#[test]
fn several_instances_of_one_file_get_uuids_of_their_own() {
    let text = format!("start:\n  instance_uuid: {ID}\n{REST}");
    let requests = requests(&text, 3).unwrap();
    let ids: Vec<&str> = requests.iter().map(|r| &r.instance_uuid[35..]).collect();
    assert_eq!(ids, ["1", "2", "3"]);
    for request in requests {
        let start = Start::decode(&request.payload).unwrap();
        assert_eq!(start.instance_uuid, request.instance_uuid);
        assert_eq!(start.vm_type, "process");
    }
}

#[test]
fn a_key_of_the_same_name_deeper_down_is_left_alone() {
    let new = format!("{}1", &ID[..35]);
    let text = format!("start:\n  networking:\n    instance_uuid: x\n{REST}");
    assert_eq!(
        filled(&text),
        format!("start:\n  instance_uuid: {new}\n  networking:\n    instance_uuid: x\n{REST}")
    );
}

#[test]
fn any_style_of_yaml_gets_a_uuid_and_keeps_all_else() {
    for text in [
        "start: {vm_type: process, command: [a], requirements: {mem_mb: 1, vcpus: 1}, later: [x]}\n",
        r#"{"start": {"vm_type": "process", "command": ["a"], "requirements": {"mem_mb": 1, "vcpus": 1}, "later": "x"}}"#,
        "{\"start\": {\n  \"instance_uuid\": \"\",\n  \"vm_type\": \"process\", \"command\": [\"a\"], \"later\": \"x\",\n  \
             \"requirements\": {\"mem_mb\": 1, \"vcpus\": 1}\n}}\n---\nrest: [\n",
        "start: &start\n    vm_type: process\n    command: [a]\n    later: x\n    requirements: {mem_mb: 1, vcpus: 1}\n",
    ] {
        for count in [1, 2] {
            for request in requests(text, count).unwrap() {
                let start = Start::decode(&request.payload).unwrap();
                assert_eq!(start.instance_uuid, request.instance_uuid, "{text}");
                let (mem, cpus) = (start.requirements.mem_mb, start.requirements.vcpus);
                assert_eq!((mem, cpus), (1, 1), "{text}");
                assert_eq!(start.command, ["a"], "{text}");
                let sent = String::from_utf8(request.payload.to_vec()).unwrap();
                assert!(sent.contains("later"), "{sent}");
                assert_eq!(
                    sent.ends_with("---\nrest: [\n"),
                    text.ends_with("[\n"),
                    "{sent}"
                );
            }
        }
    }
}

#[test]
fn where_a_value_would_become_another_the_error_says_what_to_write() {
    // This text looks like a number, and would be written as another one.
    let text = "start: {vm_type: process, working_dir: 1e3}\n";
    let error = requests(text, 1).unwrap_err().to_string();
    assert!(
        error.starts_with("a.yaml: no place to put an instance UUID without changing"),
        "{error}"
    );
}

#[test]
fn every_mistake_is_said_before_a_uuid_is_asked_for() {
    for (lines, mistake) in [
        ("requirements: {mem_mb: -5}", "start.requirements.mem_mb, "),
        ("scheduling: {priority: 200}", "start.scheduling.priority, "),
        ("scheduling: {version: 9}", "start.scheduling.version, "),
        ("scheduling: {requires: [a = b]}", "did you mean `require`?"),
        ("restart: perhaps", "start.restart, "),
        ("", "`start:` has nothing under it"),
    ] {
        let texts = match lines {
            "" => vec!["start:\n".to_owned(), "start: ~\n".to_owned()],
            _ => vec![
                format!("start:\n  {lines}\n"),
                format!("start: {{{lines}}}\n"),
                format!("start:\n  instance_uuid:\n  {lines}\n"),
            ],
        };
        for text in texts {
            let error = requests(&text, 1).unwrap_err().to_string();
            assert!(error.contains(mistake), "{text}: {error}");
        }
    }
}

fn asked(text: &str, count: Option<u32>, node_id: Option<&str>) -> String {
    let dry_run = DryRun {
        count,
        alternates: None,
        node_id: node_id.map(Into::into),
    };
    let payload = dry_run.ask(&Bytes::copy_from_slice(text.as_bytes()));
    String::from_utf8(payload.unwrap().to_vec()).unwrap()
}

#[test]
fn a_question_is_put_into_the_text_and_nothing_else_changes() {
    let text = format!(
        "# mine\nstart:\n  instance_uuid: {ID}\n  later: [kept] # by newer schedulers\n{REST}  scheduling:\n    \
             require: [\"zone = eu-1\"] # why\n...\n#cloud-config\n{{[\n"
    );
    let expected = text
        .replace(
            "    require",
            "    count: 5\n    dry_run: true\n    require",
        )
        .replace("{mem_mb", "{node_id: n1, mem_mb");
    assert_eq!(asked(&text, Some(5), Some("n1")), expected);
    let without = format!("start:\n  instance_uuid: {ID}\n");
    assert_eq!(
        asked(&without, None, Some("n1")),
        format!(
            "start:\n  requirements: {{node_id: n1}}\n  scheduling: {{dry_run: true}}\n  instance_uuid: {ID}\n"
        )
    );
}

#[test]
fn a_question_about_a_start_without_a_plain_place_is_written_again() {
    for start in [
        format!("start: {{instance_uuid: {ID}, requirements: {{mem_mb: 7, node_id: n2}}}}\n"),
        format!("start:\n  instance_uuid: {ID}\n  requirements: {{mem_mb: 7, node_id: n2}}\n"),
        format!("start:\n  instance_uuid: {ID}\n  requirements: {{mem_mb: 7}}\n  scheduling:\n"),
    ] {
        let text = format!("{start}---\nrest: [\n");
        let asked = asked(&text, Some(2), Some("n1"));
        assert!(asked.ends_with("\n---\nrest: [\n"), "{asked}");
        let start = Start::decode(asked.as_bytes()).unwrap();
        assert_eq!(start.requirements.mem_mb, 7);
        assert_eq!(start.requirements.node_id, "n1");
        let scheduling = start.scheduling.unwrap();
        assert_eq!((scheduling.dry_run, scheduling.count), (true, Some(2)));
    }
}

#[test]
fn what_is_not_a_start_is_refused_by_name() {
    let error = requests("stop:\n  x: 1\n", 1).unwrap_err().to_string();
    assert!(
        error.starts_with("a.yaml: not a START payload: "),
        "{error}"
    );
}

#[test]
fn a_missing_file_is_named() {
    let error = StartFile::read(Path::new("/nonexistent/x.yaml"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot read /nonexistent/x.yaml: "),
        "{error}"
    );
}
