"""What a party hands to the engine, whose requests it takes, and which jobs and commands."""

import io
import json
import uuid
import zipfile
from unittest.mock import Mock

import numpy as np
import pytest
from engine_stand_in import Context, Post, Recorder
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.fuel.f3.comm_config import CommConfigurator
from nvflare.fuel.utils.config_service import ConfigService
from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
from nvflare.private.admin_defs import Message
from nvflare.private.defs import RequestHeader
from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from small_study import NAMES, run, write_study

from tacit.privacy.ledger import Ledger
from tacit.protocol.messages import (
    Agreed,
    Curvature,
    Facts,
    Invite,
    Refusal,
    Reply,
    answer_from,
    request_from,
)
from tacit.protocol.participant import WORDS
from tacit.protocol.result import Result
from tacit.transports.nvflare import controller as lines
from tacit.transports.nvflare import server as servers
from tacit.transports.nvflare.controller import PING, EngineLine, Lost, Stopped, run_study
from tacit.transports.nvflare.kit import BYTES, PARTY_FILE, Kit
from tacit.transports.nvflare.provisioning import (
    CONFIGS,
    SIGNED,
    config_bytes,
    init,
    write_job,
    write_server,
)
from tacit.transports.nvflare.signing import Signer, Verifier, write_keys
from tacit.transports.nvflare.site import (
    JOB,
    NETWORK,
    REFUSED,
    SITE,
    PartyExecutor,
    guard_cell,
    guard_job,
    guard_site,
)


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    """A study, and its kits."""
    folder = tmp_path_factory.mktemp("kits")
    write_study(folder)
    made = init(folder / "study.toml", "localhost:8002", folder / "kits")
    return folder, [Kit.load(path) for path in made]


def join(kit, party_file, monkeypatch):
    """An executor in this process, as the engine starts one, and all that it was given."""
    monkeypatch.setenv(PARTY_FILE, str(party_file))
    executor, engine = PartyExecutor(), Recorder()
    context = Context(engine, kit.engine)
    executor.handle_event(EventType.START_RUN, context)
    executor._party.exception(60)  # loaded, or failed to
    assert len(engine.refused) == len(NETWORK)
    return executor, engine, context


def test_all_that_the_engine_gets(tmp_path, monkeypatch, caplog):
    """A run through executors: one field of bytes, each an answer; no word in logs or contexts."""
    for kind in ("logistic", "least-squares"):
        study = write_study(tmp_path / kind, kind)
        made = init(tmp_path / kind / "study.toml", "localhost:8002", tmp_path / kind / "kits")
        ours, *others = (Kit.load(path) for path in made)
        joined = {k.site: join(k, tmp_path / kind / f"{k.agent}.toml", monkeypatch) for k in others}
        handlers = {site: engine.handler for site, (_, engine, _) in joined.items()}
        post = Post(handlers, alive=True)
        line = EngineLine(post, ours, lambda: False)
        assert run_study(ours, line) == {"state": "finished"}
        line.close()
        kinds = set()
        for _, reply in post.replies:
            assert set(reply) - {"__headers__"} == {BYTES}
            assert reply["__headers__"] == {"__rc__": ReturnCode.OK}
            kinds.add(type(answer_from(reply[BYTES])))
        assert kinds == {Facts, Agreed, Reply} | ({Curvature} if kind == "least-squares" else set())
        for _, engine, context in joined.values():
            assert engine.calls == [("register", ("tacit",), {})] and context.put == []
        assert all(
            topic == "tacit" and set(m) - {"__headers__"} == {BYTES} for _, topic, m in post.sent
        )
        expected, _ = run(study, tmp_path / kind, "alone")
        assert np.array_equal(Result.load(ours.run).solution, expected.solution)
        assert others[0].log.stat().st_mode & 0o077 == 0
        lines_of = [json.loads(text) for text in others[0].log.read_text().splitlines()]
        assert {"time", "level", "source", "words"} <= set(lines_of[0])
    # the engine's own log files get what reaches the root logger
    assert not [record for record in caplog.records if record.name.startswith("tacit")]


