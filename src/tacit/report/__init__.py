"""One self-contained page from a result folder.

contents    what a folder holds, and what of it the statement covers
balances    what the agents' ledgers say is spent and left
words       the statement and the run in plain words, as titles and values
figures     tables, charts and the map of a page, as data
page        the HTML: template, script, style and data in one file
"""
