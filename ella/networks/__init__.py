"""Networks, as Equinox modules whose leaves are all arrays."""
