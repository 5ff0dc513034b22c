// deploy/kubernetes, rendered by kustomize after the steps of deploy/README.md, "Kubernetes", is valid for the API, hardened item
// by item, and consistent with the images and programs that it names. There is no cluster here; the tests only read the objects.
//
// Each rule comes with mutants of the objects that it must refuse. The last test removes each line that concerns security, one at
// a time, and some rule must notice.
import assert from "node:assert/strict";
import {execFileSync} from "node:child_process";
import {cp, mkdtemp, readFile, readdir, rm} from "node:fs/promises";
import {tmpdir} from "node:os";
import path from "node:path";
import {after, before, test} from "node:test";
import {fileURLToPath} from "node:url";

import {parseYaml} from "@redocly/openapi-core";

import {validate} from "./kubernetes-schema.mjs";

const SOURCE = process.env.TALLY_SOURCE ?? fileURLToPath(new URL("../..", import.meta.url));
const README = path.join(SOURCE, "deploy/README.md");

let folder, objects;

const run = (command, args, options = {}) =>
  execFileSync(command, args, {encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], ...options});
const readmeBlock = (...name) =>
  run(path.join(SOURCE, "tests/compose/readme_block"), [README, "## Kubernetes", ...name]);
const render = () => run("kubectl", ["kustomize", "deploy/kubernetes"], {cwd: folder})
  .split(/^---$/m).map((text) => parseYaml(text));

before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "tally-kubernetes-"));
  await cp(path.join(SOURCE, "deploy"), path.join(folder, "deploy"),
    {recursive: true, filter: (file) => path.basename(file) !== "secrets"});
  assert.throws(render, /secrets/, "objects are made although nobody made secrets");
  const names = readmeBlock().trim().split("\n");
  assert.deepEqual(names, ["prepare"]);
  run("bash", ["-euc", readmeBlock("prepare")], {cwd: folder});
  objects = render();
});
after(() => rm(folder, {recursive: true, force: true}));

// --- Reading the objects ---

const all = (list, ...kinds) => list.filter(({kind}) => kinds.includes(kind));
const one = (list, kind, name) => {
  const found = list.find((each) => each.kind === kind && each.metadata.name.replace(/-[a-z0-9]{10}$/, "") === name);
  assert.ok(found, `no ${kind} ${name}`);
  return found;
};
const workloads = (list) => all(list, "StatefulSet", "Deployment");
const podsOf = (list) => workloads(list).map(({spec}) => spec.template);
const containersOf = ({spec}) => [...spec.initContainers ?? [], ...spec.containers];
const includes = (labels, wanted) => Object.entries(wanted).every(([key, value]) => labels?.[key] === value);
// Our selectors consist of labels only; other kinds are not supported here.
function selects(selector, labels) {
  assert.deepEqual(Object.keys(selector).filter((key) => key !== "matchLabels"), []);
  return includes(labels, selector.matchLabels ?? {});
}
const environmentOf = (list, container) => Object.fromEntries([
  ...(container.envFrom ?? []).flatMap(({configMapRef}) => {
    const map = all(list, "ConfigMap").find(({metadata}) => metadata.name === configMapRef?.name);
    assert.ok(map, `${container.name}: no ConfigMap ${configMapRef?.name}`);
    return Object.entries(map.data);
  }),
  ...(container.env ?? []).map(({name, value, valueFrom}) => [name, value ?? valueFrom]),
]);
const secretOf = (list, volume) => {
  const secret = all(list, "Secret").find(({metadata}) => metadata.name === volume.secret.secretName);
  assert.ok(secret, `no Secret ${volume.secret.secretName}`);
  return secret;
};

// Whether the policies let a connection through, as the API defines them. A peer is {namespace,
// labels}, both sets of labels, or null for somewhere outside.
function isPeer(peer, {namespaceSelector, podSelector, ...rest}, own) {
  assert.deepEqual(rest, {});
  return peer !== null && (namespaceSelector ? selects(namespaceSelector, peer.namespace) : peer.namespace === own)
    && (!podSelector || selects(podSelector, peer.labels));
}
function isOpen(list, direction, pod, peer, protocol, port) {
  const [type, side] = direction === "in" ? ["Ingress", "from"] : ["Egress", "to"];
  const policies = all(list, "NetworkPolicy").map(({spec}) => spec)
    .filter(({podSelector, policyTypes}) => policyTypes.includes(type) && selects(podSelector, pod.labels));
  return policies.length === 0 || policies.some((spec) => (spec[type.toLowerCase()] ?? []).some((rule) =>
    (!rule[side] || rule[side].some((each) => isPeer(peer, each, pod.namespace)))
    && (!rule.ports || rule.ports.some((each) => each.protocol === protocol && each.port === port))));
}

