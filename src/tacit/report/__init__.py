"""One self-contained page from a result folder.

contents    what a folder holds, and what of it the statement covers
balances    what the agents' ledgers say is spent and left
sheet       one page for a data protection officer, in words
sheet_rows  its first rows: whose data, which run, its budget, what a ledger says
hidden      what a run hides, in plain words and exactly
sheet_pages the same as a page of HTML and one of PDF
subject     what that page is about: an agent's part in a run, from what its owner has
account     what that agent's ledger says
handover    which files of a folder may be handed on
odds        what a budget means for someone who guesses
words       the statement and the run in plain words, as titles and values
figures     the tables of a page, as data, and its curves, bars and gauge
grid_map    the map of a grid
page        the HTML: template, script, style and data in one file
"""
