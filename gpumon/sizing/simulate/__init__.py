"""A discrete-event model of engines with continuous batching: requests, scheduler, router, and what they come to."""
