"""The fleet on the screen: its rows, its columns, and what it may ask of what is behind it."""