// --- Rules: {name, check(objects), mutants: {name: change(objects)}} ---

const rules = [];
const rule = (name, check, mutants) => rules.push({name, check, mutants});

// Applies a rule to every pod, and every mutant to each pod separately.
function podRule(name, check, mutants) {
  rule(name, (list) => {
    const pods = podsOf(list);
    assert.equal(pods.length, 2);
    pods.forEach((pod) => check(pod, list));
  }, Object.fromEntries(Object.entries(mutants).flatMap(([what, change]) =>
    [0, 1].map((i) => [`${what}, pod ${i}`, (list) => change(podsOf(list)[i], list)]))));
}
function containerRule(name, check, mutants) {
  podRule(name, (pod, list) => containersOf(pod).forEach((container) => check(container, list, pod)),
    Object.fromEntries(Object.entries(mutants).flatMap(([what, change]) => [
      [what, (pod, list) => change(pod.spec.containers[0], list, pod)],
      [`${what}, in one before it`, (pod, list) => {
        pod.spec.initContainers = [structuredClone(pod.spec.containers[0])];
        change(pod.spec.initContainers[0], list, pod);
      }],
    ])));
}

rule("objects are valid", (list) => list.forEach(validate), {
  "a misspelt member": (list) => {
    const {securityContext} = podsOf(list)[0].spec.containers[0];
    securityContext.readOnlyRootFileSystem = securityContext.readOnlyRootFilesystem;
    delete securityContext.readOnlyRootFilesystem;
  },
  "text for a number": (list) => (one(list, "PodDisruptionBudget", "coordinator").spec.minAvailable = {}),
  "a member missing": (list) => delete workloads(list)[0].spec.selector,
  "a version that is gone": (list) => (one(list, "HorizontalPodAutoscaler", "worker").apiVersion = "autoscaling/v2beta1"),
});

rule("all are in the namespace", (list) => {
  const namespace = all(list, "Namespace")[0].metadata.name;
  list.filter(({kind}) => kind !== "Namespace").forEach(({kind, metadata}) =>
    assert.equal(metadata.namespace, namespace, `${kind} ${metadata.name}`));
}, {"one elsewhere": (list) => (list.at(-1).metadata.namespace = "default")});

rule("the namespace refuses pods that ask for more", (list) =>
  assert.equal(all(list, "Namespace")[0].metadata.labels["pod-security.kubernetes.io/enforce"], "restricted"), {
  "it asks for less": (list) =>
    (all(list, "Namespace")[0].metadata.labels["pod-security.kubernetes.io/enforce"] = "baseline"),
});

containerRule("nobody is root", ({securityContext: own = {}}, list, {spec: {securityContext: pod = {}}}) => {
  assert.equal(own.runAsNonRoot ?? pod.runAsNonRoot, true);
  assert.ok((own.runAsUser ?? pod.runAsUser) > 0);
  assert.ok((own.runAsGroup ?? pod.runAsGroup) > 0);
}, {
  "said of the pod": (container, list, pod) => (pod.spec.securityContext.runAsNonRoot = false),
  "taken back": (container) => (container.securityContext.runAsNonRoot = false),
  "user 0": (container) => (container.securityContext.runAsUser = 0),
  "group 0": (container) => (container.securityContext.runAsGroup = 0),
});

let dockerfile;
before(async () => (dockerfile = await readFile(path.join(SOURCE, "Dockerfile"), "utf8")));
podRule("user and groups are those of the image", ({spec: {securityContext}}) => {
  const [, user, group] = /^USER (\d+):(\d+)$/m.exec(dockerfile);
  assert.deepEqual([securityContext.runAsUser, securityContext.runAsGroup, securityContext.fsGroup].map(String),
    [user, group, group]);
}, {
  "another user": ({spec}) => (spec.securityContext.runAsUser = 1000),
  "no group for the files": ({spec}) => delete spec.securityContext.fsGroup,
});

containerRule("system calls are filtered", ({securityContext: own = {}}, list, {spec: {securityContext: pod = {}}}) =>
  assert.equal((own.seccompProfile ?? pod.seccompProfile)?.type, "RuntimeDefault"), {
  "not said": (container, list, pod) => delete pod.spec.securityContext.seccompProfile,
  "not filtered": (container) => (container.securityContext.seccompProfile = {type: "Unconfined"}),
});

