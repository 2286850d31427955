//! Tests the Job for a restored database. It must run like the other pods and do what the runbook
//! says.

use serde_json::{Value, json};

use super::{
    containers::Containers,
    manifests::faults_of,
    network::rules,
    roles::Roles,
    tools::{command, succeeds},
    yaml::{OVERLAYS, RECOVER, containers, items, objects, of_kind, only, overlay, read, text},
};
use crate::{
    documents::markdown::Document,
    support::{Backend, Options, Program, directory, for_each_server},
};

/// The argument that makes the Job a dry run.
const DRY_RUN: &str = "--dry-run";
/// The number that each counter is raised by in these tests.
const RAISED_BY: i64 = 1_000_000;

/// Returns the Job as it is committed. It does not say how many numbers to skip.
fn committed() -> Value {
    only(&objects(RECOVER), "Job").clone()
}

/// Returns the Jobs that the runbook applies: the dry run, and then the real run.
fn applied() -> [Value; 2] {
    let fences = Document::read("docs/runbook.md").fences();
    let lines = fences.iter().flat_map(|fence| fence.text.lines());
    let makes: Vec<&str> = lines
        .filter_map(|line| line.trim().strip_suffix(" | kubectl apply -f -"))
        .filter(|line| line.starts_with("kubectl kustomize k8s/recover"))
        .collect();
    let makes: [&str; 2] = makes.try_into().expect("the runbook makes two");
    makes.map(|make| {
        let mut making = command("bash");
        making.args(["-o", "pipefail", "-c", make]);
        let made = succeeds(making.env("N", RAISED_BY.to_string()));
        let home = directory("recover");
        let file = home.path().join("job.yaml");
        std::fs::write(&file, made).expect("our directory");
        only(&read(&file), "Job").clone()
    })
}

fn pod_of(object: &Value) -> &Value {
    &object["spec"]["template"]["spec"]
}

/// Returns the arguments of the Job's only container.
fn arguments(job: &Value) -> Vec<&str> {
    let each = containers(job);
    assert_eq!(each.len(), 1, "{each:?}");
    items(&each[0]["args"]).iter().map(text).collect()
}

#[test]
fn the_job_is_a_dry_run_and_in_earnest_all_the_same_but_for_that() {
    let [rehearsal, job] = applied();
    let mut wanted = arguments(&rehearsal);
    assert!(wanted.contains(&DRY_RUN) && wanted.contains(&"recover"));
    assert!(wanted.contains(&format!("--skip={RAISED_BY}").as_str()));
    wanted.retain(|argument| *argument != DRY_RUN);
    assert_eq!(arguments(&job), wanted);
    let without_arguments = |job: &Value| {
        let mut job = job.clone();
        job["spec"]["template"]["spec"]["containers"][0]["args"] = Value::Null;
        job
    };
    assert_eq!(without_arguments(&job), without_arguments(&rehearsal));
    // Every run skips the same number again, so Kubernetes must not repeat the Job.
    assert_eq!(job["spec"]["backoffLimit"], 0);
    assert_eq!(pod_of(&job)["restartPolicy"], "Never");
}

#[test]
fn the_job_runs_as_the_container_that_migrates() {
    let job = committed();
    let pod = pod_of(&job);
    assert_eq!(faults_of(pod), Vec::<String>::new());
    for name in ["postgres", "mysql"] {
        let objects = overlay(name);
        let of_replicas = pod_of(only(&objects, "Deployment"));
        for key in [
            "serviceAccountName",
            "automountServiceAccountToken",
            "enableServiceLinks",
            "securityContext",
        ] {
            assert_eq!(pod[key], of_replicas[key], "{name}: {key}");
        }
        let (ours, migrates) = (&pod["containers"][0], &of_replicas["initContainers"][0]);
        for key in [
            "image",
            "imagePullPolicy",
            "env",
            "resources",
            "securityContext",
            "volumeMounts",
        ] {
            assert_eq!(ours[key], migrates[key], "{name}: {key}");
        }
        let url = items(&migrates["args"]).iter().map(text);
        let url: Vec<&str> = url.filter(|of| of.starts_with("--database-url")).collect();
        assert_eq!(url.len(), 1, "{name}");
        assert!(arguments(&job).contains(&url[0]), "{name}: {url:?}");
        let volumes = items(&of_replicas["volumes"]).iter();
        let migrate: Vec<&Value> = volumes.filter(|of| of["name"] == "migrate").collect();
        assert_eq!(pod["volumes"], json!(migrate), "{name}");
    }
}

