"""The paper's figures: one TOML file each; runs are saved as traces, plots read traces only.

power           Figures 3 and 4 and Table 1: settings, plot, claims checked
power_runs      their runs, in several processes
learning        Figures 5, 6 and 7: settings, plot, claims checked
learning_runs   their runs, batched
results         a folder of traces, and whether one curve is clearly below another
"""