containerRule("no privileges, now or later", ({securityContext = {}}) => {
  assert.equal(securityContext.allowPrivilegeEscalation, false);
  assert.equal(securityContext.privileged, false);
  assert.deepEqual(securityContext.capabilities, {drop: ["ALL"]});
  assert.ok(!("procMount" in securityContext));
}, {
  escalation: ({securityContext}) => delete securityContext.allowPrivilegeEscalation,
  privileged: ({securityContext}) => (securityContext.privileged = true),
  "capabilities kept": ({securityContext}) => delete securityContext.capabilities,
  "one capability": ({securityContext}) => (securityContext.capabilities.add = ["NET_BIND_SERVICE"]),
  "all but one": ({securityContext}) => (securityContext.capabilities.drop = ["NET_RAW"]),
});

containerRule("the root file system is read-only", ({securityContext = {}}) =>
  assert.equal(securityContext.readOnlyRootFilesystem, true), {
  "not said": ({securityContext}) => delete securityContext.readOnlyRootFilesystem,
  writable: ({securityContext}) => (securityContext.readOnlyRootFilesystem = false),
});

podRule("nothing of the node is shared", ({spec}) => {
  for (const key of ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"]) {
    assert.ok(!spec[key], key);
  }
  (spec.volumes ?? []).forEach((volume) => assert.ok("secret" in volume || volume.emptyDir?.sizeLimit, volume.name));
  containersOf({spec}).flatMap(({ports = []}) => ports).forEach((port) => assert.ok(!port.hostPort));
}, {
  network: ({spec}) => (spec.hostNetwork = true),
  processes: ({spec}) => (spec.hostPID = true),
  "shared memory": ({spec}) => (spec.hostIPC = true),
  "each other's processes": ({spec}) => (spec.shareProcessNamespace = true),
  files: ({spec}) => spec.volumes.push({name: "node", hostPath: {path: "/"}}),
  "all of its disk": ({spec}) => (spec.volumes.find(({emptyDir}) => emptyDir).emptyDir = {}),
  "a port": ({spec}) => (spec.containers[0].ports = [{containerPort: 8080, hostPort: 8080}]),
});

podRule("no token of the cluster, no variables of its services", ({spec}) => {
  assert.equal(spec.automountServiceAccountToken, false);
  assert.equal(spec.enableServiceLinks, false);
}, {
  token: ({spec}) => delete spec.automountServiceAccountToken,
  variables: ({spec}) => delete spec.enableServiceLinks,
});

containerRule("what it may use is limited", ({resources = {}}) => {
  for (const key of ["cpu", "memory"]) {
    assert.ok(resources.requests?.[key], `requests ${key}`);
    assert.ok(resources.limits?.[key], `limits ${key}`);
  }
}, {
  "no limits": ({resources}) => delete resources.limits,
  "no memory limit": ({resources}) => delete resources.limits.memory,
  "no requests": ({resources}) => delete resources.requests,
  "no processor request": ({resources}) => delete resources.requests.cpu, // the autoscaler counts in these
});

podRule("secrets are files, for their owner alone", (pod, list) => {
  for (const container of containersOf(pod)) {
    (container.envFrom ?? []).forEach((from) => assert.deepEqual(Object.keys(from), ["configMapRef"]));
    (container.env ?? []).forEach(({name, valueFrom}) => {
      assert.ok(!valueFrom?.secretKeyRef, name);
      assert.ok(!/(TOKEN|PASSWORD|PASSFILE)$/.test(name), name);
    });
  }
  const volumes = pod.spec.volumes.filter(({secret}) => secret);
  assert.equal(volumes.length, 1);
  secretOf(list, volumes[0]);
  assert.equal(volumes[0].secret.defaultMode, 0o440);
  containersOf(pod).forEach(({volumeMounts}) =>
    assert.equal(volumeMounts.find(({name}) => name === volumes[0].name)?.readOnly, true));
}, {
  "in the environment": ({spec}, list) => spec.containers[0].env.push({name: "X",
    valueFrom: {secretKeyRef: {name: all(list, "Secret")[0].metadata.name, key: "worker-token"}}}),
  "all of them there": ({spec}, list) => spec.containers[0].envFrom.push({secretRef: {name: all(list, "Secret")[0].metadata.name}}),
  "in clear": ({spec}) => spec.containers[0].env.push({name: "TALLY_TOKEN", value: "open-sesame-open-sesame"}),
  "for others": ({spec}) => (spec.volumes.find(({secret}) => secret).secret.defaultMode = 0o444),
  "mode not said": ({spec}) => delete spec.volumes.find(({secret}) => secret).secret.defaultMode,
  writable: ({spec}) => delete spec.containers[0].volumeMounts.find(({name}) => name === "secrets").readOnly,
  "one that is not there": ({spec}) => (spec.volumes.find(({secret}) => secret).secret.secretName = "mine"),
});

