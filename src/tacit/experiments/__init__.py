"""The paper's figures: one TOML file each; runs are saved as traces, plots read traces only."""
