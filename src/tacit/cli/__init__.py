"""The command ``tacit``: one file for each command.

main            which command, and errors as one line
options         the options of a run, once for all that run something
run_folder      a run's folder: locked, kept, continued
console         progress bars, tables, results
ranks           --engine mpi: agents on the ranks of a cluster
account         tacit account
solve           tacit solve
sheet           tacit sheet
report          tacit show, tacit report, and the page that a run leaves
demo            tacit demo
power           tacit power: solve, bound, check, attack
learn           tacit learn, tacit learn attack, tacit learn download
columns         tacit columns
predict         tacit predict
moments         tacit moments, tacit regress, tacit counts
audit           tacit audit
ledger          tacit ledger
federation      tacit federation
reproduce       tacit reproduce
"""
