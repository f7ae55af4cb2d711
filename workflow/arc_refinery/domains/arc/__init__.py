"""The domain `arc`: programs that turn grids into grids."""
