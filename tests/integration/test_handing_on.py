"""Results handed on to other programs: TensorBoard's event files and MLflow's file store, read by readers of their
own, after the end of a job and while it runs."""

import csv
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import unittest
from pathlib import Path
from urllib.parse import unquote

import yaml

from common import BIN, HANG_S, Process, TallyTestCase, job_document, signal_once_caught, wait_until
from event_files import read_events, scalars
from test_round_trip import tally
from test_stragglers import HOUR_MS, Hand, by_hand
from test_training import CLIENTS, TRAINER, training_job

BITS = ("uplink", "formula"), ("uplink", "payload"), ("downlink", "formula"), ("downlink", "payload")


def expected_values(records):
    """Returns {name: {round: value}} of round records."""
    values, sums = {}, {}

    def put(name, round_, value):
        if value is not None:
            values.setdefault(name, {})[round_] = value

    for record in records:
        put_now = lambda name, value: put(name, record["round"], value)
        put_now("loss", record["loss"])
        put_now("cumulative_regret", record["regret"])
        put_now("time_step", record["t"])
        of = {f"{way}_{kind}": record["bits"][way][kind] for way, kind in BITS}
        of |= {kind: record["bits"][kind] for kind in ("control", "telemetry")}
        for name, bits in of.items():
            sums[name] = sums.get(name, 0) + bits
            put_now(f"bits/{name}", sums[name])
        for name, metric in record.get("metrics", {}).items():
            put_now(f"metrics/{name}", metric["mean"])
            put_now(f"metrics_min/{name}", metric["min"])
            put_now(f"metrics_max/{name}", metric["max"])
    return values


def as_float32(values):
    return {name: {step: struct.unpack("<f", struct.pack("<f", value))[0] for step, value in steps.items()}
            for name, steps in values.items()}


