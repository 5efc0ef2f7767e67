"""Pages that cover the panes: help, detail, settings."""
