"""The only code that reads the outside: driver worker, endpoints, model files, simulator."""
