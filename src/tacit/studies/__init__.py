"""One study between organisations: what is public, what stays with a party, and who says what.

job             the kind [objective] and [set]: jobs of one process, and studies
grid            the kind [power]: a grid in zones
classifier      the kind [learn]: a model of tables
first           its first steps: ranges, and a mean that rows are centred by
evaluation      its last step: how good the model is, on records that were held out
moments         the kind [moments]: one release of a table
study           what all parties know of a study, kinds of problems, keys and names in TOML
party_file      a party's own file: its data, its ledger, its limits
party           the only process that sees a party's data: bytes in, bytes out
conduct         a study from invitation to result, over a line, and its status
"""

from tacit.studies.party_file import Limits, PartyFile
from tacit.studies.study import Study

__all__ = ["Limits", "PartyFile", "Study"]
