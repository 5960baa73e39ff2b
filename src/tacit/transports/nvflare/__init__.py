"""NVFLARE carries a study between organisations: kits, keys, policies and processes.

Another transport between organisations is a folder beside this one: it has ``Line`` of
``studies/coordinator.py`` at the coordinator (here ``line``), and gives each party's bytes to
``Party.handle`` of ``studies/party.py`` (here ``executor``). One for agents of a single owner is
a file beside this folder.

kit             the folder that a party, or the coordinator, works in
kits            init: certificates, keys and policies, one kit for each
provisioning    NVFLARE's provisioning, and what a site allows
signing         the coordinator's signature on every request
job             the one job that a site runs, and no other
guard           what a site does not let the engine's server do
controller      the coordinator in the engine
line            bytes to parties and back, over the engine
executor        a party in the engine
site            the engine's process at a party
server          the engine's server, as a process, and its admin
running         a study to its end, through losses of sites and server
watching        where a study is
checking        what is wrong, in plain words
logs            structured logs, without private values
"""
