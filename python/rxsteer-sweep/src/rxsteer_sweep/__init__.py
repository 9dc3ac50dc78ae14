"""Runs a grid of rxsteer simulations on Ray, into one Parquet data set.

grid file -> cells (grid.py) -> one task each: `rxsteer sim --json` (cell.py), on Ray (on_ray.py)
          -> one Parquet file each, in one folder (dataset.py)
"""
