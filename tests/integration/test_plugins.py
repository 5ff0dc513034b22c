"""Plug-ins. A job whose gradients come from a shared object gives the same result. A plug-in that fails, in whatever
way, costs its worker the job, with a reason that names the plug-in, the client and the round; nothing else is affected.

The plug-ins are those of tests/plugins: `least_squares` repeats the built-in objective, and `moody` does what MOODY
tells it to do.
"""

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import time
import unittest
from pathlib import Path

from common import (
    BIN, HANG_S, IS_SANITIZED, TallyTestCase, essence, job_document, simulate, wait_until,
)
from test_stragglers import HOUR_MS, Hand, by_hand

PLUGINS = BIN.parent / "plugins"
MOODY = PLUGINS / "moody.so"
ISOLATED = ("--plugin-isolated",)

# What moody does wrong, and the resulting message. Only a child process survives the second kind.
WRONG = {
    "nan": "coordinate 6 is NaN",
    "huge": r"coordinate 0 is -1e\+300, beyond what float can hold",
    "partial": "coordinate 1 is NaN",
    "dim": "it wrote 6 coordinates, the job has dim 7",
    "nodim": "it wrote 0 coordinates, the job has dim 7",
    "fail": "the moon is full",
    "silent": "it returned 7 without a reason",
    "noise": r"a \?{100,}",
}
DEADLY = {
    "crash": r"killed by signal 11 \(Segmentation fault\)",
    "abort": r"killed by signal 6 \(Aborted\)",
    "exit": "its process exited with status 3",
    "close": "its process closed the connection",
    "garbage": "its process sent an invalid reply",
    "grandchild": r"killed by signal 9 \(Killed\)",
    "hang": "no answer after 5000 ms; its process was killed",
}


def moody_job(**changes):
    """Returns a job that minimises the mean of |x - m|^2 / 2 over 4 clients and 7 coordinates. Its minimum is 7 * 5 /
    8."""
    return job_document(
        "synthetic-fedpaq",
        **{"objective": {"type": "plugin", "name": "moody", "dim": 7}, "clients": 4, "quorum": None,
           "horizon": 300, "algorithm": {"type": "fedpaq", "step_size": 0.05, "local_steps": 5, "levels": 8},
           "initial_point": {"type": "zeros"}, "reference": {"type": "value", "value": 4.375},
           "round_deadline_ms": HOUR_MS, "policy": "wait", **changes})


