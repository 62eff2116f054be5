"""Golden model: what the chip must compute, written from the numerics contract in NumPy."""
