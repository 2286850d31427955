//! Tests who can reach a pod, and what a pod can reach.

use serde_json::{Value, json};

use super::yaml::{MONITORING, OVERLAYS, items, of_kind, only, overlay, text};

/// Returns the ports that a rule names.
fn ports(rule: &Value) -> Vec<String> {
    let ports = items(&rule["ports"]).iter();
    ports.map(|port| port["port"].to_string()).collect()
}

pub(super) fn rules(objects: &[Value], direction: &str) -> Vec<Value> {
    let policies = of_kind(objects, "NetworkPolicy").into_iter();
    let rules = policies.flat_map(|policy| items(&policy["spec"][direction]).to_vec());
    rules.collect()
}

#[test]
fn a_pod_reaches_dns_and_its_database_alone() {
    for (name, database) in [
        ("access", Some("5432")),
        ("postgres", Some("5432")),
        ("mysql", Some("3306")),
        ("demo", None),
        ("sqlite-single", None),
    ] {
        let objects = overlay(name);
        let mut to: Vec<String> = rules(&objects, "egress").iter().flat_map(ports).collect();
        to.sort();
        to.dedup();
        let mut wanted = vec!["53".to_owned()];
        wanted.extend(database.map(str::to_owned));
        wanted.sort();
        assert_eq!(to, wanted, "{name}");
    }
}

#[test]
fn a_pod_is_reached_at_the_port_of_callers_alone() {
    for name in OVERLAYS {
        let objects = overlay(name);
        let from = rules(&objects, "ingress");
        assert_eq!(from.len(), 1, "{name}");
        assert_eq!(ports(&from[0]), ["\"http\""], "{name}");
        let callers = json!([{"namespaceSelector": {"matchLabels": {"odometer-client": "true"}}}]);
        assert_eq!(from[0]["from"], callers, "{name}");
        // The policies close both directions, so only these rules allow traffic.
        let policies = of_kind(&objects, "NetworkPolicy");
        let types = policies
            .iter()
            .flat_map(|policy| items(&policy["spec"]["policyTypes"]));
        let types: Vec<&str> = types.map(text).collect();
        assert!(types.contains(&"Ingress") && types.contains(&"Egress"));
    }
}

#[test]
fn prometheus_reaches_a_pod_from_its_own_namespace() {
    let objects = overlay(MONITORING);
    let policy = only(&objects, "NetworkPolicy");
    let rule = &policy["spec"]["ingress"][0];
    assert_eq!(ports(rule), ["\"operations\""]);
    let from = &rule["from"][0]["namespaceSelector"]["matchLabels"];
    assert_eq!(from["kubernetes.io/metadata.name"], "monitoring");
}

#[test]
fn prometheus_may_find_the_pods_and_change_nothing() {
    let objects = overlay(MONITORING);
    let role = only(&objects, "Role");
    let mut may_find: Vec<&str> = Vec::new();
    for rule in items(&role["rules"]) {
        assert_eq!(rule["verbs"], json!(["get", "list", "watch"]));
        may_find.extend(items(&rule["resources"]).iter().map(text));
    }
    assert_eq!(
        may_find,
        ["services", "endpoints", "pods", "endpointslices"]
    );
    let binding = only(&objects, "RoleBinding");
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    // The overlay does not replace this namespace by its own.
    let account = &binding["subjects"][0];
    assert_eq!(account["namespace"], "monitoring");
    assert_eq!(account["name"], "prometheus-k8s");
    for object in [role, binding] {
        assert_eq!(object["metadata"]["namespace"], "odometer");
    }
}
