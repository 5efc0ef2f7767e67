"""Formulas over readings: rates, quantiles, FLOPs and bytes, MFU and MBU."""
