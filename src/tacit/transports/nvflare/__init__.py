"""NVFLARE carries a study between organisations: kits, keys, policies and processes.

Another transport between organisations is a folder beside this one: it has ``Line`` of
``studies/conduct.py`` at the coordinator (here in ``controller``), and gives each party's bytes
to ``answer_bytes`` of ``protocol/participant.py`` (here in ``site``). One for agents of a single
owner is a file beside this folder.

kit           the folder that a party, or the coordinator, works in; its log
provisioning  what the engine reads: kits, certificates, policies, its one job
signing       the coordinator's signature on every request
checking      what is wrong, in plain words
server        the engine's server, as a process, and a study run with it to its end
controller    the coordinator in the engine, and its bytes to parties and back
site          a party in the engine: its process, what it refuses the server, its participant
"""
