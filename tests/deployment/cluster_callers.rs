//! Tests replicas that know their callers by the tokens of service accounts, and the example of
//! such a caller. The cluster that signs the tokens is a key of the test.

use std::path::Path;
use std::time::SystemTime;

use odometer::access::{callers::Callers, settings::AccessSettings};
use odometer::config::{Config, Environment, Flags};
use serde_json::{Value, json};

use super::{
    manifests::faults_of,
    network::rules,
    pod::Pod,
    roles::Roles,
    yaml::{CALLER, items, objects, odometer_toml, of_kind, only, overlay, read, text},
};
use crate::{
    documents::markdown::Document,
    support::{
        Backend, directory, run, settled,
        token_signer::{TokenSigner, key_set, unix_seconds},
    },
};

const ADMIN: &str = "token-of-the-administrator";
/// The ConfigMap that operators make of the cluster's keys, and its key.
const KEYS: (&str, &str) = ("odometer-jwks", "jwks.json");
/// The ConfigMap of the callers, and its key.
const CALLERS: (&str, &str) = ("odometer-callers", "callers.toml");

/// Returns what the overlay says under `[access]`.
fn access() -> AccessSettings {
    let home = directory("access");
    let file = home.path().join("odometer.toml");
    let configuration = overlay("access");
    std::fs::write(&file, odometer_toml(&configuration)).expect("our directory");
    let flags = Flags {
        config: Some(file),
        ..Flags::default()
    };
    let config = Config::load(&flags, &Environment::default());
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    config.access.expect("it has roles")
}

/// Returns the example of a caller.
fn example() -> Value {
    only(&objects(CALLER), "Job").clone()
}

