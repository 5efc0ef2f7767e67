"""Many hosts at once: a deriver per host, rows of hosts, models and owners, their sums, selection and order.

The frames of hosts come in, whatever brought them. Pure: no host is asked from here.
"""
