"""Several coordinators on one PostgreSQL behind nginx, each in a network namespace of its own. The workers and the test
run at the router between them, whose own packets are never lost.

A replica is named after its place.
"""

import http.client
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

for folder in ("faults", "integration"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))

from common import (  # noqa: E402
    REPO, SILENCE_S, Client, Lateness, Process, wait_until,
)
from namespaces import Network, skip  # noqa: E402
from service import FaultTestCase, RecordingProxy  # noqa: E402

from database import Connection, Postgres  # noqa: E402

PORT = 8080
WORKER_OPTIONS = ("--wait-ms", "1000")
DELAY_S = 0.01  # for one request of a worker
PASSING = (502, 503, 504)  # statuses for: this replica, or all of them, cannot answer now

LEADERS_SQL = """
    SELECT jobs.id, replicas.id, token, round
    FROM jobs JOIN job_leases USING (job_key) LEFT JOIN replicas ON number = leader
    WHERE status IN ('queued', 'running', 'paused')"""


# The product must keep replicas from writing to jobs that others lead. These triggers check this: a write from an
# address that is not the leader's at that moment is recorded, in the same transaction.
OVERSEER_SQL = """
    CREATE TABLE stray_writes (address text, what text, job_key bigint);
    CREATE FUNCTION oversee() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE key bigint;
    BEGIN
        key := CASE WHEN TG_OP = 'DELETE' THEN OLD.job_key ELSE NEW.job_key END;
        INSERT INTO stray_writes SELECT host(inet_client_addr()), TG_OP || ' ' || TG_TABLE_NAME, key
            FROM job_leases LEFT JOIN replicas ON number = leader
            WHERE job_key = key
            AND address IS DISTINCT FROM format('http://%s:{port}', host(inet_client_addr()));
        RETURN NULL;
    END $$;
    {triggers}"""
OVERSEEN = ("jobs", "job_states", "job_state_changes", "updates", "rounds")


class PatientClient(Client):
    """Repeats a request while the response is one of PASSING, as every client behind a proxy must. `refusals` counts
    the repetitions."""

    def __init__(self, port, host):
        super().__init__(port, host)
        self.refusals = 0

    def request(self, method, path, body=None, headers=None, timeout_s=SILENCE_S):
        until = time.monotonic() + SILENCE_S
        while True:
            try:
                answer = super().request(method, path, body, headers, timeout_s)
                if answer.status not in PASSING:
                    return answer
                why = answer
            except (OSError, http.client.HTTPException) as error:
                why = error
            if time.monotonic() > until:
                raise AssertionError(f"{method} {path}: {why!r} for {SILENCE_S} s")
            self.refusals += 1
            time.sleep(0.05)


