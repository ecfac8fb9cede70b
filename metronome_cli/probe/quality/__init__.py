"""What the bound does to a model's answers and to a stream that never ends: the measurements and their tests."""