/// Returns the subject of the tokens that a service account gets.
fn subject(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

/// Returns the subject of the tokens that the example gets.
fn subject_of_example() -> String {
    let job = example();
    let account = &job["spec"]["template"]["spec"]["serviceAccountName"];
    subject(text(&job["metadata"]["namespace"]), text(account))
}

#[test]
fn the_configuration_with_roles_is_the_one_of_all_replicas_and_a_part_more() {
    let (all, with_roles) = (objects("k8s/base"), overlay("access"));
    let more = odometer_toml(&with_roles).strip_prefix(odometer_toml(&all));
    let more = more.expect("k8s/base/replica has changed; copy it to the beginning");
    assert!(more.contains("\n[access]\n"), "{more}");
}

#[test]
fn what_callers_are_known_by_is_mounted_in_folders_so_it_can_change() {
    let (access, objects) = (access(), overlay("access"));
    let pod = &only(&objects, "Deployment")["spec"]["template"]["spec"];
    let callers_file = access.callers_file.expect("there are callers");
    let keys_file = &access.issuers[0].jwks_file;
    for (file, (config_map, key)) in [(&callers_file, CALLERS), (keys_file, KEYS)] {
        let mounts = items(&pod["containers"][0]["volumeMounts"]).iter();
        let mut mounts =
            mounts.filter(|mount| file.parent() == Some(Path::new(text(&mount["mountPath"]))));
        let mount = mounts.next().expect("the folder of the file is mounted");
        assert!(file.ends_with(key), "{}", file.display());
        assert_eq!(mount["readOnly"], true, "{mount}");
        // The kubelet never replaces a file that is mounted in this way.
        assert!(mount.get("subPath").is_none(), "{mount}");
        let mut volumes = items(&pod["volumes"]).iter();
        let volume = volumes.find(|volume| volume["name"] == mount["name"]);
        let volume = volume.expect("the mount has a volume");
        // If the name had a hash, a change would be another ConfigMap, and so a rolling update.
        assert_eq!(volume["configMap"], json!({"name": config_map}));
    }
}

#[test]
fn the_example_is_a_caller_that_the_replicas_know() {
    let (access, job) = (access(), example());
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(faults_of(pod), Vec::<String>::new());
    let theirs = objects(CALLER);
    let account = only(&theirs, "ServiceAccount");
    assert_eq!(pod["serviceAccountName"], account["metadata"]["name"]);
    for of in [pod, account] {
        assert_eq!(of["automountServiceAccountToken"], false, "{of}");
    }

    let ours = overlay("access");
    let mut maps = of_kind(&ours, "ConfigMap").into_iter();
    let callers = maps.find(|map| map["metadata"]["name"] == CALLERS.0);
    let callers = text(&callers.expect("there are callers")["data"][CALLERS.1]);
    let callers = Callers::parse(callers, &access.roles, &access.issuers);
    let callers = callers.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(callers.iter().count(), 2);
    let issuer = &access.issuers[0];
    let called = |subject: &str| callers.called(&issuer.issuer, subject, SystemTime::now());
    let caller = called(&subject_of_example()).expect("it is a caller");
    assert_eq!(&*caller.name, "billing");
    assert!(called(&subject("other", "billing")).is_none());

    let token = &pod["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"];
    assert_eq!(text(&token["audience"]), issuer.audience);
    let container = &pod["containers"][0];
    let folder = text(&container["volumeMounts"][0]["mountPath"]);
    let service = &only(&ours, "Service")["metadata"];
    let [name, namespace] = [&service["name"], &service["namespace"]].map(text);
    let wanted = json!([
        "next",
        "orders",
        format!("--url=http://{name}.{namespace}"),
        format!("--token-file={folder}/{}", text(&token["path"])),
    ]);
    assert_eq!(container["args"], wanted);
    let ports = items(&only(&ours, "Service")["spec"]["ports"]);
    assert_eq!(
        (&ports[0]["name"], &ports[0]["port"]),
        (&json!("http"), &json!(80))
    );
}

#[test]
fn the_document_shows_the_token_as_the_example_mounts_it() {
    let mut fences = Document::read("docs/access.md").fences().into_iter();
    let shown = fences.find(|fence| fence.text.trim_start().starts_with("spec:\n"));
    let home = directory("shown");
    let file = home.path().join("pod.yaml");
    std::fs::write(&file, shown.expect("it shows a pod").text).expect("our directory");
    let shown = &read(&file)[0]["spec"];
    let pod = &example()["spec"]["template"]["spec"];
    for key in ["serviceAccountName", "volumes"] {
        assert_eq!(shown[key], pod[key], "{key}");
    }
    let mounts = |pod: &Value| pod["containers"][0]["volumeMounts"].clone();
    assert_eq!(mounts(shown), mounts(pod));
}

#[test]
fn the_example_reaches_dns_and_the_replicas_alone() {
    let (ours, theirs) = (overlay("access"), objects(CALLER));
    let deployment = only(&ours, "Deployment");
    let template = &deployment["spec"]["template"];
    let replicas = json!([{
        "namespaceSelector": {"matchLabels": {
            "kubernetes.io/metadata.name": deployment["metadata"]["namespace"],
        }},
        "podSelector": {"matchLabels": template["metadata"]["labels"]},
    }]);
    let allowed: [Value; 2] = rules(&theirs, "egress").try_into().expect("two rules");
    let [dns, to_replicas] = allowed;
    assert!(rules(&ours, "egress").contains(&dns), "{dns}");
    assert_eq!(to_replicas["to"], replicas);
    // A policy sees the port of the pod, not the one of the Service.
    let port = &template["spec"]["containers"][0]["ports"][0]["containerPort"];
    assert_eq!(
        to_replicas["ports"],
        json!([{"port": port, "protocol": "TCP"}])
    );

    assert!(rules(&theirs, "ingress").is_empty());
    let policy = &only(&theirs, "NetworkPolicy")["spec"];
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    let labels = &example()["spec"]["template"]["metadata"]["labels"];
    assert_eq!(policy["podSelector"]["matchLabels"], *labels);
}

#[test]
fn the_pod_gives_numbers_for_the_token_of_a_service_account() {
    run(async {
        let cluster = Cluster::new();
        let roles = Roles::make(Backend::Postgres).await;
        let mut pod = Pod::with("k8s/overlays/access", &[cluster.keys()]);
        pod.containers
            .secret("odometer-migrate", &[("url", &roles.migrate)]);
        pod.containers.secret(
            "odometer-serve",
            &[("url", &roles.serve), ("admin-token", ADMIN)],
        );
        pod.play();
        pod.ready().await;
        let (bearer, path) = (format!("Bearer {ADMIN}"), "/v1/sequences/orders");
        let (nothing, shown) = (json!({}), [("authorization", bearer.as_str())]);
        let defined = settled(|| pod.client.put_with(path, &nothing, &shown)).await;
        assert_eq!(defined.status, 201, "{defined:?}");

        let (subject_of_caller, audience) = (subject_of_example(), &cluster.audience);
        let right = cluster.token(audience, &subject_of_caller);
        let of_report = cluster.token(audience, &subject("shop", "report"));
        let of_the_cluster = cluster.token(&cluster.issuer, &subject_of_caller);
        for (what, token, status) in [
            ("the caller", &right, 200),
            ("a caller of another role", &of_report, 403),
            ("the token for the cluster itself", &of_the_cluster, 401),
            (
                "another account",
                &cluster.token(audience, &subject("shop", "default")),
                401,
            ),
            (
                "this name in another namespace",
                &cluster.token(audience, &subject("other", "billing")),
                401,
            ),
            (
                "another cluster of this name",
                &Cluster::new().token(audience, &subject_of_caller),
                401,
            ),
            ("nothing", &String::new(), 401),
        ] {
            assert_eq!(taken(&pod, token).await, status, "{what}");
        }

        let (code, said) = run_example(&mut pod, &right);
        assert_eq!((code, said.trim()), (0, "2"));
        let (code, said) = run_example(&mut pod, &of_the_cluster);
        assert!(code == 1 && said.contains("(unauthenticated)"), "{said}");
        let (code, said) = run_example(&mut pod, &of_report);
        assert!(code == 1 && said.contains("(forbidden)"), "{said}");
        let (log, signature) = (pod.log(), right.rsplit('.').next().expect("three parts"));
        assert!(log.contains("Listening on") && !log.contains(signature));
    });
}

/// A cluster, as far as it signs the tokens of service accounts.
struct Cluster {
    signer: TokenSigner,
    issuer: String,
    audience: String,
}

impl Cluster {
    /// Makes a cluster with a new key, and with the name that the overlay has.
    fn new() -> Self {
        let issuer = access().issuers.remove(0);
        Self {
            signer: TokenSigner::rs256("cluster"),
            issuer: issuer.issuer,
            audience: issuer.audience,
        }
    }

    /// Returns the ConfigMap that operators make.
    fn keys(&self) -> Value {
        let (name, key) = KEYS;
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {key: key_set(&[&self.signer])},
        })
    }

    /// Returns a token with the claims that Kubernetes gives.
    fn token(&self, audience: &str, subject: &str) -> String {
        let now = unix_seconds();
        self.signer.token(&json!({
            "iss": self.issuer, "aud": [audience], "sub": subject,
            "iat": now, "nbf": now, "exp": now + 3600, "jti": "1",
            "kubernetes.io": {"namespace": "shop", "pod": {"name": "billing"}},
        }))
    }
}