def test_requests_that_the_coordinator_did_not_sign(kits, tmp_path, monkeypatch):
    """Other keys, parties, studies, bits: one sentence, and the party never sees them."""
    folder, (ours, north, south, _) = kits
    executor, engine, context = join(north, folder / "north.toml", monkeypatch)
    signer = Signer(ours.private_key, ours.digest)
    invitation = Invite(ours.digest).to_bytes()
    good = signer.sign("north", invitation)
    write_keys(tmp_path / "key", tmp_path / "pem")
    forged = [
        b"",
        invitation,
        good[:64],
        good[:-1],
        good + b"\0",
        bytes([good[0] ^ 1]) + good[1:],
        good[:70] + bytes([good[70] ^ 1]) + good[71:],
        signer.sign("south", invitation),
        Signer(ours.private_key, "0" * 64).sign("north", invitation),
        Signer(tmp_path / "key", ours.digest).sign("north", invitation),
        None,
        "text",
        Shareable(),
    ]
    handled = []
    party = executor._party.result()
    monkeypatch.setattr(party, "handle", lambda request: handled.append(request) or Agreed(""))
    for data in forged:
        message = Shareable()
        message[BYTES] = data
        answer = answer_from(engine.handler("tacit", message, context)[BYTES])
        assert isinstance(answer, Refusal)
        assert answer.words == f"Party 'north' {WORDS['signature'][1]}"
    assert handled == []
    message = Shareable()
    message[BYTES] = good
    engine.handler("tacit", message, context)
    assert handled == [request_from(invitation)]
    engine.handler("tacit", message, context)  # the same that is, or was, answered
    assert handled == [request_from(invitation)]
    assert Verifier(south.public_key, south.digest, "south").request(good) is None
    assert Ledger(folder / "north.db").runs() == []


def test_a_job_that_ends_says_nothing(kits, monkeypatch):
    """A refusal of a process on its way out would pause the study, and say that it failed."""
    folder, (ours, north, *_) = kits
    executor, engine, context = join(north, folder / "north.toml", monkeypatch)
    executor.handle_event(EventType.END_RUN, context)
    invited = Invite(north.digest).to_bytes()
    signed = Signer(ours.private_key, ours.digest).sign("north", invited)
    reply = engine.handler("tacit", {BYTES: signed}, context)
    assert BYTES not in reply and reply.get_return_code() != ReturnCode.OK
    assert WORDS["absent"][0] == "refused"  # nothing was computed: no failed round to be counted


def test_a_party_that_cannot_take_part(kits, tmp_path, monkeypatch):
    """Its words stay in its log; a task is no way in."""
    folder, (ours, north, *_) = kits
    broken = (folder / "north.toml").read_text().replace("north.csv", "gone.csv")
    (folder / "broken.toml").write_text(broken)
    executor, engine, context = join(north, folder / "broken.toml", monkeypatch)
    message = Shareable()
    message[BYTES] = Signer(ours.private_key, ours.digest).sign("north", b"anything")
    answer = answer_from(engine.handler("tacit", message, context)[BYTES])
    assert answer.words == f"Party 'north' {WORDS['absent'][1]}"
    assert "gone.csv" in north.log.read_text()
    with monkeypatch.context() as patch:  # a party that lets the coordinator know
        (folder / "tells.toml").write_text(f"tell_why = true\n{broken}")
        patch.setenv(PARTY_FILE, str(folder / "tells.toml"))
        told = answer_from(engine.handler("tacit", message, context)[BYTES]).words
    assert told.startswith(f"Party 'north' {WORDS['absent'][1]} It says: ") and "gone.csv" in told
    reply = executor.execute("tacit", message, context, None)
    assert reply.get_return_code() == ReturnCode.TASK_UNKNOWN
    executor.handle_event(EventType.END_RUN, context)


