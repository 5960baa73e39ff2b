"""One self-contained page from a result folder.

contents    what a folder holds, and what of it the statement covers
balances    what the agents' ledgers say is spent and left
"""
