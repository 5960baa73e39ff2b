"""The paper's figures: one TOML file each; runs are saved as traces, plots read traces only.

power           Figures 3 and 4 and Table 1
learning        Figures 5, 6 and 7
results         traces on disk, and whether one curve is clearly below another
"""