class HandingOnCase(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.coordinator = self.start_coordinator(options=("--session-timeout-ms", str(HOUR_MS)))
        self.client = self.coordinator.client
        self.at = ("--coordinator", self.coordinator.url)
        self.out = Path(self.folder, "out")

    def export(self, job_id, to, exit_code=0, **options):
        done = subprocess.run([BIN / "tally", "export", job_id, "--to", to, self.out, *self.at], text=True,
                              capture_output=True, timeout=HANG_S, check=False, **options)
        self.assertEqual(done.returncode, exit_code, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def run_training(self, **changes):
        """Runs a job with metrics of evaluations, with more rounds than a page of records has."""
        job_id = self.client.submit({**training_job(horizon=1100), **changes})
        worker = self.start_worker(self.coordinator, f"w-{job_id}", clients=CLIENTS,
                                   options=["--plugin", TRAINER, "--job", job_id, "--exit-when-idle"])
        self.client.wait_status(job_id, "completed")
        worker.wait()
        return job_id

    def event_file(self):
        path, = self.out.glob("*/*tfevents*")
        return path

    def check_events(self, job_id, rounds=None):
        """Checks the file of the only job against the coordinator's records, of all rounds or the first ones."""
        events = read_events(self.event_file())
        records = self.client.rounds(job_id)[:rounds]
        self.assertEqual(events[0].file_version, "brain.Event:2")
        self.assertEqual([event.step for event in events[1:]], [0, *(record["round"] for record in records)])
        self.assertEqual([event.wall_time for event in events[2:]], [record["closed_ms"] / 1000 for record in records])
        self.assertEqual(scalars(events), as_float32(expected_values(records)))
        return events


class TensorBoard(HandingOnCase):
    def test_an_event_file_has_all_rounds(self):
        job_id = self.run_training(name="a/b c")
        detail = self.client.job(job_id)
        said = self.export(job_id[:6], "tensorboard")
        self.assertEqual(said, f"wrote {self.event_file()}, up to round 1100\n")
        self.assertEqual(self.event_file().parent.name, f"a_b_c-{job_id}")
        self.assertRegex(self.event_file().name, rf"^events\.out\.tfevents\.{round(detail['created_ms'] / 1000)}\.")
        events = self.check_events(job_id)
        self.assertIn("metrics/" + next(iter(detail["metrics"])), scalars(events))
        self.assertEqual([event.wall_time for event in events[:2]], [detail["created_ms"] / 1000] * 2)
        text, = events[1].summary.value
        self.assertEqual((text.tag, text.metadata.plugin_data.plugin_name, text.metadata.data_class, text.tensor.dtype),
                         ("document", "text", 2, 7))
        lines = text.tensor.string_val[0].decode().split("\n")
        self.assertEqual({line[:4] for line in lines}, {"    "})  # a block of Markdown
        self.assertEqual(json.loads("\n".join(lines)), self.client.get_json(f"/v1/jobs/{job_id}/document"))
        # Said again, it adds nothing.
        before = self.event_file().read_bytes()
        self.export(job_id, "tensorboard")
        self.assertEqual(self.event_file().read_bytes(), before)

    def test_what_a_killed_program_left_is_continued(self):
        job_id = self.run_training()
        self.export(job_id, "tensorboard")
        path = self.event_file()
        whole = path.read_bytes()
        for size in (len(whole) - 1, len(whole) - 13, len(whole) // 2, 100, 11, 0):
            path.write_bytes(whole[:size])
            self.export(job_id, "tensorboard")
            self.assertEqual(path.read_bytes(), whole)
        for at in (0, 8, 12, 40, len(whole) // 2):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1:])
            damaged = path.read_bytes()
            self.assertIn("damaged, or no event file, at byte ", self.export(job_id, "tensorboard", 1))
            self.assertEqual(path.read_bytes(), damaged)

    def test_a_full_disk_leaves_whole_rounds(self):
        job_id = self.run_training()

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        self.assertIn("File too large", self.export(job_id, "tensorboard", 1, preexec_fn=limit))
        read_events(self.event_file())
        self.export(job_id, "tensorboard")
        self.check_events(job_id)

    def test_folders_that_cannot_be_written(self):
        job_id = self.client.submit(job_document())
        self.out.write_text("")
        for to in ("tensorboard", "mlflow", "csv", "json"):
            self.assertIn(f"{self.out}: ", self.export(job_id, to, 1))
        self.out.unlink()
        self.export(job_id, "tensorboard")
        path = self.event_file()
        path.unlink()
        os.mkfifo(path)
        self.assertIn("not a regular file", self.export(job_id, "tensorboard", 1))


class Watch(HandingOnCase):
    def watch(self, job_id, *options):
        process = Process(self.folder, f"watch-{len(self.processes)}", [
            BIN / "tally", "watch", job_id, "--interval-ms", "10", "--tensorboard", self.out, *self.at, *options])
        self.processes.append(process)
        return process

    def wait_for_round(self, round_):
        def look():
            try:
                return read_events(self.event_file())[-1].step == round_
            except (ValueError, struct.error, IndexError):
                return False  # it is being written
        wait_until(look, f"round {round_}")

    def play(self, hand, value):
        task = hand.poll_task()
        hand.cursors[task.job_id] = task.iterate
        for client in task.clients:
            update = hand.vector(task, client)
            update.updates[0].metrics.add(name="accuracy", value=value + client)
            hand.post(update)

    def test_rounds_are_written_as_they_close(self):
        job_id = self.client.submit(by_hand())
        hand = Hand(self.client, "hand", slots=3)
        first = self.watch("latest")
        for round_ in range(1, 6):
            self.play(hand, round_ / 10)
            if round_ > 1:
                self.wait_for_round(round_ - 1)  # its metrics are all known only now
                self.check_events(job_id, round_ - 1)
        # A second program must not write to the file.
        second = self.watch(job_id)
        self.assertEqual(second.wait(), 1)
        self.assertIn("another program is writing to it", second.log())
        self.assertIn("another program is writing to it", self.export(job_id, "tensorboard", 1))
        # It is continued after any end, and by an export.
        first.kill()
        for round_ in (6, 7):
            self.play(hand, round_ / 10)
        self.export(job_id, "tensorboard")
        self.check_events(job_id, 6)
        third = self.watch(job_id)
        self.play(hand, 0.8)
        self.wait_for_round(7)
        # The coordinator restarts.
        self.coordinator.kill()
        wait_until(lambda: "not reachable" in third.log(), "the watch to notice")
        self.coordinator = self.start_coordinator(port=self.coordinator.port,
                                                  options=("--session-timeout-ms", str(HOUR_MS)))
        hand = Hand(self.client, "hand", slots=3)
        self.play(hand, 0.9)
        self.wait_for_round(8)
        self.client.post(f"/v1/jobs/{job_id}/cancel")
        self.assertEqual(third.wait(), 1)
        self.check_events(job_id, 9)
        self.assertEqual(len(self.client.rounds(job_id)), 9)
        self.assertEqual(scalars(read_events(self.event_file()))["metrics_max/accuracy"][5], 2.5)

    def test_an_interrupt_leaves_a_whole_file(self):
        job_id = self.client.submit(by_hand())
        hand = Hand(self.client, "hand", slots=3)
        watch = self.watch(job_id)
        for _ in range(3):
            self.play(hand, 0)
        self.wait_for_round(2)
        signal_once_caught(watch.popen, signal.SIGINT)
        self.assertEqual(watch.popen.wait(HANG_S), 128 + signal.SIGINT)
        self.check_events(job_id, 2)


class MLflow(HandingOnCase):
    def check_folders(self):
        """MLflow's lists fail if a folder of the store is no experiment, or a run has another name than its id."""
        for path in self.out.iterdir():
            self.assertRegex(path.name, r"^[a-zA-Z0-9][\w\-]{0,63}$")
            self.assertTrue(Path(path, "meta.yaml").exists())
            for meta in path.glob("*/meta.yaml"):
                self.assertEqual(yaml.safe_load(meta.read_text())["run_id"], meta.parent.name)

    def read_run(self):
        """Reads the only run as MLflow's FileStore does."""
        self.check_folders()
        of_experiment, = self.out.glob("*/meta.yaml")
        of_run, = self.out.glob("*/*/meta.yaml")
        folder = of_run.parent
        experiment, run = (yaml.safe_load(path.read_text()) for path in (of_experiment, of_run))
        self.assertEqual(experiment["experiment_id"], folder.parent.name)
        self.assertEqual((run["run_id"], run["run_uuid"], run["experiment_id"]),
                         (folder.name, folder.name, folder.parent.name))
        self.assertEqual(run["artifact_uri"], f"file://{folder.resolve()}/artifacts")
        files = lambda kind: {str(path.relative_to(folder / kind)): path for path in (folder / kind).rglob("*")
                              if path.is_file()}
        for path in folder.rglob("*"):
            self.assertTrue(path.is_file() or any(path.iterdir()) or path.name in ("metrics", "tags"), path)
        metrics = {name: [line.split(" ") for line in path.read_text().splitlines()]
                   for name, path in files("metrics").items()}
        for name in (*metrics, *files("params"), *files("tags")):
            self.assertRegex(name, r"^[/\w.\- ]*$")  # the rule of MLflow since its beginnings
            self.assertLess(len(name), 250)
        texts = lambda kind: {name: path.read_text() for name, path in files(kind).items()}
        return experiment, run, metrics, texts("params"), texts("tags"), files("artifacts")

    def test_a_run_has_all_of_a_job(self):
        job_id = self.run_training(name='"Zoë" \\ 🙂: #1', labels={"team/a": "x: y", "b": ""}, keep={"every": 500})
        said = self.export(job_id, "mlflow")
        experiment, run, metrics, params, tags, artifacts = self.read_run()
        detail, records = self.client.job(job_id), self.client.rounds(job_id)
        self.assertRegex(said, f"^wrote {self.out}/[0-9]+/{job_id}\n$")
        self.assertEqual((experiment["name"], experiment["lifecycle_stage"]), ("tally", "active"))
        self.assertEqual(unquote(experiment["artifact_location"]), f"file://{self.out}/{experiment['experiment_id']}")
        self.assertEqual((run["run_name"], run["status"], run["lifecycle_stage"], run["tags"]),
                         ('"Zoë" \\ 🙂: #1', 3, "active", []))
        self.assertEqual((run["start_time"], run["end_time"]), (detail["started_ms"], detail["finished_ms"]))
        closed = {record["round"]: record["closed_ms"] for record in records}
        found = {}
        for name, lines in metrics.items():
            for time_ms, value, step in lines:
                self.assertEqual(int(time_ms), closed[int(step)])
                found.setdefault(name, {})[int(step)] = float(value)
            self.assertEqual([int(line[2]) for line in lines], sorted(found[name]))
        self.assertEqual(found, expected_values(records))
        document = self.client.get_json(f"/v1/jobs/{job_id}/document")
        self.assertEqual((params["algorithm.type"], params["horizon"], params["objective.name"], params["keep.every"]),
                         ("fedavg", "1100", "trainer", "500"))
        self.assertNotIn("labels", " ".join(params))
        self.assertEqual((tags["label.team a"], tags["label.b"], tags["mlflow.runName"], tags["tally.status"]),
                         ("x: y", "", '"Zoë" \\ 🙂: #1', "completed"))
        self.assertEqual(tags["tally.x_checksum"], detail["x_checksum"])
        self.assertEqual(tags["tally.version"], tally("version").stdout.split()[1])
        self.assertEqual(json.loads(artifacts["document.json"].read_text()), document)
        self.assertEqual(json.loads(artifacts["job.json"].read_text()), detail)
        self.assertEqual(set(artifacts), {"document.json", "job.json", "model.npy", "model-500.npy", "model-1000.npy"})
        answer = self.client.get(f"/v1/jobs/{job_id}/model", Accept="application/x-npy")
        self.assertEqual(artifacts["model.npy"].read_bytes(), answer.body)

    def test_runs_share_an_experiment_and_are_never_changed(self):
        self.out.mkdir()
        # As MLflow writes it.
        Path(self.out, "371").mkdir()
        Path(self.out, "371", "meta.yaml").write_text(yaml.safe_dump({"experiment_id": "371", "name": "tally"}))
        Path(self.out, "0").mkdir()
        Path(self.out, "0", "meta.yaml").write_text(yaml.safe_dump({"experiment_id": "0", "name": "Default"}))
        ids = [self.client.submit(job_document(name=None)) for _ in range(2)]
        self.client.post(f"/v1/jobs/{ids[1]}/cancel")
        for job_id in ids:
            self.export(job_id, "mlflow")
        metas = {path.parent.name: yaml.safe_load(path.read_text()) for path in Path(self.out, "371").glob("*/meta.yaml")}
        self.assertEqual(set(metas), set(ids))
        self.assertEqual([metas[job_id]["status"] for job_id in ids], [2, 5])
        self.assertIsNone(metas[ids[0]]["end_time"])
        before = sorted(self.out.rglob("*"))
        said = self.export(ids[0], "mlflow", 1)
        self.assertIn(f"371/{ids[0]} exists, and is left as it is: remove it", said)
        self.assertEqual(sorted(self.out.rglob("*")), before)

    def test_a_killed_export_leaves_nothing_that_mlflow_sees(self):
        job_id = self.run_training()
        with socket.create_server(("127.0.0.1", 0)) as listener:  # answers until the rounds, and then no more
            export = subprocess.Popen([BIN / "tally", "export", job_id, "--to", "mlflow", self.out, "--coordinator",
                                       f"http://127.0.0.1:{listener.getsockname()[1]}"], stderr=subprocess.DEVNULL)
            connection, _ = listener.accept()
            for member in ({"id": job_id, "status": "completed", "created_ms": 5, "name": "x"}, {"clients": 3}):
                connection.recv(65536)
                body = json.dumps(member).encode()
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                                   % (len(body), body))
            connection.recv(65536)
            export.kill()
            export.wait()
            connection.close()
        self.assertEqual([path.name[:7] for path in self.out.glob("82559/*") if path.is_dir()], [".tally-"])
        self.check_folders()
        self.export(job_id, "mlflow")
        self.read_run()

    def test_a_full_disk_leaves_no_run(self):
        job_id = self.run_training()

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

        self.assertIn("File too large", self.export(job_id, "mlflow", 1, preexec_fn=limit))
        self.check_folders()
        self.assertEqual([str(path.relative_to(self.out)) for path in self.out.rglob("*") if path.is_file()],
                         ["82559/meta.yaml"])
        self.export(job_id, "mlflow")
        self.read_run()


class Files(HandingOnCase):
    def test_csv_and_json(self):
        job_id = self.run_training()
        for to in ("csv", "json"):
            path = Path(self.out, f"{job_id}.{to}")
            said = self.export(job_id, to)
            self.assertEqual(said, f"wrote {path}, {path.stat().st_size} bytes\n")
        self.assertEqual(Path(self.out, f"{job_id}.csv").read_bytes(),
                         self.client.get(f"/v1/jobs/{job_id}/rounds.csv").body)
        with open(Path(self.out, f"{job_id}.csv"), encoding="utf-8") as file:
            self.assertEqual(len(list(csv.DictReader(file))), 1100)
        exported = json.loads(Path(self.out, f"{job_id}.json").read_text())
        self.assertEqual(exported["rounds"], self.client.rounds(job_id))
        self.assertEqual(exported["job"], self.client.job(job_id))

    def test_usage(self):
        for words, text in (
                (["a", "--to", "tensorboard"], "--to tensorboard needs a folder: tally export ID --to tensorboard DIR"),
                (["a", "", "--to", "csv"], "--to csv needs a folder"),
                (["a", "out", "--to", "xml"], '--to: "xml" is not one of csv, json, mlflow, tensorboard'),
                (["a", "out"], "out: only --to writes to a folder; --out FILE names a file"),
                (["a", "out", "--to", "csv", "--bundle", "f"], "--bundle and --to: choose one"),
                (["a", "out", "--to", "csv", "--out", "f"], "--to and --out: choose one"),
                (["a", "out", "--to", "json", "--model", "best"], "--to and --model: choose one")):
            done = tally("export", *words, *self.at)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