rule("a worker gets its token and nothing else", (list) => {
  const pod = one(list, "Deployment", "worker").spec.template;
  const volumes = pod.spec.volumes.filter(({secret}) => secret);
  assert.deepEqual(volumes.flatMap((volume) => Object.keys(secretOf(list, volume).data)), ["worker-token"]);
}, {
  "the database too": (list) => (one(list, "Secret", "worker").data["pg_service.conf"] = "eA=="),
  "those of the coordinators": (list) => (one(list, "Deployment", "worker").spec.template.spec.volumes
    .find(({secret}) => secret).secret.secretName = one(list, "Secret", "coordinator").metadata.name),
});

rule("no secret outside of Secrets", (list) => {
  const values = all(list, "Secret").flatMap(({data}) => Object.values(data))
    .flatMap((text) => Buffer.from(text, "base64").toString().match(/[0-9a-f]{64}|(?<=password=)\S+/g) ?? []);
  assert.ok(values.length >= 4);
  const others = JSON.stringify(list.filter(({kind}) => kind !== "Secret"));
  values.forEach((value) => assert.ok(!others.includes(value)));
}, {
  "a password in the store's name": (list) => (one(list, "ConfigMap", "coordinator").data.TALLY_STORE =
    `postgres:password=${/password=(\S+)/.exec(Buffer.from(one(list, "Secret", "coordinator").data["pg_service.conf"], "base64"))[1]}`),
});

const labelsOf = (component) => ({"app.kubernetes.io/name": "tally", "app.kubernetes.io/component": component});
const HERE = {"kubernetes.io/metadata.name": "tally"};
rule("nobody talks to anybody but as they must", (list) => {
  assert.deepEqual(one(list, "NetworkPolicy", "default-deny").spec, {podSelector: {}, policyTypes: ["Ingress", "Egress"]});
  const pod = (component) => ({namespace: HERE, labels: labelsOf(component)});
  const [coordinator, worker, stranger] = ["coordinator", "worker", "stranger"].map(pod);
  const ingress = {namespace: {"tally-access": "allowed"}, labels: {app: "ingress"}};
  const elsewhere = {namespace: {"kubernetes.io/metadata.name": "default"}, labels: labelsOf("worker")};
  const dns = {namespace: {"kubernetes.io/metadata.name": "kube-system"}, labels: {"k8s-app": "kube-dns"}};
  const system = {namespace: dns.namespace, labels: {"k8s-app": "dashboard"}};
  const open = new Map();
  const may = (direction, from, peer, ...ports) => ports.forEach((port) => open.set([direction, from, peer, port].join(), true));
  const [namesake, toiler] = ["coordinator", "worker"].map((component) =>
    ({namespace: HERE, labels: {...labelsOf(component), "app.kubernetes.io/name": "other"}}));
  const resolver = {namespace: HERE, labels: dns.labels};
  const peers = {coordinator, worker, stranger, ingress, elsewhere, dns, system, namesake, toiler, resolver, outside: null};
  may("in", "coordinator", "coordinator", 8080);
  may("in", "coordinator", "worker", 8080);
  may("in", "coordinator", "ingress", 8080);
  may("out", "coordinator", "coordinator", 8080);
  may("out", "worker", "coordinator", 8080);
  Object.keys(peers).forEach((peer) => may("out", "coordinator", peer, 5432)); // at any address
  ["coordinator", "worker", "stranger"].forEach((from) => may("out", from, "dns", "UDP53", "TCP53"));
  for (const direction of ["in", "out"]) {
    for (const from of ["coordinator", "worker", "stranger"]) {
      for (const [peer, who] of Object.entries(peers)) {
        for (const port of [8080, 5432, 443, 8081, "UDP53", "TCP53"]) {
          const key = [direction, from, peer, port].join();
          const [, protocol, number] = /^(UDP|TCP)?(\d+)$/.exec(port);
          assert.equal(isOpen(list, direction, pod(from), who, protocol ?? "TCP", Number(number)),
            open.get(key) ?? false, key);
        }
      }
    }
  }
}, Object.fromEntries([
  ...["default-deny", "dns", "coordinator", "worker"].map((name) => [`without ${name}`,
    (list) => list.splice(list.indexOf(one(list, "NetworkPolicy", name)), 1)]),
  ...["Ingress", "Egress"].map((type) => [`without ${type} by default`, (list) => {
    const {spec} = one(list, "NetworkPolicy", "default-deny");
    spec.policyTypes = spec.policyTypes.filter((each) => each !== type);
  }]),
  ["anybody may ask", (list) => delete one(list, "NetworkPolicy", "coordinator").spec.ingress[0].from],
  ["on any port", (list) => delete one(list, "NetworkPolicy", "coordinator").spec.ingress[0].ports],
  ["any namespace may", (list) => one(list, "NetworkPolicy", "coordinator").spec.ingress[0].from.push({namespaceSelector: {}})],
  ["workers may reach anybody", (list) => one(list, "NetworkPolicy", "worker").spec.egress.push({})],
  ["coordinators may reach anybody", (list) => delete one(list, "NetworkPolicy", "coordinator").spec.egress[1].ports],
]));