def test_a_network_agent_that_tells_nothing():
    """With NVFLARE's own: a process's memory and configuration are asked for, before and after."""
    from nvflare.fuel.f3.cellnet import net_agent

    known, cell = {}, Mock()
    cell.register_request_cb = lambda channel, topic, cb: known.update({(channel, topic): cb})
    net_agent.NetAgent(cell)
    before = dict(known)
    assert {("_net_manager", topic) for topic in NETWORK} <= set(before)  # of this version
    guard_cell(cell)
    for topic in NETWORK:
        told = known["_net_manager", topic](None)
        assert told.payload is None and "not at this site" in str(told.headers)
    kept = {key for key in before if known[key] is before[key]}
    assert ("_net_manager", "heartbeat") in kept and ("_net_manager", "stop") in kept


def archive(files):
    """A job as it comes to a site."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        for name, data in files:
            made.writestr(name, data)
    return content.getvalue()


@pytest.fixture
def processors():
    """NVFLARE's own requests to a site, as they were before once more afterwards."""
    known = ClientRequestProcessors.request_processors
    before, commands = list(known), list(AdminCommands.commands)
    yield known
    for one in before:
        one.__dict__.pop("process", None)
    known[:], AdminCommands.commands[:] = before, commands


def test_no_other_job(processors, tmp_path):
    """Of a job that is not ours nothing is written: its code could be imported by another job's
    process, which is starting while this one is looked at."""
    app = write_job(tmp_path, ["north"]) / "party"
    for name in SIGNED:
        (app / name).write_text("{}")
        (app / "config" / name).write_text("{}")
    sent = zip_directory_to_bytes(str(app), "")  # as the engine does
    ours = "config/config_fed_client.json", config_bytes("party")
    other = ours[0], json.dumps(CONFIGS["party"]).replace("Party", "Other")
    names = "custom/sitecustomize.py", "custom/", "config/config_fed_client.conf"
    names += "config/more/__nvfl_sig.json", "../x", "/x"
    hostile = [archive([ours, (name, "")]) for name in names]
    hostile += [archive([other]), archive([(SIGNED[0], "")]), sent[:-9], b"", None]
    hostile += [archive([ours, (SIGNED[0], b"0" * 2**20)])]
    with pytest.warns(UserWarning, match="Duplicate"):
        hostile.append(archive([other, ours]))
    (brings,) = [one for one in processors if type(one).__name__ == "DeployProcessor"]
    written = []
    brings.process = lambda request, context: written.append(request.body)
    guard_site()
    for body in [sent, *hostile]:
        answer = brings.process(Message("deploy", body), None)
        assert answer is None or REFUSED in answer.body
    assert written == [sent]


def test_commands_that_a_site_does_not_have(processors):
    """Shell commands, logs, system information: gone, whatever the server says of the user."""
    assert "ShellCommandProcessor" in {type(p).__name__ for p in processors}
    guard_site()
    guard_job()
    left = {type(p).__name__ for p in processors}
    assert left == SITE and "ShellCommandProcessor" not in left
    assert {type(p).__name__ for p in AdminCommands.commands} == JOB
    AdminCommands.commands.clear()
    with pytest.raises(RuntimeError, match=r"NVFLARE 2\.9"):
        guard_job()


@pytest.mark.parametrize("name", ["local", "startup", "own", "../own", 5, 8 * "abcd"])
def test_a_job_with_the_name_of_a_folder(processors, name):
    """It would take the folder's place: the site's policy, or its keys."""
    job_bytes = archive([("config/config_fed_client.json", config_bytes("party"))])
    seen, known = [], str(uuid.uuid4())
    for one in processors:
        one.process = lambda request, context: seen.append(request.get_header("job_id"))
    guard_site()
    for one in processors:
        for job in (name, known, None):
            request = Message("any", job_bytes)
            if job is not None:
                request.set_header(RequestHeader.JOB_ID, job)
            answer = one.process(request, None)
            assert (answer is not None) == (job == name)
    assert seen == [known, None] * len(SITE)


def answering(name):
    """A site that answers at once, and pings too."""

    def handler(topic, message, context):
        reply = make_reply(ReturnCode.OK)
        if topic != PING:
            reply[BYTES] = name.encode()
        return reply

    return handler


