"""The catalogue of figures: one row for each, by the thing it belongs to.

A row says all that is known of a figure once: its unit, its words, what it may be, and its exported name. Whoever
shows, checks, adds up, compares or exports figures reads the row. Only rows, and what is made of rows alone, come in.
"""