// --- Consistency ---

rule("workloads, services and budgets mean each other", (list) => {
  for (const {metadata, spec} of workloads(list)) {
    assert.ok(selects(spec.selector, spec.template.metadata.labels), metadata.name);
    const others = workloads(list).filter((each) => each.metadata.name !== metadata.name);
    others.forEach((other) => assert.ok(!selects(spec.selector, other.spec.template.metadata.labels)));
    const budgets = all(list, "PodDisruptionBudget")
      .filter((budget) => selects(budget.spec.selector, spec.template.metadata.labels));
    assert.equal(budgets.length, 1, `budgets of ${metadata.name}`);
    // A budget that never lets a pod go would block upgrades of nodes.
    const {minAvailable = 0, maxUnavailable} = budgets[0].spec;
    assert.ok(maxUnavailable > 0 || (minAvailable > 0 && minAvailable < spec.replicas), `budget of ${metadata.name}`);
    for (const {labelSelector, topologyKey} of spec.template.spec.topologySpreadConstraints ?? []) {
      assert.equal(topologyKey, "kubernetes.io/hostname");
      assert.ok(selects(labelSelector, spec.template.metadata.labels));
    }
  }
  assert.equal(all(list, "PodDisruptionBudget").length, workloads(list).length);
  for (const {metadata, spec} of all(list, "Service")) {
    const pods = podsOf(list).filter((pod) => includes(pod.metadata.labels, spec.selector));
    assert.equal(pods.length, 1, `pods of ${metadata.name}`);
    for (const {targetPort} of spec.ports) {
      assert.ok(containersOf(pods[0]).some(({ports}) => ports?.some(({name}) => name === targetPort)), `${metadata.name}: ${targetPort}`);
    }
  }
  const {replicas, serviceName, template} = one(list, "StatefulSet", "coordinator").spec;
  assert.ok(replicas >= 2);
  const governing = one(list, "Service", serviceName).spec;
  assert.equal(governing.clusterIP, "None");
  assert.ok(includes(template.metadata.labels, governing.selector));
}, {
  "labels of the pods": (list) => (podsOf(list)[1].metadata.labels["app.kubernetes.io/component"] = "other"),
  "labels of a service": (list) => (one(list, "Service", "tally").spec.selector["app.kubernetes.io/component"] = "worker"),
  "a port without that name": (list) => (one(list, "Service", "tally").spec.ports[0].targetPort = "web"),
  "a budget of nobody": (list) => (one(list, "PodDisruptionBudget", "worker").spec.selector.matchLabels = {app: "x"}),
  "a budget that lets none go": (list) => (one(list, "PodDisruptionBudget", "coordinator").spec.minAvailable = 2),
  "no budget": (list) => list.splice(list.indexOf(one(list, "PodDisruptionBudget", "coordinator")), 1),
  "one coordinator": (list) => (one(list, "StatefulSet", "coordinator").spec.replicas = 1),
  "another governing service": (list) => (one(list, "StatefulSet", "coordinator").spec.serviceName = "tally"),
  "spread by other labels": (list) => (one(list, "StatefulSet", "coordinator").spec.template.spec
    .topologySpreadConstraints[0].labelSelector.matchLabels = {app: "x"}),
});

