"""How long jobs take on bad links, each with a worker of one client at the far end.

    TALLY_BIN=build/release/bin python3 tests/bench/bench_links.py [--limit-s 1200] [LINK]...

Prints, for each link (LINKS below), algorithm and dimension, the seconds until the job has ended with the bits of
`tally simulate`; or what it is waiting for after the limit. The links are measured side by side, because a job on a bad
link mostly waits. Needs root, for network namespaces."""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for folder in ("faults", "integration"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))

from link import NEAR, Link  # noqa: E402
from test_bad_links import BASES, document  # noqa: E402

from common import Coordinator, Worker, essence, simulate  # noqa: E402

LINKS = {
    "64 kbit/s, 600 ms, 5 % lost": {"up_bytes_per_s": 8000, "down_bytes_per_s": 8000, "delay_ms": 300, "loss": 0.05},
    "64 kbit/s": {"up_bytes_per_s": 8000, "down_bytes_per_s": 8000},
    "20 KB/s": {"up_bytes_per_s": 20000, "down_bytes_per_s": 20000},
    "20 KB/s, broken 5 s of 25": {"up_bytes_per_s": 20000, "down_bytes_per_s": 20000, "good_s": 20, "broken_s": 5},
    "2 Mbit/s": {"up_bytes_per_s": 250000, "down_bytes_per_s": 250000},
}
DIMS = (30, 7840, 250000)


def measure(name, limit_s):
    link = Link(**LINKS[name])
    with tempfile.TemporaryDirectory() as folder:
        coordinator = Coordinator(folder, store="memory:", host=NEAR, options=("--insecure",))
        worker = Worker(folder, coordinator.url, "w", launcher=link.enter())
        for dim in DIMS:
            for algorithm in BASES:
                each = document(algorithm, dim, clients=1)
                began = time.monotonic()
                job_id = coordinator.client.submit(each)
                detail = coordinator.client.job(job_id)
                while detail["status"] in ("queued", "running") and time.monotonic() - began < limit_s:
                    time.sleep(0.1)
                    detail = coordinator.client.job(job_id)
                took = time.monotonic() - began
                if detail["status"] != "completed":
                    coordinator.client.post(f"/v1/jobs/{job_id}/cancel")
                    result = f"after {took:.0f} s: {(detail['waiting'] or {}).get('text')}"
                else:
                    same = essence(detail) == essence(simulate(each))
                    up, down = (detail["bits"][way]["payload"] // 8 for way in ("uplink", "downlink"))
                    result = (f"{took:.0f} s, {detail['round']} rounds, {up} bytes up, {down} down, recovery "
                              f"{detail['bits']['recovery']}{'' if same else ', NOT AS SIMULATED'}")
                print(f"{name} | {algorithm} | {dim} | {result}", flush=True)
        lost = coordinator.log().count("session timed out")
        print(f"{name} | sessions lost: {lost}, retries: {worker.log().count('retrying')}", flush=True)
        worker.kill()
        coordinator.terminate()
    link.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-s", type=float, default=1200)
    parser.add_argument("--alone", action="store_true", help="measure in this process, which changes its namespace")
    parser.add_argument("links", nargs="*", metavar="LINK")
    options = parser.parse_args()
    names = options.links or list(LINKS)
    if options.alone:
        for name in names:
            measure(name, options.limit_s)
        return
    running = [subprocess.Popen([sys.executable, __file__, "--alone", "--limit-s", str(options.limit_s), name])
               for name in names]
    sys.exit(max(process.wait() for process in running))


if __name__ == "__main__":
    main()
