"""What the detail page says: pure functions from the objects of a snapshot to sections of rows."""