rule("the autoscaler leads the workers", (list) => {
  const [{spec}] = all(list, "HorizontalPodAutoscaler");
  const target = list.find(({apiVersion, kind, metadata: {name}}) => apiVersion === spec.scaleTargetRef.apiVersion
    && kind === spec.scaleTargetRef.kind && name === spec.scaleTargetRef.name);
  assert.equal(target?.spec.template.metadata.labels["app.kubernetes.io/component"], "worker");
  assert.ok(!("replicas" in target.spec), "every apply would set them back");
  assert.ok(spec.minReplicas >= 1 && spec.minReplicas < spec.maxReplicas);
  assert.equal(spec.metrics[0].resource.name, "cpu");
  // As many slots as the job that everyone tries first has clients.
  const slots = spec.minReplicas * environmentOf(list, target.spec.template.spec.containers[0]).TALLY_CLIENTS;
  assert.ok(slots >= 10, `${slots} slots`);
}, {
  "somebody else": (list) => (one(list, "HorizontalPodAutoscaler", "worker").spec.scaleTargetRef.name = "tally"),
  "the coordinators": (list) => (one(list, "HorizontalPodAutoscaler", "worker").spec.scaleTargetRef =
    {apiVersion: "apps/v1", kind: "StatefulSet", name: "coordinator"}),
  "two that decide": (list) => (one(list, "Deployment", "worker").spec.replicas = 6),
  "too few slots": (list) => (one(list, "HorizontalPodAutoscaler", "worker").spec.minReplicas = 2),
});

rule("images are those of the Dockerfile, of its version", (list) => {
  const [, version] = /^ARG VERSION=(\S+)$/m.exec(dockerfile);
  const targets = [...dockerfile.matchAll(/^FROM runtime AS (\S+)$/gm)].map(([, target]) => target);
  const images = podsOf(list).flatMap(containersOf).map(({name, image}) => {
    assert.ok(targets.includes(name));
    return image;
  });
  assert.deepEqual(images.sort(), targets.map((target) => `tally-${target}:${version}`).sort());
}, {
  "no version": (list) => (podsOf(list)[0].spec.containers[0].image = "tally-coordinator"),
  latest: (list) => (podsOf(list)[0].spec.containers[0].image = "tally-coordinator:latest"),
});

rule("ports are those of the image", (list) => {
  const [, port] = /^EXPOSE (\d+)$/m.exec(dockerfile);
  const container = one(list, "StatefulSet", "coordinator").spec.template.spec.containers[0];
  assert.deepEqual(container.ports.map(({containerPort}) => String(containerPort)), [port]);
  assert.match(environmentOf(list, container).TALLY_REPLICA_ADDRESS, new RegExp(`^http://\\$\\(POD_IP\\):${port}$`));
  const url = new URL(environmentOf(list, one(list, "Deployment", "worker").spec.template.spec.containers[0]).TALLY_COORDINATOR);
  const service = one(list, "Service", url.hostname).spec;
  assert.notEqual(service.clusterIP, "None");
  assert.ok(service.ports.some((each) => String(each.port) === url.port));
}, {
  "another port": (list) => (one(list, "StatefulSet", "coordinator").spec.template.spec.containers[0].ports[0].containerPort = 80),
  "a service that is not there": (list) => (one(list, "ConfigMap", "worker").data.TALLY_COORDINATOR = "http://coordinator:8080"),
  "a port that it has not": (list) => (one(list, "ConfigMap", "worker").data.TALLY_COORDINATOR = "http://tally:80"),
});

