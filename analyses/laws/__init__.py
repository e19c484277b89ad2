"""Times of many runs against what varies: points, fitted laws, resamples over seeds."""
