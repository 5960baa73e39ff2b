"""A round between organisations beside a bare loop on the same transport, in the same run.

    python benchmarks/bench_federation.py [--parties 10] [--size 7840] [--work] [--sum]

A server and the sites of all parties as processes on this machine, with TLS. In every round the
same bytes travel twice: once through NVFLARE alone to a handler that sends them back (bare), and
once in the study: signed, checked, decoded, answered, added up, and the state of the run written to
the disk (round). Medians, and the ratio of the two.

Without --work a party answers a round by a vector of zeros, so that the difference is what this
package adds to the engine. With --work it takes a step on one record and pays in its ledger, which
has nothing to do with the transport, but takes time on a machine that all parties share.

With --sum it is a secure sum: zeros get masks, and the server adds them up and takes the step. The
same round is asked without a sum too.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from tacit.protocol.masks import new_identity
from tacit.protocol.messages import Broadcast, Masked, Reply, answer_from, request_from
from tacit.protocol.summed import Summand
from tacit.transports.nvflare import controller, provisioning
from tacit.transports.nvflare.controller import EngineLine, StudyController
from tacit.transports.nvflare.kit import BYTES, PARTY_FILE, Kit
from tacit.transports.nvflare.site import PartyExecutor

BARE, PLAIN, TIMES, WORK = "bare", "plain", "times.jsonl", "TACIT_BENCH_WORK"


class BenchExecutor(PartyExecutor):
    """Ours, and a handler that sends back what it gets."""

    def handle_event(self, event_type, fl_ctx):
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.START_RUN:
            fl_ctx.get_engine().register_aux_message_handler(BARE, self._echo)
            if WORK not in os.environ:
                party = self._party.result()
                real = party.handle
                party.handle = lambda request: zeros(request, party) or real(request)

    def _echo(self, topic, request, fl_ctx):
        reply = make_reply(ReturnCode.OK)
        reply[BYTES] = request[BYTES]
        return reply


def zeros(request, party):
    """The reply to a round without any work, but for masks."""
    if not isinstance(request, Broadcast):
        return None
    if request.run != PLAIN and isinstance(rounds := party.run.rounds, Summand):
        rounds.average = np.zeros(len(request.consensus), np.int64)
        return rounds._said(request.round, request.consensus)
    return Reply(request.run, request.round, np.zeros(len(request.consensus)))


class BenchLine(EngineLine):
    """Ours, with a bare exchange of the same bytes beside each, and both times in a file."""

    def __init__(self, *about):
        super().__init__(*about)
        self.threads, self.ended = ThreadPoolExecutor(len(self._kit.agents)), None
        self.turn = 0

    def ask(self, requests, deadline, heard):
        began = time.perf_counter()
        own = began - self.ended if self.ended is not None else 0.0
        self.turn += 1
        bare = self._timed_bare(requests) if self.turn % 2 else 0.0
        began = time.perf_counter()
        answers = super().ask(requests, deadline, heard)
        asked = time.perf_counter() - began
        plain = self._plain(requests, deadline) if answers and self._summed(answers) else 0.0
        bare = bare or self._timed_bare(requests)  # by turns before and after
        size = len(next(iter(requests.values())))
        times = {"bytes": size, "bare": bare, "asked": asked, "own": own, "plain": plain}
        with open(self._kit.folder / TIMES, "a") as file:
            file.write(json.dumps(times) + "\n")
        self.ended = time.perf_counter()
        return answers

    def _summed(self, answers):
        return all(isinstance(answer_from(data), Masked) for data in answers.values())

    def _plain(self, requests, deadline):
        """Seconds of the same round without a sum: numbers of the same size come back."""
        asked = {n: replace(request_from(data), run=PLAIN) for n, data in requests.items()}
        asked = {name: request.to_bytes() for name, request in asked.items()}
        began = time.perf_counter()
        super().ask(asked, deadline, lambda name: None)
        return time.perf_counter() - began

    def _timed_bare(self, requests):
        began = time.perf_counter()
        list(self.threads.map(lambda name: self._bare(name, requests[name]), requests))
        return time.perf_counter() - began

    def _bare(self, name, request):
        message = Shareable()
        message[BYTES] = request
        site = self._kit.site_of(name)
        with self._engine.new_context() as context:
            return self._engine.send_aux_request([site], BARE, message, 60.0, context)


class BenchController(StudyController):
    def control_flow(self, abort_signal, fl_ctx):
        with mock.patch.object(controller, "EngineLine", BenchLine):
            super().control_flow(abort_signal, fl_ctx)


def write_study(folder, parties, size, rounds, summed):
    """A study of logistic regression, one record for each party."""
    names = [f"p{i}" for i in range(parties)]
    keys = {n: new_identity(folder / f"{n}.pem").public_key() for n in names if summed}
    keys = [f'{name} = "{key.public_bytes_raw().hex()}"' for name, key in keys.items()]
    sums = 'aggregation = "sum"\n' if summed else ""
    columns = json.dumps([f"x{i}" for i in range(size)])
    agents = "\n".join(f'[[agents]]\nname = "{name}"' for name in names)
    (folder / "study.toml").write_text(
        f'name = "bench"\ncolumns = {columns}\n{sums}[objective]\nkind = "logistic"\n'
        "feature_norm = 1.0\n"
        f'normaliser = {parties}\n[set]\nkind = "ball"\ncenter = 0.0\nradius = 1.0\n'
        "[privacy]\ntotal_epsilon = 5.0\ntotal_delta = 1e-5\n"
        f"[algorithm]\nrounds = {rounds}\n{agents}\n" + "\n".join(["[identities]"] * summed + keys)
    )
    from tacit.privacy.ledger import Ledger

    rng = np.random.default_rng(0)
    for name in names:
        row = rng.normal(size=(1, size)) / np.sqrt(2 * size)
        np.savez(folder / f"{name}.npz", features=row, labels=np.array([1]))
        Ledger.create(folder / f"{name}.db", 9.0, 1e-4)
        (folder / f"{name}.toml").write_text(
            f'agent = "{name}"\ndata = "{name}.npz"\nledger = "{name}.db"\n'
            + f'identity = "{name}.pem"\n' * summed
            + "[limits]\ntotal_epsilon = 5.0\ntotal_delta = 1e-5\n"
        )
    return names


def measure(parties=10, size=7840, rounds=60, work=False, summed=False):
    """Rows of the file of times, of rounds only."""
    from tacit.transports.nvflare.server import EngineServer, run

    class Watch:
        def tell(self, words):
            print(words, file=sys.stderr)

        def show(self, status):
            pass

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    os.environ["PYTHONPATH"] = environment["PYTHONPATH"]  # for the server
    if work:
        environment[WORK] = "1"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        write_study(folder, parties, size, rounds, summed)
        made = provisioning.init(folder / "study.toml", f"localhost:{port}", folder / "kits")
        ours, *others = (Kit.load(path) for path in made)
        original = provisioning.server_resources

        def allow(resources):
            """The classes of this file, in place of ours."""
            return resources | {"class_allow_list": ["bench_federation."]}

        sites, own = [], provisioning.client_resources()
        for kit in others:
            with mock.patch.object(provisioning, "client_resources", lambda: allow(own)):
                provisioning.write_site(kit)
            start = "import sys, bench_federation; bench_federation.site(sys.argv[1])"
            command = [sys.executable, "-c", start, str(kit.folder)]
            about = {**environment, PARTY_FILE: str(folder / f"{kit.agent}.toml")}
            sites.append(subprocess.Popen(command, env=about, stdout=subprocess.DEVNULL))
        server = EngineServer(ours)
        try:
            with (
                mock.patch.object(provisioning, "server_resources", lambda w: allow(original(w))),
                mock.patch.object(provisioning, "CONFIGS", configs()),
            ):
                run(ours, 1200.0, Watch(), server)
            rows = [json.loads(line) for line in (ours.folder / TIMES).read_text().splitlines()]
        finally:
            server.stop()
            for site in sites:
                site.kill()
                site.wait()
    return [row for row in rows if row["bytes"] > 8 * size and row["own"]][5:-1]


def configs():
    """The job, with the classes of this file."""
    text = json.dumps(provisioning.CONFIGS)
    text = text.replace("tacit.transports.nvflare.controller.Study", "bench_federation.Bench")
    return json.loads(text.replace("tacit.transports.nvflare.site.Party", "bench_federation.Bench"))


def site(folder):
    """A party's process, which takes that job."""
    from tacit.transports.nvflare.site import main

    provisioning.CONFIGS = configs()
    main(folder)


def medians(rows):
    """Seconds: bare, asked, and a whole round."""
    bare = float(np.median([row["bare"] for row in rows]))
    asked = float(np.median([row["asked"] for row in rows]))
    whole = float(np.median([row["asked"] + row["own"] for row in rows]))
    return bare, asked, whole


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parties", type=int, default=10)
    parser.add_argument("--size", type=int, default=7840)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--work", action="store_true", help="steps and ledgers too")
    parser.add_argument("--sum", action="store_true", dest="summed", help="a secure sum")
    options = parser.parse_args()
    rows = measure(**vars(options))
    bare, asked, whole = medians(rows)
    print(f"{options.parties} parties, {options.size} numbers, {len(rows)} rounds, medians:")
    print(f"bare loop     {bare:.4f} s")
    print(f"asked         {asked:.4f} s   {asked / bare:.2f}")
    print(f"whole round   {whole:.4f} s   {whole / bare:.2f}")
    if options.summed:
        plain = float(np.median([row["plain"] for row in rows]))
        pairs = float(np.median([row["asked"] / row["plain"] for row in rows]))
        print(f"without sum   {plain:.4f} s   of asked; {pairs:.2f} times that (median of rounds)")


if __name__ == "__main__":
    main()
