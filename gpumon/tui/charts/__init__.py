"""The history as curves or as sparks, in fixed columns of wall time."""
