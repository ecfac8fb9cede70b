"""A checkpoint's configuration file as cache groups, weights, context and rotary base."""
