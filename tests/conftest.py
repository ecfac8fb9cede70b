"""What holds for every test: no property is judged by how long one of its examples took."""

from hypothesis import settings

settings.register_profile("metronome", deadline=None)
settings.load_profile("metronome")