def children(pid):
    """Returns the child processes, zombies included."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text().rpartition(")")
            if int(rest.split()[1]) == pid:
                found.append(int(name.split()[0]))
    return found


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pending_signals(pid):
    """Returns how many signals the process has yet to receive (proc(5)). A process that has ended counts as having
    received all of them."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return sum(int(bits, 16).bit_count() for bits in re.findall(r"^(?:Sig|Shd)Pnd:\s*([0-9a-f]+)$", status, re.MULTILINE))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Plugins(TallyTestCase):
    def start_moody(self, coordinator, name, clients, mood="", options=()):
        """Starts a worker whose plug-in does what it is told."""
        launcher = ["env", f"MOODY={mood}"] if mood else ()
        worker = self.start_worker(coordinator, name, clients=clients, launcher=launcher,
                                   options=("--plugin", MOODY, *options))
        wait_until(lambda: name in self.workers(coordinator), f"worker {name} to join")
        return worker

    def workers(self, coordinator):
        return {worker["name"]: worker for worker in coordinator.client.get_json("/v1/workers")["workers"]}

    def wait_completed(self, client, job_id):
        return client.wait_status(job_id, "completed")

    def wait_for_no_child(self, worker):
        """Waits until the process has no children, not even zombies."""
        wait_until(lambda: not children(worker.pid), f"the child of {worker.name} to be gone")

    # ---- the same job ----

    def test_our_objective_as_a_plug_in_is_the_same_job_bit_for_bit(self):
        built_in = simulate(job_document("synthetic-ceal"))
        document = job_document(
            "synthetic-ceal", objective={"type": "plugin", "name": "least-squares", "dim": 30,
                                         "options": "2000 100 1"},
            reference={"type": "value", "value": built_in["f_star"]})
        plugin = PLUGINS / "least_squares.so"
        self.assertEqual(essence(simulate(document, ("--plugin", plugin))), essence(built_in))
        coordinator = self.start_coordinator()
        client = coordinator.client
        self.start_worker(coordinator, "in-process", clients=5, options=("--plugin", MOODY, "--plugin", plugin))
        self.start_worker(coordinator, "isolated", clients=5, options=("--plugin", plugin, *ISOLATED))
        first = self.wait_completed(client, client.submit(document))
        self.assertEqual(essence(first), essence(built_in))
        self.assertEqual(first["objective"], document["objective"], "stored as it was given")
        second = self.wait_completed(client, client.submit(job_document("synthetic-ceal")))
        self.assertEqual(essence(second), essence(built_in), "they serve jobs without plug-ins as before")

    def test_walks_repeat_bit_for_bit_wherever_they_run(self):
        expected = essence(simulate(moody_job(), ("--plugin", MOODY)))
        coordinator = self.start_coordinator()
        client = coordinator.client
        for options in ((), ISOLATED):
            worker = self.start_moody(coordinator, "w", 4, options=options)
            for _ in range(2):
                self.assertEqual(essence(self.wait_completed(client, client.submit(moody_job()))), expected)
            self.assert_ends_well(worker)

    def test_what_takes_long_is_posted_before_the_next_client(self):
        """While the next client computes, the round's deadline may pass or the session may end. Here, that computation
        ends the worker."""
        coordinator = self.start_coordinator()
        worker = self.start_moody(coordinator, "w", 2, "gradient slow 0")
        coordinator.client.submit(moody_job(clients=2, reference=None))
        wait_until(lambda: not worker.is_alive(), "the plug-in to end the worker")
        with contextlib.closing(sqlite3.connect(f"file:{self.folder}/tally.db?mode=ro", uri=True)) as database:
            self.assertEqual(database.execute("SELECT round, client FROM updates WHERE round > 0").fetchall(), [(1, 0)])

    def test_a_plug_in_without_losses_serves_jobs_without_regret(self):
        """A document with a plug-in that has no losses works if it asks for no reference."""
        document = moody_job(reference=None)
        coordinator = self.start_coordinator()
        client = coordinator.client
        ends = []
        for mood, options in (("", ()), ("load loss 0", ()), ("load loss 0", ISOLATED)):
            name = f"w{len(ends)}"
            worker = self.start_moody(coordinator, name, 4, mood, options)
            detail = self.wait_completed(client, client.submit(document))
            self.assertEqual(detail["reference"], {"type": "none"})
            self.assertIsNone(detail["cumulative_regret"])
            ends.append({key: detail[key] for key in ("x_checksum", "round", "iterate")})
            self.assert_ends_well(worker)
        self.assertEqual(ends, [ends[0]] * 3)

    def test_metrics_are_those_of_the_simulation_and_change_nothing(self):
        os.environ["MOODY"] = "metrics good 0"
        try:
            simulated = simulate(moody_job(), (f"--plugin={MOODY}",))  # other words: results are cached
        finally:
            del os.environ["MOODY"]
        silent = simulate(moody_job(), ("--plugin", MOODY))
        self.assertNotIn("metrics", silent)
        self.assertEqual(set(simulated["metrics"]), {"client", "last"})
        self.assertEqual(simulated["metrics"]["client"], {"mean": 1.5, "min": 0.0, "max": 3.0})
        for key in ("x_checksum", "cumulative_regret", "loss", "round"):
            self.assertEqual(simulated[key], silent[key])
        coordinator = self.start_coordinator()
        client = coordinator.client
        for options in ((), ISOLATED):
            worker = self.start_moody(coordinator, "w", 4, "metrics good 0", options)
            detail = self.wait_completed(client, client.submit(moody_job()))
            self.assertEqual(essence(detail), essence(simulated))
            self.assertEqual(detail["metrics"], simulated["metrics"])
            records = client.rounds(detail["id"])
            self.assertEqual(records[0]["metrics"]["client"], {"mean": 1.5, "min": 0.0, "max": 3.0})
            last = {record["metrics"]["last"]["mean"] for record in records if "metrics" in record}
            self.assertGreater(len(last), 1, "the point moves")
            self.assert_ends_well(worker)

    # ---- what is wrong costs one worker its job ----

    def assert_others_take_over(self, coordinator, what, said, options=()):
        """The bad worker serves 2 of 4 clients, answers 2 rounds, and then refuses."""
        client = coordinator.client
        bad = self.start_moody(coordinator, f"{what}{len(options)}", 2, f"gradient {what} 3", options)
        job_id = client.submit(moody_job(name=what))
        detail = self.wait_completed(client, job_id)
        self.assertEqual(essence(detail), self.expected, what)
        line = [line for line in bad.log().splitlines() if "job refused" in line and job_id in line]
        self.assertEqual(len(line), 1, bad.log())
        self.assertRegex(line[0], rf"plug-in moody: gradient of client [0-3] in round 3: .*({said})")
        self.assertTrue(bad.is_alive(), "the worker goes on")
        self.wait_for_no_child(bad)
        fds = descriptors(bad.pid)
        again = client.submit(moody_job(name=what, seed=2))
        self.wait_completed(client, again)
        self.assertEqual(len([line for line in bad.log().splitlines() if "job refused" in line]), 2,
                         "it is asked for the next job anew")
        self.wait_for_no_child(bad)
        wait_until(lambda: descriptors(bad.pid) <= fds, "descriptors to be closed")
        self.assert_ends_well(bad)

    def test_a_plug_in_that_answers_wrongly_costs_its_worker_the_job(self):
        self.expected = essence(simulate(moody_job(), ("--plugin", MOODY)))
        coordinator = self.start_coordinator()
        self.start_moody(coordinator, "good", 4)
        for what, said in WRONG.items():
            for options in ((), ISOLATED):
                with self.subTest(what, options=options):
                    self.assert_others_take_over(coordinator, what, said, options)

    def test_a_plug_in_that_dies_or_hangs_in_a_child_costs_its_worker_the_job(self):
        self.expected = essence(simulate(moody_job(), ("--plugin", MOODY)))
        coordinator = self.start_coordinator()
        self.start_moody(coordinator, "good", 4)
        for what, said in DEADLY.items():
            with self.subTest(what):
                timeout = ("--plugin-timeout-ms", 5000) if what == "hang" else ()
                self.assert_others_take_over(coordinator, what, said, (*ISOLATED, *timeout))

    @unittest.skipIf(IS_SANITIZED, "sanitizers reserve more address space than any limit")
    def test_a_plug_in_that_eats_memory_is_stopped_at_its_limit(self):
        self.expected = essence(simulate(moody_job(), ("--plugin", MOODY)))
        coordinator = self.start_coordinator()
        self.start_moody(coordinator, "good", 4)
        self.assert_others_take_over(coordinator, "eat",
                                     r"killed by signal 11 \(Segmentation fault\); its memory is limited to 256 MiB",
                                     (*ISOLATED, "--plugin-memory-mib", 256))

    def test_a_plug_in_that_fails_in_open_or_loss_costs_its_worker_the_job(self):
        self.expected = essence(simulate(moody_job(), ("--plugin", MOODY)))
        coordinator = self.start_coordinator()
        client = coordinator.client
        self.start_moody(coordinator, "good", 4)
        for mood, said in (("open fail 0", "plug-in moody: the moon is full"),
                           ("loss nan 0", r"plug-in moody: loss of client \d: it is NaN"),
                           ("loss fail 0", r"plug-in moody: loss of client \d: the moon is full"),
                           ("load loss 0", r"plug-in moody has no function .*loss.*, so its jobs need a reference of type none"),
                           ("metrics fail 0", r"plug-in moody: metrics of client \d in round \d+: the moon is full"),
                           ("metrics name 0", r"plug-in moody: metrics of client \d in round 1: metric 1 has no name of"),
                           ("metrics twice 0", r"plug-in moody: metrics of client \d in round 1: metric client appears twice"),
                           ("metrics many 0", r"plug-in moody: metrics of client \d in round 1: 17 metrics, at most 16"),
                           ("metrics crash 0", r"plug-in moody: metrics of client \d in round 1: killed by signal 11"),
                           ("open crash 0", r"plug-in moody: killed by signal 11"),
                           ("open hang 0", "plug-in moody: no answer after 5000 ms"),
                           ("loss crash 0", r"plug-in moody: loss of client \d: killed by signal 11")):
            for options in ((), (*ISOLATED, "--plugin-timeout-ms", 5000)):
                if not options and mood.split()[1] in ("crash", "hang"):
                    continue
                with self.subTest(mood, options=options):
                    name = mood.replace(" ", "-") + str(len(options))
                    bad = self.start_moody(coordinator, name, 2, mood, options)
                    job_id = client.submit(moody_job(name=mood))
                    self.assertEqual(essence(self.wait_completed(client, job_id)), self.expected)
                    self.assertRegex(bad.log(), rf"job {job_id}: {said}" if mood.startswith("open") else said)
                    self.wait_for_no_child(bad)
                    self.assert_ends_well(bad)

    def test_a_metric_that_is_not_finite_is_dropped_with_one_warning(self):
        expected = simulate(moody_job(), ("--plugin", MOODY))
        coordinator = self.start_coordinator()
        for options in ((), ISOLATED):
            with self.subTest(options=options):
                bad = self.start_moody(coordinator, f"nan{len(options)}", 4, "metrics nan 0", options)
                job_id = coordinator.client.submit(moody_job())
                job = self.wait_completed(coordinator.client, job_id)
                for member in ("x_checksum", "cumulative_regret", "round"):
                    self.assertEqual(job[member], expected[member])
                for record in coordinator.client.rounds(job_id):
                    if not record["cut"]:
                        self.assertEqual(set(record["metrics"]), {"client"})
                self.assertEqual(bad.log().count("metric dropped: it is not finite"), 1)
                self.assertRegex(bad.log(), "level=warn.*metric=last round=1 client=")
                self.assertNotIn("refused", bad.log())
                self.assert_ends_well(bad)

    def test_a_child_that_crashes_when_it_closes_harms_nobody(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        for mood in ("close crash 0", "close hang 0"):
            worker = self.start_moody(coordinator, "w", 4, mood, ISOLATED)
            self.wait_completed(client, client.submit(moody_job()))
            self.wait_for_no_child(worker)
            self.assert_ends_well(worker)

    # ---- the remaining workers ----

    def test_with_policy_drop_rounds_close_without_it(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        self.start_moody(coordinator, "good", 3)
        self.start_moody(coordinator, "bad", 1, "gradient nan 3")
        job_id = client.submit(moody_job(policy="drop", quorum=2))
        self.wait_completed(client, job_id)
        records = client.rounds(job_id)
        self.assertEqual([record["received"] for record in records], [4, 4] + [3] * (len(records) - 2))
        (missing,) = {record["missing"] for record in records[2:]}
        self.assertRegex(missing, "^[0-3]$")

    def test_without_anybody_left_the_job_fails_and_tells_the_last_reason(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        for start, policy in ((1, "wait"), (5, "wait"), (5, "drop")):
            with self.subTest(start=start, policy=policy):
                bad = [self.start_moody(coordinator, f"bad{i}-{start}-{policy}", 4 - 2 * i,
                                        f"gradient nan {start - i}", ISOLATED) for i in range(2)]
                job_id = client.submit(moody_job(policy=policy))
                detail = client.wait_status(job_id, "failed")
                self.assertRegex(
                    detail["reason"],
                    r"^no worker can serve the job; bad[01]-.*: plug-in moody: gradient of client [0-3] in round "
                    r"\d: coordinate 6 is NaN$")
                self.assertEqual(detail["round"], max(start - 1, 0))
                self.assert_ends_well(*bad)

    def test_a_job_waits_for_a_worker_that_can_and_says_why(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        self.start_moody(coordinator, "good", 3)
        self.start_moody(coordinator, "bad", 1, "gradient fail 3")
        job_id = client.submit(moody_job())

        def look():
            text = (client.job(job_id)["waiting"] or {}).get("text", "")
            return text if "waits for client" in text and "cannot serve" in text else None

        self.assertRegex(wait_until(look, "the job to wait"),
                         r"worker bad cannot serve it: plug-in moody: gradient of client [0-3] in round 3: "
                         "the moon is full")
        refuses = self.workers(coordinator)["bad"]["refuses"]
        self.assertEqual([(r["job"], "the moon is full" in r["reason"]) for r in refuses], [(job_id, True)])
        self.start_moody(coordinator, "spare", 1)
        self.assertEqual(essence(self.wait_completed(client, job_id)),
                         essence(simulate(moody_job(), ("--plugin", MOODY))))

    def refuse(self, hand, task, tried, reason="it is broken"):
        hand.say(task, task.clients[0], refusal=reason, tried=tried)

    def test_who_has_tried_in_vain_ends_the_job_and_who_lacks_something_does_not(self):
        """After a round that all clients have answered, a job fails if no worker can serve it and at least one has
        tried in vain. It does not fail if the workers only lack something."""
        coordinator = self.start_coordinator()
        client = coordinator.client
        for tried in ((False, False), (True, False), (False, True), (True, True)):
            with self.subTest(tried=tried):
                job_id = client.submit(by_hand(clients=2, quorum=2))
                hands = [Hand(client, f"h{i}") for i in range(2)]
                for hand in hands:
                    hand.play()
                tasks = [hand.poll_task() for hand in hands]
                self.refuse(hands[0], tasks[0], tried[0], "first")
                self.assertEqual(client.job(job_id)["status"], "running")
                self.refuse(hands[1], tasks[1], tried[1], "second")
                detail = client.job(job_id)
                if any(tried):
                    self.assertEqual((detail["status"], detail["reason"]),
                                     ("failed", "no worker can serve the job; h1: second"))
                else:
                    self.assertEqual(detail["status"], "running")
                    client.post(f"/v1/jobs/{job_id}/cancel")
                for hand in hands:
                    hand.leave()

    def test_a_job_that_a_worker_may_come_back_to_does_not_fail(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        job_id = client.submit(by_hand(clients=2, quorum=2))
        stays, goes = Hand(client, "stays"), Hand(client, "goes")
        for hand in (stays, goes):
            hand.play()
        goes.leave()
        self.refuse(stays, stays.poll_task(), True)
        self.assertEqual(client.job(job_id)["status"], "running")
        back = Hand(client, "goes", slots=2)
        self.assertEqual(sorted(back.play().clients), [0, 1])
        self.assertEqual(client.job(job_id)["round"], 2)
        self.refuse(back, back.poll_task(), False, "it is gone")
        self.assertEqual(client.job(job_id)["reason"], "no worker can serve the job; goes: it is gone")

    def test_iterates_that_diverge_fail_the_job_at_once(self):
        """Steps of 1e30 overflow. The plug-in is not at fault, since the job would diverge at any worker."""
        coordinator = self.start_coordinator()
        client = coordinator.client
        self.start_moody(coordinator, "w", 4)
        algorithm = {"type": "fedavg", "step_size": 1e9, "local_steps": 50}
        detail = client.wait_status(client.submit(moody_job(algorithm=algorithm)), "failed")
        self.assertRegex(detail["reason"], "client [0-3] in round 1: .*step_size 1e.09 is too large|plug-in moody: .*")

    # ---- processes ----

    def wait_for_child(self, worker):
        """Waits for a child that is computing: moody's `hang` sleeps."""
        (child,) = wait_until(lambda: children(worker.pid), "a child")
        return child

    def start_hanging(self, coordinator):
        worker = self.start_moody(coordinator, "hangs", 4, "gradient hang 2", ISOLATED)
        job_id = coordinator.client.submit(moody_job())
        wait_until(lambda: coordinator.client.job(job_id)["round"] == 1, "round 2")
        return worker, self.wait_for_child(worker), job_id

    def test_a_worker_that_is_told_to_stop_ends_what_its_plug_in_computes(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        worker, child, job_id = self.start_hanging(coordinator)
        self.assert_ends_well(worker)
        self.assertFalse(is_running(child))
        self.assertNotIn("job refused", worker.log())
        self.assertEqual(client.job(job_id)["status"], "running", "whoever was interrupted has not failed")
        self.start_moody(coordinator, "good", 4)
        self.wait_completed(client, job_id)

    def test_a_worker_hears_of_its_childrens_end_whoever_started_it(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        self.start_worker(coordinator, "w", clients=4, options=("--plugin", MOODY, *ISOLATED),
                          launcher=("env", "--ignore-signal=CHLD", "MOODY=gradient exit 3"))
        detail = client.wait_status(client.submit(moody_job()), "failed")
        self.assertRegex(detail["reason"], "its process exited with status 3$")

    def test_children_end_with_a_worker_that_is_killed(self):
        coordinator = self.start_coordinator()
        worker, child, _ = self.start_hanging(coordinator)
        worker.kill()
        wait_until(lambda: not is_running(child), "the child to end")

    def test_children_leave_ctrl_c_and_sigterm_to_the_worker(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        worker, child, _ = self.start_hanging(coordinator)
        self.assertEqual(os.getpgid(child), child, "a terminal's Ctrl-C does not reach it")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(child, number)
        wait_until(lambda: pending_signals(child) == 0, "the child to have received the signals")
        self.assertTrue(is_running(child))
        self.assertEqual(len(client.get_json("/v1/workers")["workers"]), 1)
        self.assert_ends_well(worker)
        self.assertFalse(is_running(child))

    def test_children_have_no_secrets_and_no_descriptors_of_the_worker(self):
        token = "0123456789abcdef-a-token-that-nobody-guesses"
        token_file = Path(self.folder) / "token"
        token_file.write_text(token + "\n")
        token_file.chmod(0o600)
        coordinator = self.start_coordinator(options=("--worker-token-file", token_file))
        worker = self.start_worker(coordinator, "w", clients=4,
                                   launcher=("env", f"TALLY_TOKEN={token}", "MOODY=gradient hang 2", "bash", "-c",
                                             'exec 9</dev/zero 99</dev/zero; exec "$@"', "-"),
                                   options=("--plugin", MOODY, *ISOLATED))
        job_id = coordinator.client.submit(moody_job())
        wait_until(lambda: coordinator.client.job(job_id)["round"] == 1, "round 2")
        child = self.wait_for_child(worker)
        environment = Path(f"/proc/{child}/environ").read_bytes().decode()
        self.assertIn("MOODY=", environment)
        self.assertNotIn("TALLY_", environment)
        links = sorted(os.readlink(path) for path in Path(f"/proc/{child}/fd").iterdir())
        self.assertEqual([re.sub(r":\[\d+\]", "", link) for link in links],
                         sorted(["/dev/null", "socket", *[str(worker.output)] * 2]))
        self.assert_ends_well(worker)

    def test_many_jobs_leave_neither_processes_nor_descriptors(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        worker = self.start_moody(coordinator, "w", 4, options=ISOLATED)
        counts = []  # sockets open and close as well
        for seed in range(12):
            self.wait_completed(client, client.submit(moody_job(seed=seed, horizon=30)))
            self.wait_for_no_child(worker)
            counts.append(descriptors(worker.pid))
        self.assertLessEqual(min(counts[-3:]), max(counts[:3]), counts)

    # ---- at the start ----

    def start_in_vain(self, *options, mood="", environment=None):
        """Starts a worker that is expected to refuse to start; returns its message."""
        done = subprocess.run(
            [BIN / "tally-worker", *(str(option) for option in options)], capture_output=True, text=True,
            env={**os.environ, "MOODY": mood, **(environment or {})}, timeout=HANG_S, check=False)
        self.assertNotEqual(done.returncode, 0, done)
        return done.stderr

    def test_what_is_no_plug_in_is_refused_at_the_start(self):
        text = Path(self.folder) / "text.so"
        text.write_text("not a program\n")
        cut = Path(self.folder) / "cut.so"
        cut.write_bytes(MOODY.read_bytes()[:1000])
        for isolated in ((), ISOLATED):
            for path, said in ((text, "it is not a shared object"), (self.folder, "it is not a shared object"),
                               (Path(self.folder) / "none.so", "No such file"),
                               (PLUGINS / "silent.so", "exports no function tally_plugin()"),
                               (cut, "it is cut short")):
                with self.subTest(path, isolated=isolated):
                    self.assertIn(said, self.start_in_vain("--plugin", path, *isolated))
            for mood, said in (("load abi 0", "made for version 2 of the plug-in ABI, this is version 1"),
                               ("load size 0", "its table says that it has 8 bytes"),
                               ("load name 0", "its name is not 1 to 64 of a-z 0-9 - _"),
                               ("load null 0", "tally_plugin() returns NULL"),
                               ("load gradient 0", "plug-in moody has no function")):
                with self.subTest(mood, isolated=isolated):
                    self.assertIn(said, self.start_in_vain("--plugin", MOODY, *isolated, mood=mood))
            said = self.start_in_vain("--plugin", MOODY, "--plugin", MOODY, *isolated)
            self.assertIn("a plug-in named moody exists already", said)
        said = self.start_in_vain("--plugin", MOODY, *ISOLATED, mood="load crash 0")
        self.assertIn("moody.so: killed by signal 11", said)
        said = self.start_in_vain("--plugin", MOODY, *ISOLATED, "--plugin-timeout-ms", 5000, mood="load hang 0")
        self.assertIn("no answer after 5000 ms", said)

    def test_options_come_from_all_sources(self):
        self.assertIn("--plugin-timeout-ms: limits apply to isolated plug-ins only",
                      self.start_in_vain("--plugin", MOODY, "--plugin-timeout-ms", 5))
        self.assertIn("a plug-in named moody exists already",
                      self.start_in_vain(environment={"TALLY_PLUGIN": f"{MOODY}:{MOODY}"}))
        config = Path(self.folder) / "worker.conf"
        config.write_text(f"plugin = {MOODY}\nplugin-isolated = true\nplugin_timeout_ms = 0\n")
        self.assertIn("plugin-timeout-ms: 0 outside [1, 86400000]", self.start_in_vain("--config", config))

    def test_documents_say_what_is_wrong(self):
        client = self.start_coordinator().client
        for changes, field in (({"reference": {"type": "solve"}}, "reference.type"),
                               ({"objective__name": "No"}, "objective.name"),
                               ({"objective__name": None}, "objective.name"),
                               ({"objective__dim": 0}, "objective.dim"),
                               ({"objective__data": {"type": "idx"}}, "objective.data"),
                               ({"objective__options": 7}, "objective.options"),
                               ({"objective__options": "x" * 4097}, "objective.options")):
            document = json.loads(json.dumps(moody_job()))
            for path, value in changes.items():
                *parents, last = path.split("__")
                parent = document[parents[0]] if parents else document
                parent[last] = value
                if value is None:
                    del parent[last]
            with self.subTest(changes):
                self.assert_problem(client.post_job(document), 400, field)

    def test_a_job_waits_for_a_worker_that_has_its_plug_in(self):
        """The worker without the plug-in exits. What it lacked stays the first cause that the job reports."""
        coordinator = self.start_coordinator()
        client = coordinator.client
        job_id = client.submit(moody_job())
        plain = self.start_worker(coordinator, "plain", clients=4, options=("--exit-when-idle",))
        self.assertEqual(plain.wait(), 0, plain.log())
        detail = client.job(job_id)
        self.assertEqual(detail["status"], "running")
        self.assertRegex(detail["waiting"]["text"],
                         r"^worker plain could not serve it: job \w+: plug-in moody is not loaded here "
                         r"\(--plugin FILE\); there is none; waits for clients 0-3 ")
        self.start_moody(coordinator, "able", 4)
        self.assertEqual(essence(self.wait_completed(client, job_id)),
                         essence(simulate(moody_job(), ("--plugin", MOODY))))


if __name__ == "__main__":
    unittest.main()
