"""NVFLARE carries a study between organisations: kits, keys, policies and processes.

Another transport between organisations is a folder beside this one: it has ``Line`` of
``studies/coordinator.py`` at the coordinator (here ``line``), and gives each party's bytes to
``Party.handle`` of ``studies/party.py`` (here ``executor``). One for agents of a single owner is
a file beside this folder.

kit           the folder that a party, or the coordinator, works in; its log
provisioning  what the engine reads: kits, certificates, policies, its one job
signing       the coordinator's signature on every request
checking      what is wrong, in plain words
server        the engine's server, as a process, and a study run with it to its end
controller    the coordinator in the engine
line          bytes to parties and back, over the engine
site          the engine's process at a party, and what it refuses the server
executor      a party in the engine
"""
