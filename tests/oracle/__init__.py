"""The oracle: what the real model code has, multiplies and keeps, counted and written to tests/data/oracle/.

`make oracle` runs it in a venv of its own (torch and transformers as in requirements.txt). Nothing of gpumon is imported
here, and nothing of this package by gpumon: the CSV files are what its tests read.
"""