/// A pod that takes no calls must get no calls.
#[test]
fn nothing_of_the_replicas_selects_the_job() {
    let job = committed();
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    for name in OVERLAYS {
        let objects = overlay(name);
        let selects = |labels: &Value| {
            let services = of_kind(&objects, "Service").into_iter();
            let of_services = services.map(|service| &service["spec"]["selector"]);
            let policies = of_kind(&objects, "NetworkPolicy").into_iter();
            let of_policies = policies.map(|policy| &policy["spec"]["podSelector"]["matchLabels"]);
            let mut selectors = of_services.chain(of_policies);
            selectors.any(|selector| {
                let mut wanted = selector.as_object().into_iter().flatten();
                wanted.all(|(key, value)| labels[key] == *value)
            })
        };
        assert!(!selects(labels), "{name}");
        // Negative control: the selectors match a replica.
        let deployment = only(&objects, "Deployment");
        let of_replicas = &deployment["spec"]["template"]["metadata"]["labels"];
        assert!(selects(of_replicas), "{name}");
    }
}

#[test]
fn the_job_reaches_dns_and_every_database_of_the_overlays_and_is_reached_by_nobody() {
    let objects = objects(RECOVER);
    let policy = &only(&objects, "NetworkPolicy")["spec"];
    let labels = &committed()["spec"]["template"]["metadata"]["labels"];
    assert_eq!(policy["podSelector"]["matchLabels"], *labels);
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    assert!(policy["ingress"].is_null());
    let mut allowed = rules(&objects, "egress");
    let mut wanted: Vec<Value> = ["postgres", "mysql"]
        .into_iter()
        .flat_map(|name| rules(&overlay(name), "egress"))
        .collect();
    for rules in [&mut allowed, &mut wanted] {
        *rules = rules.iter().flat_map(ways).collect();
        rules.sort_by_key(Value::to_string);
        rules.dedup();
    }
    assert!(wanted.len() >= 4, "vacuous: {wanted:?}");
    assert_eq!(allowed, wanted);
}

/// Returns each port of a rule, together with the targets of the rule.
fn ways(rule: &Value) -> Vec<Value> {
    let ports = items(&rule["ports"]).iter();
    ports.map(|port| json!([rule["to"], port])).collect()
}

for_each_server!(the_job_recovers_and_its_dry_run_changes_nothing);

async fn the_job_recovers_and_its_dry_run_changes_nothing(backend: Backend) {
    let roles = Roles::make(backend).await;
    let migrated = Program::options()
        .database(&roles.migrate)
        .run(&["migrate"]);
    assert_eq!(migrated.code, Some(0), "{migrated}");
    let replica = Program::options().database(&roles.serve);
    assert_eq!(take_one(&replica).await, 1);

    let mut containers = Containers::with_image();
    containers.secret("odometer-migrate", &[("url", &roles.migrate)]);
    let [rehearsal, in_earnest] = applied();
    let (code, said) = containers.run_job(&rehearsal);
    assert_eq!(code, 0, "{said}");
    assert_eq!(take_one(&replica).await, 2);
    let (code, said) = containers.run_job(&in_earnest);
    assert_eq!(code, 0, "{said}");
    assert!(take_one(&replica).await > RAISED_BY);

    // Without `--skip`, the Job is refused.
    let (code, said) = containers.run_job(&committed());
    assert!(code != 0 && said.contains("--skip"), "{code}: {said}");

    // Negative control: without the file of its URL the Job fails, and says so.
    let mut without = rehearsal.clone();
    let arguments = &mut without["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments = arguments.as_array_mut().expect("it has arguments");
    arguments.retain(|argument| !text(argument).starts_with("--database-url"));
    arguments.push("--database-url-file=/run/odometer/migrate/none".into());
    let (code, said) = containers.run_job(&without);
    assert!(
        code == 78 && said.contains("migrate/none"),
        "{code}: {said}"
    );
}

/// Takes one number and stops the program, which returns the rest of the block.
async fn take_one(options: &Options) -> i64 {
    let program = options.start_ready().await;
    let number = program.client().next("orders").await;
    program.stop().await;
    number
}
