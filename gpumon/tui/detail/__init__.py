"""Contents of the detail page: pure functions from the objects of a snapshot to sections of rows."""