/// Asks for a number with a token; an empty one is left out. Returns the status.
async fn taken(pod: &Pod, token: &str) -> u16 {
    let bearer = format!("Bearer {token}");
    let shown = [("authorization", bearer.as_str())];
    let headers: &[(&str, &str)] = if token.is_empty() { &[] } else { &shown };
    let reply = settled(|| {
        let path = "/v1/sequences/orders/next";
        pod.client.send(reqwest::Method::POST, path, headers, None)
    });
    reply.await.status
}

/// Runs the example on this machine, with a token that the kubelet would write. Returns the exit
/// code and the log. podman 4.3 has no projected volumes, and no names of Services.
fn run_example(pod: &mut Pod, token: &str) -> (i64, String) {
    let folder = pod.containers.home().join("token");
    std::fs::create_dir_all(&folder).expect("our directory");
    std::fs::write(folder.join("token"), token).expect("our directory");
    let mut job = example();
    let spec = &mut job["spec"]["template"]["spec"];
    let host_path = json!({"path": folder.display().to_string(), "type": "Directory"});
    spec["volumes"][0] = json!({"name": spec["volumes"][0]["name"], "hostPath": host_path});
    let arguments = spec["containers"][0]["args"].as_array_mut();
    for argument in arguments.expect("it has arguments") {
        if text(argument).starts_with("--url=") {
            *argument = format!("--url={}", pod.client.url()).into();
        }
    }
    pod.containers.run_job(&job)
}
