"""The past: frames kept in memory and in files, and the way back to any moment of them."""
