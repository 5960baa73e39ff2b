"""The command ``tacit``.

main            the parser, and errors as one line
console         progress bars, tables, result folders
interrupts      Ctrl-C: one line and status 130, at any moment
demo            tacit demo
power           tacit power
learn           tacit learn, tacit predict
learn_data      the data that commands of learning name
learn_attack    tacit learn attack
audit           tacit audit
ledger          tacit ledger
reproduce       tacit reproduce
"""
