"""Kits: who may read them, what is in them and what is not; and what a check finds."""

import json

import pytest
from small_study import write_party, write_study

from tacit.cli.main import main
from tacit.errors import CorruptFile, InvalidInput
from tacit.privacy.ledger import Ledger, Terms
from tacit.privacy.mechanisms import Gaussian
from tacit.protocol.masks import fingerprint
from tacit.studies.party_file import PartyFile
from tacit.transports.nvflare.checking import check
from tacit.transports.nvflare.kit import CLASSES, Kit, address, site_names
from tacit.transports.nvflare.provisioning import example, init, write_server, write_site
from tacit.transports.nvflare.signing import write_keys


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    study = write_study(folder, rehearsal=None)
    return study, folder, init(folder / "study.toml", "localhost:8002", folder / "kits")


def test_what_is_in_a_kit(tmp_path):
    study = write_study(tmp_path, rehearsal=None)
    folders = init(tmp_path / "study.toml", "localhost:8002", tmp_path / "kits")
    names = ["coordinator", *study.agents]
    assert [path.name for path in folders] == [f"kit-{name}" for name in names]
    for folder in folders:
        kit = Kit.load(folder)
        assert kit.digest == study.digest and kit.server == "localhost:8002"
        for path in [folder, *folder.rglob("*")]:
            assert path.stat().st_mode & 0o077 == 0
        assert not kit.engine.exists()  # of the engine's files none travels
        # the authority's own key is nowhere: nobody can add a party later on
        keys = {"client.key"}
        if kit.role == "coordinator":
            keys |= {"server.key", "coordinator.key"}
        assert {path.name for path in folder.rglob("*.key")} == keys
        assert b"PRIVATE" not in (kit.tls / "rootCA.pem").read_bytes()
    assert [p.name for p in folders[0].parent.iterdir() if p.name.startswith(".")] == []


