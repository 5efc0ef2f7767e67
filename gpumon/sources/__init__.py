"""The only code that reads the outside: driver worker, endpoints, model files and other hosts."""
