"""Widgets that paint precomputed strips."""