class ReplicasTestCase(FaultTestCase):
    def setUp(self):
        super().setUp()
        if shutil.which("nginx") is None:
            skip("there is no nginx")
        # The addresses are not those of the loopback interface, so a proxy in the environment must be ignored.
        patch = mock.patch.dict(os.environ, {"no_proxy": "*"})
        patch.start()
        self.addCleanup(patch.stop)

    def build(self, *names, program="tally-coordinator", options=(), conninfo_more="",
              prepare_sql=""):
        """Starts PostgreSQL, a coordinator for each name, and nginx."""
        self.network = Network(("db", "lb", *names))
        self.addCleanup(self.network.close)
        self.postgres = Postgres(self.network.address("db"), self.network.enter("db"))
        self.addCleanup(self.postgres.close)
        self.addCleanup(self._end_processes)  # first, since they hold the namespaces and use the database
        self.look = Connection(self.postgres.conninfo)
        if prepare_sql:
            self.look.rows(prepare_sql)
        self.program, self.options = program, options
        self.store = f"postgres:{self.postgres.conninfo} {conninfo_more}".strip()
        self.replicas, self.workers = {}, []
        for name in names:
            self.launch(name)
        for replica in self.replicas.values():
            replica.wait_ready()
        self.start_nginx()
        self.look.rows(OVERSEER_SQL.format(port=PORT, triggers="".join(
            f"CREATE TRIGGER oversee AFTER INSERT OR UPDATE OR DELETE ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION oversee();" for table in OVERSEEN
        )))

    def launch(self, name):
        """Starts or restarts a coordinator; does not wait for it."""
        address = self.network.address(name)
        self.replicas[name] = self.start_coordinator(
            name=name, program=self.program, host=address, port=PORT, launcher=self.network.enter(name), wait=False,
            store=self.store, options=(
                "--insecure", "--replica-id", name, "--replica-address", f"http://{address}:{PORT}",
                *self.options,
            ),
        )

    def start_nginx(self):
        """Starts nginx with the shipped configuration, changed only in its addresses and folders."""
        address = self.network.address("lb")
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        text = (REPO / "deploy/compose/nginx-replicas.conf").read_text()
        servers = "".join(
            f"server {replica.client.host}:{PORT}{options};"
            for options in re.findall(r"server coordinators:8080(.*);", text)
            for replica in self.replicas.values()
        )
        for pattern, replacement in (
            (r"(server coordinators:8080.*;\s*)+", servers),
            (r"listen 8080;", f"listen {address}:{PORT};"),
            (r"/tmp/", f"{folder}/"),
            (r"error_log stderr;", f"error_log {folder}/error.log;"),
        ):
            text, n_replaced = re.subn(pattern, replacement, text)
            self.assertGreater(n_replaced, 0, f"nothing in nginx-replicas.conf is {pattern}")
        (folder / "nginx.conf").write_text(text)
        self.nginx = Process(self.folder, "nginx", [
            *self.network.enter("lb"), "nginx", "-e", "stderr", "-g", "daemon off;", "-c", folder / "nginx.conf",
        ])
        self.processes.append(self.nginx)
        self.client = PatientClient(PORT, address)
        wait_until(lambda: self.client.get("/readyz").status == 200, "nginx")
        self.url = f"http://{address}:{PORT}"

    # Queries to the database.

    def query(self, sql):
        """Runs a query over a new connection, since the database may have been restarted; returns all rows."""
        try:
            return self.look.rows(sql)
        except ConnectionError:
            self.look.close()
            self.look = Connection(self.postgres.conninfo)
            return self.look.rows(sql)

    def leaders(self):
        """Returns {job: (replica, token, rounds)} for all live jobs; the replica may be None."""
        return {
            job: (leader, int(token), int(rounds)) for job, leader, token, rounds in self.query(LEADERS_SQL)
        }

    def stray_writes(self):
        """Returns committed writes by replicas that did not lead the job."""
        return self.query("SELECT address, what, count(*) FROM stray_writes GROUP BY 1, 2 ORDER BY 1, 2")

    def led_by(self, name):
        return {job: what for job, what in self.leaders().items() if what[0] == name}

    def start_workers(self, clients, url=None):
        """Starts one worker process per number; the number is its clients."""
        self._worker_url = url or self.url
        self._worker_clients = clients
        self.workers = [self._launch_worker(i) for i in range(len(clients))]

    def _launch_worker(self, i):
        return self.start_worker(
            mock.Mock(url=self._worker_url), f"w{i}", clients=self._worker_clients[i], options=WORKER_OPTIONS
        )

    def start_proxy(self):
        """Starts a proxy between the workers and nginx. It records what was acknowledged, and delays requests so that
        the processors are not saturated."""
        proxy = RecordingProxy(self.client.port, host=self.client.host, delay_s=DELAY_S)
        self.addCleanup(proxy.close)
        return proxy

    # Strikes. Each has a beginning and an end.

    def pause(self, process):
        process.popen.send_signal(signal.SIGSTOP)
        self.addCleanup(self.resume, process)  # runs before SIGTERM is sent

    def resume(self, process):
        if process.is_alive():
            process.popen.send_signal(signal.SIGCONT)

    def check_lanes(self, lanes, proxy):
        """Checks that all jobs end as expected, no acknowledged update is lost, and all processes exit with 0."""
        jobs = lanes.stop()
        self.say(f"{len(jobs)} jobs, {sum(lane.client.refusals for lane in lanes.lanes)} requests asked again")
        for job_id, document in jobs:
            self.check_acknowledged(proxy, job_id, self.client.rounds(job_id), document["clients"])
        self.assertEqual(self.stray_writes(), [])
        self.assert_ends_well(*self.workers, *self.replicas.values())

    def revive(self):
        """Ends all strikes; does not wait for recovery."""
        self.network.heal()
        if not self.postgres.is_running():
            self.postgres.start()
        for name, replica in self.replicas.items():
            self.resume(replica)
            if not replica.is_alive():
                self.launch(name)
        for i, worker in enumerate(self.workers):
            self.resume(worker)
            if not worker.is_alive():
                self.workers[i] = self._launch_worker(i)

    def all_are_ready(self):
        return all(self.is_ready(replica) for replica in self.replicas.values())

    def lateness(self):
        """Returns a Lateness of the test and all replicas, starting now."""
        return Lateness(*(replica.pid for replica in self.replicas.values() if replica.is_alive()))

    def is_ready(self, replica):
        try:
            return replica.client.request("GET", "/readyz", timeout_s=5).status == 200
        except OSError:
            return False

    def strike(self, kind, name):
        {
            "kill": lambda: self.replicas[name].kill(),
            "kill and restart": lambda: (self.replicas[name].kill(), self.launch(name)),
            "pause": lambda: self.pause(self.replicas[name]),
            "cut off from everybody": lambda: self.network.cut_off(name),
            "cut off from the database": lambda: self.network.separate(name, "db"),
        }[kind]()