def test_a_line_sends_again_and_finds_out_who_is_gone(kits, monkeypatch):
    ours = kits[1][0]
    for name, value in {"OVERDUE": 0.05, "GONE": 0.2, "STARTING": 0.4, "PAUSE": 0.01}.items():
        monkeypatch.setattr(lines, name, value)
    failures = {"south": 3}

    def flaky(topic, message, context):
        failures["south"] -= 1
        return None if failures["south"] > 0 else answering("south")(topic, message, context)

    sites = {"north": answering("north"), "south": flaky, "west": answering("west")}
    requests, heard = dict.fromkeys(NAMES, b"request"), []
    line = EngineLine(Post(sites), ours, lambda: False)
    answers = line.ask(requests, 5.0, heard.append)
    assert answers == {name: name.encode() for name in NAMES} and sorted(heard) == sorted(NAMES)

    sites["west"] = lambda topic, message, context: None  # its process is gone
    with pytest.raises(Lost, match="'west'") as lost:
        line.ask(requests, 5.0, heard.append)
    assert lost.value.parties == ("west",)
    assert lost.value.answers == {name: name.encode() for name in ("north", "south")}
    with pytest.raises(Lost):  # and also where the deadline comes first
        line.ask(requests, 0.15, heard.append)

    def silent(topic, message, context):  # it is there, and says nothing
        return make_reply(ReturnCode.OK if topic == PING else ReturnCode.TIMEOUT)

    sites["west"] = silent
    assert set(line.ask(requests, 0.5, heard.append)) == {"north", "south"}
    stopped = EngineLine(Post(sites), ours, lambda: True)
    with pytest.raises(Stopped):
        stopped.ask(requests, 5.0, heard.append)
    for one in (line, stopped):
        one.close()


def test_what_came_of_a_job(kits, monkeypatch):
    """Each end has its words; a full disk is one."""
    ours = kits[1][0]
    full = OSError(28, "No space left on device", "state.npz")
    for error, state, words in (
        (None, "paused", "gave no answer"),
        (Lost(("west",)), "lost", "'west'"),
        (Stopped("The job was stopped."), "stopped", "stopped"),
        (full, "failed", "No space left on device: state.npz"),
        (RuntimeError("a secret"), "failed", "RuntimeError"),
    ):
        outcome = run_study(ours, Mock(ask=Mock(side_effect=error, return_value={})))
        assert outcome["state"] == state and words in outcome["words"]
        assert "a secret" not in outcome["words"]


@pytest.mark.parametrize("ours", [True, False])
def test_a_session_takes_no_settings_from_where_a_command_runs(kits, tmp_path, monkeypatch, ours):
    """Without our word the engine does, from any file of that name: the control."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "comm_config.json").write_text('{"max_message_size": 7}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ConfigService, "_config_path", [])
    monkeypatch.setattr(CommConfigurator, "_config_loaded", False)
    monkeypatch.setattr(CommConfigurator, "_configuration", None)
    if not ours:
        monkeypatch.setattr(ConfigService, "initialize", lambda *paths: None)
    monkeypatch.setattr(
        "nvflare.fuel.flare_api.flare_api.new_secure_session",
        lambda *about, **more: CommConfigurator().get_config() or "none",
    )
    monkeypatch.setattr(servers, "reachable", lambda kit: True)
    monkeypatch.setattr(servers.EngineServer, "alive", lambda server: True)
    write_server(kits[1][0])
    found = servers.EngineServer(kits[1][0])._connected()
    assert found == ("none" if ours else {"max_message_size": 7})


def test_a_signature_has_one_reading(tmp_path):
    """Digest and party, one after another, are the same bytes for another digest and party."""
    private, public = tmp_path / "a.key", tmp_path / "a.pem"
    write_keys(private, public)
    signed = Signer(private, "ab").sign("c", b"request")
    assert Verifier(public, "ab", "c").request(signed) == b"request"
    for digest, party in (("a", "bc"), ("abc", ""), ("", "abc"), ("ab", "d")):
        assert Verifier(public, digest, party).request(signed) is None