let openapi;
before(async () => (openapi = parseYaml(await readFile(path.join(SOURCE, "api/openapi.yaml"), "utf8"))));
rule("probes ask what answers", (list) => {
  const coordinator = one(list, "StatefulSet", "coordinator").spec.template.spec.containers[0];
  const wanted = {startupProbe: "/healthz", livenessProbe: "/healthz", readinessProbe: "/readyz"};
  for (const [probe, route] of Object.entries(wanted)) {
    const {httpGet, periodSeconds, timeoutSeconds = 1} = coordinator[probe] ?? {};
    assert.equal(httpGet?.path, route);
    assert.deepEqual(openapi.paths[httpGet.path].get.security, [], "needs no token");
    assert.ok(coordinator.ports.some(({name}) => name === httpGet.port));
    assert.ok(timeoutSeconds <= periodSeconds);
  }
  const worker = one(list, "Deployment", "worker").spec.template.spec.containers[0];
  // The same check as HEALTHCHECK of the image, but it must not end a worker.
  const commands = [...dockerfile.matchAll(/^HEALTHCHECK .* CMD (\[.*\])$/gm)].map(([, words]) => words);
  assert.ok(commands.includes(JSON.stringify(worker.readinessProbe.exec.command).replaceAll(",", ", ")));
  assert.ok(!worker.livenessProbe);
}, {
  "no readiness": (list) => delete one(list, "StatefulSet", "coordinator").spec.template.spec.containers[0].readinessProbe,
  "alive only with a store": (list) =>
    (one(list, "StatefulSet", "coordinator").spec.template.spec.containers[0].livenessProbe.httpGet.path = "/readyz"),
  "a port without that name": (list) =>
    (one(list, "StatefulSet", "coordinator").spec.template.spec.containers[0].startupProbe.httpGet.port = "web"),
  "another command": (list) =>
    (one(list, "Deployment", "worker").spec.template.spec.containers[0].readinessProbe.exec.command = ["true"]),
  "a worker ended for it": (list) => {
    const container = one(list, "Deployment", "worker").spec.template.spec.containers[0];
    container.livenessProbe = container.readinessProbe;
  },
});

podRule("there is time to end", ({spec}) => {
  const wait = Number(spec.containers[0].lifecycle?.preStop.exec.command[1] ?? 0);
  assert.ok(spec.terminationGracePeriodSeconds >= wait + 20);
}, {
  "no time": ({spec}) => (spec.terminationGracePeriodSeconds = 5),
  "not said": ({spec}) => delete spec.terminationGracePeriodSeconds,
});

const helps = new Map();
const helpOf = (program) => {
  if (!helps.has(program)) {
    helps.set(program, run(path.join(process.env.TALLY_BIN, program), ["--help"]).replace(/\s+/g, " "));
  }
  return helps.get(program);
};
const FOREIGN = ["POD_IP", "PGSERVICEFILE"]; // of Kubernetes' $(...), and of libpq
containerRule("programs know their variables and options", (container, list) => {
  const program = `tally-${container.name}`;
  const known = `${helpOf(program)} ${run(path.join(process.env.TALLY_BIN, "tally"), ["list", "--help"]).replace(/\s+/g, " ")}`;
  for (const name of Object.keys(environmentOf(list, container))) {
    const option = name.replace("TALLY_", "--").toLowerCase().replaceAll("_", "-");
    assert.ok(FOREIGN.includes(name) || known.includes(` ${option} `), `${program}: ${name}`);
  }
  for (const word of container.args ?? []) {
    assert.ok(helpOf(program).includes(` ${word.split("=")[0]} `), `${program}: ${word}`);
  }
}, {
  "a variable that they do not know": ({env}) => env.push({name: "TALLY_LEASES", value: "1"}),
  "an option that they do not know": (container) => (container.args = ["--leases=1"]),
});

rule("a coordinator is known by its pod", (list) => {
  const environment = environmentOf(list, one(list, "StatefulSet", "coordinator").spec.template.spec.containers[0]);
  assert.equal(environment.TALLY_REPLICA_ID.fieldRef.fieldPath, "metadata.name");
  assert.equal(environment.POD_IP.fieldRef.fieldPath, "status.podIP");
  const names = one(list, "StatefulSet", "coordinator").spec.template.spec.containers[0].env.map(({name}) => name);
  assert.ok(names.indexOf("POD_IP") < names.indexOf("TALLY_REPLICA_ADDRESS"), "only what stands above is filled in");
}, {
  "one name for all": (list) => (one(list, "StatefulSet", "coordinator").spec.template.spec.containers[0].env
    .find(({name}) => name === "TALLY_REPLICA_ID").valueFrom.fieldRef.fieldPath = "metadata.namespace"),
  "an address that comes too late": (list) => one(list, "StatefulSet", "coordinator").spec.template.spec.containers[0].env.reverse(),
});

podRule("files that variables name are there", (pod, list) => {
  for (const container of containersOf(pod)) {
    const files = container.volumeMounts.flatMap(({name, mountPath}) => {
      const volume = pod.spec.volumes.find((each) => each.name === name);
      return volume.secret ? Object.keys(secretOf(list, volume).data).map((key) => `${mountPath}/${key}`) : [];
    });
    const named = Object.entries(environmentOf(list, container)).filter(([name]) => /FILE$/.test(name));
    assert.ok(named.length > 0);
    named.forEach(([name, value]) => assert.ok(files.includes(value), `${name} ${value}`));
  }
}, {
  "another folder": ({spec}) => (spec.containers[0].volumeMounts.find(({name}) => name === "secrets").mountPath = "/secrets"),
  "a file that is missing": ({spec}, list) => all(list, "Secret").forEach(({data}) => delete data["worker-token"]),
});

