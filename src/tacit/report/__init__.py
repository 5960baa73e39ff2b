"""Pages that are made from a result folder: the report, and the privacy sheet.

contents    what a folder holds, and what of it everybody may have
account     what the agents' ledgers say is spent and left
page        the report: one page of HTML with its words, charts and tables
released    tables and coefficients with error bars: released, and covered
figures     its tables, as data, and its curves, bars and map of a grid
sheet       the privacy sheet: one page for a data protection officer, as HTML and as PDF
subject     what a sheet is about: an agent's part in a run, from what its owner has
odds        what a budget means for someone who guesses
"""
