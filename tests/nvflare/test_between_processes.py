"""A rehearsal on loopback: a server and its sites as processes with TLS, attacked and killed.

One test, since the engine is slow to start: every step uses the processes of those before.
"""

import json
import signal
import time

import numpy as np
import psutil
import pytest
from conftest import EXHAUSTIVE, repeat
from processes import TACIT, Processes, Proxy, free_port, through, until
from small_study import NAMES, run, write_study

from tacit.cli.main import main
from tacit.errors import EngineFailure
from tacit.privacy.ledger import Ledger
from tacit.protocol.result import Result
from tacit.transports.nvflare import provisioning
from tacit.transports.nvflare.kit import PARTY_FILE, Kit
from tacit.transports.nvflare.provisioning import CONFIGS, config_bytes, init, write_job
from tacit.transports.nvflare.server import EngineServer, handshake, reachable, status_of
from tacit.transports.nvflare.site import REFUSED

ROUNDS = repeat(40, 60)
PARTIES = repeat(("south", "west"), NAMES)  # a site is two processes; test_walk.py has three sites


def charges(folder):
    ledgers = map(Ledger, sorted(folder.glob("*.db")))
    return [[r["rounds_charged"] for r in one.runs()] for one in ledgers]


def patient(folder):
    """The study with a deadline that a loaded machine keeps."""
    path = folder / "study.toml"
    path.write_text(path.read_text().replace("deadline = 5", "deadline = 100"))
    return path


def other_class(job):
    """The job, changed: at sites it names another class, of those that any site has."""
    other = json.loads(json.dumps(CONFIGS["party"]))
    other["executors"][0]["executor"]["path"] = "nvflare.app_common.np.np_trainer.NPTrainer"
    path = job / "party" / "config" / "config_fed_client.json"
    assert path.read_bytes() == config_bytes("party")
    path.write_text(json.dumps(other))
    return job


def refuse_impostor_and_other_job(kits, impostor, processes, party, monkeypatch):
    """A server that checks nothing by itself: the certificate and the sites' policy decide."""
    ours, near, *_ = kits
    there = [kit.agent for kit in kits[1:-1]]
    hostile = provisioning.server_resources

    def careless(workspace):
        return hostile(workspace) | {"class_allow_list": ["*"]}

    monkeypatch.setattr(provisioning, "server_resources", careless)
    monkeypatch.setattr(
        provisioning,
        "write_job",
        lambda folder, sites: other_class(write_job(folder, sites[:-1])),
    )
    provisioning.write_site(impostor)
    site = [processes.start, "impostor", TACIT[0], "-m", "tacit.transports.nvflare.site"]
    site[0](*site[1:], str(impostor.folder), **{PARTY_FILE: str(party)})
    server = EngineServer(ours)
    try:
        server.start()
        until(lambda: server.parties() == there)
        assert handshake(near).startswith("TLS")
        with pytest.raises(EngineFailure, match=r"TLS|certificate"):
            handshake(impostor)
        log = impostor.engine / "log.txt"
        until(lambda: log.exists() and "certificate" in log.read_text().lower())
        job = server.submit()
        until(lambda: all(server.state(job)))  # the state, and then what sites said
        state, said = server.state(job)
        assert state == "FINISHED:FAILED_TO_RUN"
        assert all(f"{name}: {REFUSED}" in said for name in there)
        assert server.parties() == there
    finally:
        server.stop()
        monkeypatch.undo()
    processes.kill("impostor")


