"""The settings of the papers' pretraining runs, one file per family."""