def documents(folder):
    """What the engine reads of a folder, by name."""
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*/*.json")}


def test_a_sites_policy(made):
    kit = Kit.load(made[2][1])
    write_site(kit)
    found = documents(kit.engine)
    resources = found["resources"]
    assert resources["class_allow_list"] == [CLASSES["executor"]]
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["allow_log_streaming"] is False
    assert resources["client"]["site_config"] == {}  # nothing is told when it registers
    assert not [c for c in resources["components"] if "log" in c["id"]]
    (rights,) = found["authorization"]["permissions"].values()
    for right in ("byoc", "shell_commands", "operate", "download_job", "clone_job"):
        assert rights[right] == "none"
    assert rights["submit_job"] == "n:coordinator@tacit.study"
    assert found["fed_client"]["require_signed_jobs"] is True
    assert found["fed_client"]["client"]["connection_security"] == "mtls"
    assert found["comm_config"]["internal"]["resources"]["connection_security"] == "mtls"


def test_where_a_server_listens(made, tmp_path):
    """On one machine at localhost only; for others at all addresses of its machine."""

    def target(folder):
        write_server(Kit.load(folder))
        assert documents(folder / "admin")["fed_admin"]["admin"]["host"] == "localhost"
        server = documents(folder / "server")["fed_server"]
        return server["servers"][0]["service"]["target"]

    assert target(made[2][0]) == "localhost:8002"
    ours, north, *_ = init(made[1] / "study.toml", "study.example.org:443", tmp_path)
    write_site(Kit.load(north))
    assert target(ours) == "0.0.0.0:443" and Kit.load(ours).host == "localhost"
    (server,) = documents(north / "engine")["fed_client"]["servers"]
    assert server["service"]["target"] == "study.example.org:443"
    assert server["identity"] == Kit.load(north).host == "study.example.org"


def test_used_folders_are_refused(made):
    _, folder, _ = made
    before = (folder / "kits" / "kit-coordinator" / "coordinator.key").read_bytes()
    with pytest.raises(InvalidInput, match="without kits"):
        init(folder / "study.toml", "localhost:8002", folder / "kits")
    assert (folder / "kits" / "kit-coordinator" / "coordinator.key").read_bytes() == before


def test_addresses():
    for server in ("", "host", "host:0", "host:70000", ":1", "a b:1", "h:x", "-:1"):
        with pytest.raises(InvalidInput, match="host:port"):
            address(server)
    assert address("study.example.org:8002") == ("study.example.org", 8002)


def test_names_of_sites():
    assert site_names(["North hospital", "zone 2"], "here") == ("north-hospital", "zone-2")
    assert site_names(["A b", "a-B"], "here") == ("party-1", "party-2")
    assert site_names(["server", "x"], "here") == ("party-1", "party-2")
    assert site_names(["病院", "x"], "here") == ("party-1", "party-2")
    # with the server's name in its certificate a party could pose as the server
    assert site_names(["North", "x"], "north") == ("party-1", "party-2")
    assert site_names(["x y", "X-Y"], "party-2") == ("site-1", "site-2")


def test_the_example_is_a_party_file(made, tmp_path):
    study, _, folders = made
    path = folders[1] / "party.example.toml"
    file = PartyFile.load(path)
    assert file.agent == "north" and file.limits.total_epsilon == 2.0 and not file.rehearsal
    (tmp_path / "another.toml").write_bytes((made[1] / "study.toml").read_bytes())
    again = init(tmp_path / "another.toml", "localhost:8002", tmp_path / "again")
    assert (again[1] / "party.example.toml").read_bytes() == path.read_bytes()
    quoted = tmp_path / "quoted.toml"
    quoted.write_text(example(study, 'a "b" \\ c'))
    assert PartyFile.load(quoted).agent == 'a "b" \\ c'


def found(kit, party=None):
    return {f.what: f for f in check(kit, party)}


def test_check(made, tmp_path, capsys):
    """All in order; then one thing after another is not, and it is named."""
    _, folder, folders = made
    kit, party = Kit.load(folders[1]), folder / "north.toml"
    sound = found(kit, party)
    assert {f.what for f in sound.values() if f.sound is False} == set()
    assert sound["server"].sound is None and "cannot be reached" in sound["server"].words
    assert "adding or removing one record" in sound["data"].words
    assert found(Kit.load(folders[0]))["server"].sound is None
    mark = sound["coordinator's key"].words.split()[1].rstrip(",")

    text = party.read_text()
    pinned = folder / "pinned.toml"
    pinned.write_text(f'coordinator = "{mark}"\n{text}')
    assert "party's own file" in found(kit, pinned)["coordinator's key"].words
    pinned.write_text(f'coordinator = "{"0" * 64}"\n{text}')
    assert found(kit, pinned)["coordinator's key"].sound is False
    spent = Ledger.create(folder / "spent.db", 2.0, 1e-5)  # just what the study asks for
    spent.begin("other", Terms("south", Gaussian(9.0), 1, 1, 0.0, "secure", "x", ""))
    for old, new, what in (
        ("north.csv", "gone.csv", "data"),
        ("north.db", "spent.db", "ledger"),
        ("[limits]", "[limits]\nrounds = 5", "limits"),
        ("total_delta", "totl_delta", "party file"),
        ('agent = "north"', 'agent = "south"', "party file"),
        ('agent = "north"', 'agent = "north"\nunit = "MW"', "party file"),
        ("[limits]", '[limits]\nhides = "another change"', "limits"),
        ("total_epsilon = 2.0", "total_epsilon = 1.0", "limits"),
        ("north.db", "gone.db", "ledger"),
    ):
        wrong = folder / "wrong.toml"
        assert old in text
        wrong.write_text(text.replace(old, new))
        findings = found(kit, wrong)
        assert [f.what for f in findings.values() if f.sound is False] == [what]
    assert main(["federation", "check", str(kit.folder), "--party", str(wrong)]) == 1
    assert "WRONG ledger: there is none" in capsys.readouterr().out
    assert main(["federation", "check", str(kit.folder), "--party", str(party), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"][0]["what"] == "certificates"
    assert main(["federation", "join", str(kit.folder), "--party", str(wrong)]) == 2  # never there
    assert "nothing was sent" in capsys.readouterr().err


def test_check_of_files(made, tmp_path):
    """Keys of others, keys that others may read, another study, another version."""
    import shutil

    folders = made[2]
    ours, north = (shutil.copytree(path, tmp_path / path.name) for path in folders[:2])
    kit = Kit.load(north)
    key = kit.tls / "client.key"
    kept = key.read_bytes()
    shutil.copyfile(folders[2] / "tls" / "client.key", key)
    assert "is not the key" in found(kit)["certificates"].words
    key.write_bytes(kept)
    for bit in range(6):  # whatever its group or others may do with it
        key.chmod(0o600 | 1 << bit)
        assert found(kit)["private files"].sound is False
    (kit.tls / "client.crt").unlink()
    assert found(kit)["certificates"].sound is False
    (north / "study" / "study.toml").write_text(
        (north / "study" / "study.toml").read_text().replace("radius = 2.0", "radius = 2.5")
    )
    assert "not that of the kit" in found(kit)["study"].words
    findings = found(kit, made[1] / "north.toml")  # nor is the same said of what rests on it
    assert findings["study"].sound is False and not {"data", "limits"} & set(findings)
    (north / "kit.json").write_text((north / "kit.json").read_text().replace('"0.', '"9.'))
    assert found(Kit.load(north))["versions"].sound is False
    write_keys(ours / "coordinator.key", tmp_path / "other.pem")
    assert found(Kit.load(ours))["coordinator's key"].sound is False
    (north / "kit.json").write_text("[]")
    with pytest.raises(CorruptFile, match="kit of format 2"):
        Kit.load(north)


def test_kits_of_the_other_role(made, capsys, tmp_path):
    folders = made[2]
    assert main(["federation", "run", str(folders[1])]) == 2
    assert main(["federation", "join", str(folders[0]), "--party", "x.toml"]) == 2
    assert main(["federation", "status", str(tmp_path)]) == 2
    assert "without kit.json" in capsys.readouterr().err
    refused = pytest.raises(InvalidInput, match="no other command")
    with Kit.load(folders[0]).held(), refused, Kit.load(folders[0]).held():
        pass
    assert main(["federation", "status", str(folders[1]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["party"] == "north"
    assert main(["federation", "status", str(folders[0])]) == 0
    assert "not begun" in capsys.readouterr().out


def test_check_of_a_secure_sum(tmp_path):
    """Fingerprints of all, what it costs whatever others do, and whose key the party has."""
    study = write_study(tmp_path, rehearsal=None, colluding=1)
    folders = init(tmp_path / "study.toml", "localhost:8002", tmp_path / "k")
    ours, kit, *_ = map(Kit.load, folders)

    def found():
        return {one.what: one for one in check(kit, tmp_path / "north.toml", connect=False)}

    assert all(one.sound is not False for one in found().values())
    marks = [fingerprint(key) for key in study.roster.identities]
    assert all(mark in found()["secure sum"].words for mark in marks)
    assert "whatever others do, the study costs epsilon 2.954" in found()["limits"].words
    assert "secure sum" in {one.what for one in check(ours, connect=False)}
    for limits in ("total_epsilon_alone = 2.9", "colluding = 2"):
        write_party(tmp_path, "north", rehearsal=False, more=limits)
        assert found()["limits"].sound is False
    write_party(tmp_path, "north", rehearsal=False)
    (tmp_path / "north.pem").chmod(0o644)
    assert found()["private files"].sound is False
    (tmp_path / "north.pem").write_bytes((tmp_path / "south.pem").read_bytes())
    assert found()["secure sum"].sound is False
    assert not [p for p in (tmp_path / "k").rglob("*.pem") if b"PRIVATE" in p.read_bytes()]
