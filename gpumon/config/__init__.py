"""The user's settings: schema, loading, errors, themes."""
