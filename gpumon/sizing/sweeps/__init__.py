"""Load-test results of other tools -> what was observed: one file per format, recognised by content."""