# of a secure sum, tests/studies/test_sums.py kills parties and coordinators in make test too
@pytest.mark.parametrize("colluding", [None, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_study_between_processes(tmp_path, monkeypatch, capsys, colluding):
    calm, storm = tmp_path / "calm", tmp_path / "storm"
    parties = PARTIES if colluding is None else NAMES
    about = {"rounds": ROUNDS, "names": parties, "colluding": colluding}
    expected, _ = run(write_study(calm, **about), calm)
    write_study(storm, **about)
    address = f"localhost:{free_port()}"
    kits = [Kit.load(path) for path in init(patient(storm), address, storm / "kits")]
    ours, *before, south, west = kits
    impostor = Kit.load(init(storm / "study.toml", address, storm / "others")[-1])
    proxy = Proxy(ours.port)
    west = through(west.folder, proxy.port)
    processes = Processes(tmp_path / "said")
    command = [*TACIT, "run", str(ours.folder), "--wait", "120"]
    try:
        for kit in (*before, south):
            processes.join(kit, storm / f"{kit.agent}.toml")
        files = [impostor, processes, storm / "west.toml", monkeypatch]
        refuse_impostor_and_other_job(kits, *files)
        assert charges(storm) == [[] for _ in parties]

        # Ctrl-C while a party is missing
        waiting = processes.start("waits", *command)
        there = f"There: {', '.join(parties[:-1])}. Waiting for west"
        until(lambda: there in processes.said("waits"), 120, waiting)
        assert processes.interrupt("waits") == 130
        assert "to go on: tacit federation run" in processes.said("waits").splitlines()[-1]

        # a site killed and restarted, a wire cut, and (in make test-all) the server killed
        proxy.delay = 0.2  # no round is quicker than twice this
        running = processes.start("run", *command)
        until(lambda: reachable(ours), 120, running)  # the wire ends there, as its check finds
        processes.join(west, storm / "west.toml")
        until(lambda: status_of(ours).get("round", 0) >= 5, 120, running)
        processes.kill("south")
        processes.join(south, storm / "south.toml")
        until(lambda: "lost that of 'south'" in processes.said("run"), 120, running)
        assert main(["federation", "status", str(ours.folder), "--json"]) == 0
        status = json.loads(capsys.readouterr().out)
        assert status["rounds"] == ROUNDS and "west" in status["there"]
        done = status_of(ours)["round"]
        until(lambda: status_of(ours)["round"] >= done + 2, 120, running)
        proxy.cut()
        done = status_of(ours)["round"]
        until(lambda: status_of(ours)["round"] >= done + 2, 120, running)
        if (
            EXHAUSTIVE
        ):  # in make test: test_killed_commands.py, test_running.py, studies/test_run.py
            running.send_signal(signal.SIGHUP)  # its terminal is closed: nobody pays from here on
            assert running.wait(30) == -signal.SIGHUP
            until(lambda: not reachable(ours), 10)
            time.sleep(1)  # for a round that is on its way
            done = charges(storm)
            time.sleep(2)
            assert charges(storm) == done
            running = processes.start("run", *command)
            done = status_of(ours)["round"]
            until(lambda: status_of(ours)["round"] >= done + 2, 120, running)
            (engine,) = [one for one in psutil.Process(running.pid).children() if one.is_running()]
            engine.kill()
        proxy.delay = 0.0
        assert running.wait(180) == 0, processes.said("run")
        assert ("server was lost" in processes.said("run")) == EXHAUSTIVE

        found = Result.load(ours.run)
        np.testing.assert_array_equal(found.solution, expected.solution)
        np.testing.assert_array_equal(found.ergodic, expected.ergodic)
        np.testing.assert_array_equal(found.trace["residual"], expected.trace["residual"])
        assert charges(storm) == [[ROUNDS] for _ in parties] == charges(calm)
        assert found.privacy.seeded  # a rehearsal, and called one
        until(lambda: "is finished" in processes.said(west.site))
        assert any((west.folder / "own").iterdir())

        # once more: nothing is asked of anyone
        assert main(["federation", "run", str(ours.folder), "--out", str(tmp_path / "out")]) == 0
        assert "the result is there" in capsys.readouterr().err
        assert (tmp_path / "out" / "result.json").exists()
        assert processes.interrupt(west.site) == 130
    finally:
        proxy.close()
        processes.end()
        EngineServer(ours).stop()
