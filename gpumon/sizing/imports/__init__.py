"""Results of load tests, as other tools write them -> profiles."""
