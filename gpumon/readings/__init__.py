"""The types that travel: raw frames in, snapshots out."""