rule("the store is the section of the service file", (list) => {
  const [, service] = /^postgres:service=(\S+)$/.exec(one(list, "ConfigMap", "coordinator").data.TALLY_STORE);
  const text = Buffer.from(one(list, "Secret", "coordinator").data["pg_service.conf"], "base64").toString();
  assert.equal(/^\[(.*)\]$/m.exec(text)[1], service);
}, {"another section": (list) => (one(list, "ConfigMap", "coordinator").data.TALLY_STORE = "postgres:service=mine")});

// --- Running them ---

for (const {name, check, mutants} of rules) {
  test(name, () => check(objects));
  for (const [what, change] of Object.entries(mutants)) {
    test(`${name}; refused: ${what}`, () => {
      const changed = structuredClone(objects);
      change(changed);
      assert.notDeepEqual(changed, objects, "the mutant is no mutant");
      // With a proper message: after a TypeError, the rule would not have checked everything.
      assert.throws(() => check(changed), (error) => error instanceof assert.AssertionError || error.constructor === Error);
    });
  }
}

// Every line below these fields, one at a time.
const SECURITY = new Set(["securityContext", "automountServiceAccountToken", "enableServiceLinks", "resources", "policyTypes",
  "pod-security.kubernetes.io/enforce", "defaultMode", "readOnly", "from", "to", "ports", "sizeLimit",
  "startupProbe", "livenessProbe", "readinessProbe", "terminationGracePeriodSeconds"]);
const TUNING = new Set(["periodSeconds", "timeoutSeconds", "failureThreshold", "protocol", "name", "targetPort"]);
function* leaves(value, where = [], counts = false) {
  if (value === null || typeof value !== "object") {
    if (counts && !TUNING.has(where.at(-1))) {
      yield where;
    }
    return;
  }
  for (const [key, each] of Object.entries(value)) {
    yield* leaves(each, [...where, key], counts || SECURITY.has(key));
  }
}
function without(list, where) {
  const changed = structuredClone(list);
  const owner = where.slice(0, -1).reduce((value, key) => value[key], changed);
  if (Array.isArray(owner)) {
    owner.splice(Number(where.at(-1)), 1);
  } else {
    delete owner[where.at(-1)];
  }
  return changed;
}
test("no line about security can go unnoticed", () => {
  rules.forEach(({check}) => check(objects)); // otherwise every change would be noticed
  let tried = 0;
  for (const where of leaves(objects)) {
    const changed = without(objects, where);
    const minded = rules.some(({check}) => {
      try {
        check(changed);
        return false;
      } catch {
        return true;
      }
    });
    const {kind, metadata} = objects[where[0]];
    assert.ok(minded, `${kind} ${metadata.name} may do without ${where.slice(1).join(".")}`);
    tried++;
  }
  assert.ok(tried > 70, `${tried} lines`);
});

test("every object is looked at, and none is kept with its secrets", async () => {
  const known = ["Namespace", "StatefulSet", "Deployment", "Service", "ConfigMap", "Secret", "PodDisruptionBudget",
    "HorizontalPodAutoscaler", "NetworkPolicy"];
  assert.deepEqual([...new Set(objects.map(({kind}) => kind))].sort(), known.sort());
  const files = run("git", ["-c", `safe.directory=${SOURCE}`, "-C", SOURCE, "ls-files", "-co", "--exclude-standard", "deploy/kubernetes"])
    .trim().split("\n").map((file) => path.basename(file));
  const kustomization = parseYaml(await readFile(path.join(SOURCE, "deploy/kubernetes/kustomization.yaml"), "utf8"));
  assert.deepEqual(files.sort(), [...kustomization.resources, "kustomization.yaml"].sort());
  for (const file of await readdir(path.join(folder, "deploy/kubernetes"), {withFileTypes: true})) {
    if (file.isFile()) {
      assert.doesNotMatch(await readFile(path.join(folder, "deploy/kubernetes", file.name), "utf8"), /^kind: Secret$|[0-9a-f]{32}/m);
    }
  }
});
