"""Many machines at once: a deriver per host, rows per host or model, selection and order. Pure."""
