"""The coordinator's command through losses, with a server that follows a script."""

import dataclasses
import json
import time
from itertools import repeat

import pytest

from tacit.errors import EngineFailure
from tacit.transports.nvflare import server as servers
from tacit.transports.nvflare.kit import Kit
from tacit.transports.nvflare.server import NotNow, run

NAMES = ("north", "south")


class Scripted:
    """A server: who is there at each look, and what comes of each job."""

    def __init__(self, kit, there, jobs):
        self.kit, self.there, self.jobs = kit, list(there), iter(jobs)
        self.submitted = self.starts = 0
        self.dead = False

    def start(self):
        self.starts += 1
        self.dead = False

    def alive(self):
        return not self.dead

    def parties(self):
        return self.there.pop(0) if len(self.there) > 1 else self.there[0]

    def submit(self):
        self.submitted += 1
        what = next(self.jobs)
        job = f"job {self.submitted}"
        if what == "server":
            self.dead = True
        elif isinstance(what, dict):
            if what["state"] == "finished":
                self.kit.run.mkdir(exist_ok=True)
                (self.kit.run / "result.json").write_text("{}")
            (self.kit.folder / "outcome.json").write_text(json.dumps({"job": job, **what}))
        self.ended = what
        return job

    def state(self, job):
        return self.ended if isinstance(self.ended, tuple) else ("RUNNING", "")


class Told:
    def __init__(self):
        self.words = []

    def tell(self, words):
        self.words.append(words)

    def show(self, status):
        pass


@pytest.fixture
def kit(tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "LOOK", 0.01)
    monkeypatch.setattr(servers, "ASK", 0.02)
    about = {
        "study": "s",
        "digest": "0",
        "deadline": 5.0,
        "server": "localhost:1",
        "agents": NAMES,
    }
    return Kit(tmp_path, "coordinator", agent=None, tacit="0", **about)


def test_where_a_study_is(kit, monkeypatch):
    """Who is there and who is missing, as the server says; and the end, whatever is on the disk."""
    closed = []
    monkeypatch.setattr(Scripted, "close", lambda self: closed.append(self), raising=False)
    server = Scripted(kit, [["south"]], [])
    monkeypatch.setattr(servers, "EngineServer", lambda kit: server)
    assert servers.state_of(kit)["stage"] == "waiting for parties"
    kit.run.mkdir()
    about = {"stage": "waiting", "round": 2, "rounds": 6, "waiting": ["north"], "why": {}}
    (kit.run / "status.json").write_text(json.dumps(about))
    found = servers.state_of(kit)
    assert found["there"] == ["south"] and found["missing"] == ["north"] and found["running"]
    assert (found["stage"], found["round"], found["waiting"]) == ("waiting", 2, ["north"])
    assert found["server"] == kit.server and found["result"] is None
    server.dead = True
    found = servers.state_of(kit)
    assert found["there"] is found["missing"] is None and not found["running"]
    assert found["server"].endswith("not running")
    (kit.run / "result.json").write_text("{}")
    server.dead = False
    found = servers.state_of(kit)
    assert (found["stage"], found["running"], found["waiting"]) == ("finished", False, [])
    assert found["result"] == str(kit.run) and found["epsilon"] is None
    server.dead = True
    (kit.run / "result.json").write_text('{"privacy": {"epsilon": 1.5}}')
    found = servers.state_of(kit)  # the end is no failure
    assert found["server"].endswith("not running, as the study is finished")
    assert found["epsilon"] == "1.5"
    server.dead = False
    server.there, many = [], len(closed)
    with pytest.raises(IndexError):  # as of a command that is interrupted
        servers.state_of(kit)
    assert len(closed) == many + 1


def test_where_a_party_is_after_the_end(kit, monkeypatch):
    monkeypatch.setattr(servers, "reachable", lambda kit: False)
    party = dataclasses.replace(kit, role="party", agent="north")
    found = servers.state_of(party)
    assert found["stage"] is None and found["server"].endswith("cannot be reached")
    (kit.folder / "own").mkdir()
    said = {"run": "winter", "epsilon": 0.5}
    (kit.folder / "own" / "statement.json").write_text(json.dumps(said))
    found = servers.state_of(party)
    assert (found["stage"], found["run"], found["epsilon"]) == ("finished", "winter", "0.5")
    assert found["server"].endswith("as the study is finished")
    kit.study_file.parent.mkdir()
    kit.study_file.write_text("[evaluation]\nepsilon = 1.0\n")
    found = servers.state_of(party)
    assert found["stage"] == "before its evaluation" and found["server"].endswith("reached")
    (kit.folder / "own" / "evaluation.json").write_text("{}")
    assert servers.state_of(party)["stage"] == "finished"


FINISHED = {"state": "finished"}
LOST = {"state": "lost", "words": "Lost the site of 'south'."}


def test_a_lost_site_and_a_lost_server(kit):
    """Another job each time, until it is finished; who is missing is said once per change."""
    there = [[], ["north"], ["north"], [*NAMES], ["north"], [*NAMES]]
    ended = ("FINISHED:EXECUTION_EXCEPTION", "")
    server = Scripted(kit, there, [LOST, "server", ended, FINISHED])
    told = Told()
    run(kit, 5.0, told, server)
    assert server.submitted == 4 and server.starts == 4
    waits = [words for words in told.words if "Waiting" in words]
    assert waits == [
        "Waiting for north, south at localhost:1.",
        "There: north. Waiting for south at localhost:1.",
        "There: north. Waiting for south at localhost:1.",
    ]
    assert any("server was lost" in words for words in told.words)
    run(kit, 5.0, told, Scripted(kit, [[]], []))  # the result is there: nothing is done


def test_a_party_that_does_not_come(kit):
    before = time.monotonic()
    with pytest.raises(NotNow, match="south did not come"):
        run(kit, 0.1, Told(), Scripted(kit, [["north"]], []))
    with pytest.raises(NotNow, match="Lost the site"):  # again and again, without a round
        run(kit, 0.3, Told(), Scripted(kit, [[*NAMES]], repeat(LOST)))
    assert time.monotonic() - before < 5.0


@pytest.mark.parametrize(
    "came, kind, words",
    [
        ({"state": "paused", "words": "Party 'south' refuses."}, NotNow, "'south' refuses"),
        ({"state": "failed", "words": "No space left on device"}, EngineFailure, "No space"),
        (("FINISHED:FAILED_TO_RUN", "south: no"), EngineFailure, "refused: south: no"),
    ],
)
def test_ends_that_need_someone(kit, came, kind, words):
    server = Scripted(kit, [[*NAMES]], [came])
    with pytest.raises(kind, match=words):
        run(kit, 5.0, Told(), server)
    assert server.submitted == 1
